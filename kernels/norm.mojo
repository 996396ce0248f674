"""RMS norm and layer norm over the last dimensions, alone or after an addition, and their gradients."""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu.host import DeviceContext
from std.collections import Array
from std.math import align_up, ceildiv, sqrt
from std.sys import size_of

from norm_gpu import SLICES, PartOnGpu, SumOnGpu
from rows import (
    SUM,
    THREADS,
    accum_of,
    each,
    line,
    load,
    pointer_of,
    reduced,
    rows_of,
    run_rows,
    store,
)


@always_inline
def epsilon_of[dtype: DType, has_eps: Bool](eps: Float64) -> Scalar[accum_of[dtype]]:
    """Returns eps, or what torch takes without one: the machine epsilon of what is computed in."""
    comptime if has_eps:
        return eps.cast[accum_of[dtype]]()
    return 2.220446049250313e-16 if dtype == .float64 else 1.1920928955078125e-07


def normalize[
    target: StaticString, centered: Bool, has_residual: Bool, has_weight: Bool, has_bias: Bool
](
    output: OutputTensor,
    summed: OutputTensor[dtype=output.dtype, rank=output.rank, ...],
    input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
    residual: InputTensor[dtype=output.dtype, rank=output.rank, ...],
    weight: InputTensor,
    bias: InputTensor,
    epsilon: Scalar[accum_of[output.dtype]],
    ctx: DeviceContext,
) raises:
    """Writes the normalized rows; with a residual, of input + residual, which is written too."""
    comptime dtype = output.dtype
    comptime accum = accum_of[dtype]
    comptime dims = weight.rank if has_weight else bias.rank if has_bias else 1
    comptime first = output.rank - dims
    var source = rows_of(input, first, output.rank)
    var extra = rows_of(residual, first, output.rank)
    var to = rows_of(output, first, output.rank)
    var sums = rows_of(summed, first, output.rank)
    var scale = rows_of(weight, 0, weight.rank)
    var shift = rows_of(bias, 0, bias.rank)
    var columns = to.columns()

    @always_inline
    def program[
        width: Int, across: Bool, team: Int, hold: Int
    ](row: Int) {
        var source,
        var extra,
        var to,
        var sums,
        var scale,
        var shift,
        var columns,
        var epsilon,
    }:
        comptime Value = SIMD[accum, width]
        comptime keep = hold > 0
        var values = Array[Value, max(hold, 1)](fill=0)
        var begin = source.start(row)
        var extra_begin = extra.start(row)
        var sums_begin = sums.start(row)
        var target_begin = to.start(row)
        var total = Value(0)

        @always_inline
        def read(k: Int, column: Int, count: Int) {mut}:
            var x = source.load[width](begin, column, count).cast[accum]()
            comptime if has_residual:
                x += extra.load[width](extra_begin, column, count).cast[accum]()
                var rounded = x.cast[dtype]()
                sums.store[width](sums_begin, column, rounded, count)
                x = rounded.cast[accum]()
            comptime if keep:
                values[k] = x
            comptime if centered:
                total += x
            else:
                total += x * x

        each[width, False, team, hold](columns, width, read)
        var mean = reduced[SUM, False, team](total) / Scalar[accum](columns)

        @always_inline
        def value_at(k: Int, column: Int, count: Int) {imm} -> Value:
            comptime if keep:
                return values[k]
            comptime if has_residual:
                return sums.load[width](sums_begin, column, count).cast[accum]()
            return source.load[width](begin, column, count).cast[accum]()

        var center = Value(0)
        comptime if centered:
            center = mean
            total = 0

            @always_inline
            def deviate(k: Int, column: Int, count: Int) {mut}:
                var d = value_at(k, column, count) - center
                comptime if team == 0:
                    for lane in range(count, width):
                        d[lane] = 0
                total += d * d

            each[width, False, team, hold](columns, width, deviate)
            mean = reduced[SUM, False, team](total) / Scalar[accum](columns)
        var rate = 1 / sqrt(mean + epsilon)

        @always_inline
        def write(k: Int, column: Int, count: Int) {mut}:
            var y = (value_at(k, column, count) - center) * rate
            comptime if has_weight:
                y *= scale.load[width](0, column, count).cast[accum]()
            comptime if has_bias:
                y += shift.load[width](0, column, count).cast[accum]()
            to.store[width](target_begin, column, y.cast[dtype](), count)

        each[width, False, team, hold](columns, width, write)

    comptime vector = 16 // size_of[dtype]()
    var packed = source.packed() and to.packed()
    var aligned = source.aligned(vector) and to.aligned(vector)
    comptime if has_residual:
        packed = packed and extra.packed() and sums.packed()
        aligned = aligned and extra.aligned(vector) and sums.aligned(vector)
    comptime if has_weight:
        packed = packed and scale.packed()
        aligned = aligned and scale.aligned(vector)
    comptime if has_bias:
        packed = packed and shift.packed()
        aligned = aligned and shift.aligned(vector)
    run_rows[target, dtype](program, to.count(), columns, packed, aligned, 0, ctx)


@extensibility.register("rms_norm")
struct RmsNorm:
    """x / sqrt(mean(x^2) + eps) * weight."""

    @staticmethod
    def execute[
        target: StaticString, has_weight: Bool, has_eps: Bool
    ](
        output: OutputTensor,
        input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        weight: InputTensor,
        eps: Float64,
        ctx: DeviceContext,
    ) raises:
        normalize[target, False, False, has_weight, False](
            output,
            output,
            input,
            input,
            weight,
            weight,
            epsilon_of[output.dtype, has_eps](eps),
            ctx,
        )


@extensibility.register("add_rms_norm")
struct AddRmsNorm:
    """The RMS norm of x + residual, and the sum."""

    @staticmethod
    def execute[
        target: StaticString, has_weight: Bool, has_eps: Bool
    ](
        output: OutputTensor,
        summed: OutputTensor[dtype=output.dtype, rank=output.rank, ...],
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        residual: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        weight: InputTensor,
        eps: Float64,
        ctx: DeviceContext,
    ) raises:
        normalize[target, False, True, has_weight, False](
            output,
            summed,
            x,
            residual,
            weight,
            weight,
            epsilon_of[output.dtype, has_eps](eps),
            ctx,
        )


@extensibility.register("layer_norm")
struct LayerNorm:
    """(x - mean) / sqrt(variance + eps) * weight + bias."""

    @staticmethod
    def execute[
        target: StaticString, has_weight: Bool, has_bias: Bool
    ](
        output: OutputTensor,
        input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        weight: InputTensor,
        bias: InputTensor,
        eps: Float64,
        ctx: DeviceContext,
    ) raises:
        normalize[target, True, False, has_weight, has_bias](
            output,
            output,
            input,
            input,
            weight,
            bias,
            epsilon_of[output.dtype, True](eps),
            ctx,
        )


def differentiate[
    target: StaticString, centered: Bool, has_more: Bool, has_weight: Bool, has_bias: Bool
](
    grad_input: OutputTensor,
    grad_weight: OutputTensor,
    grad_bias: OutputTensor,
    partial: OutputTensor[rank=3, ...],
    grad_output: InputTensor[dtype=grad_input.dtype, rank=grad_input.rank, ...],
    grad_more: InputTensor[dtype=grad_input.dtype, rank=grad_input.rank, ...],
    input: InputTensor[dtype=grad_input.dtype, rank=grad_input.rank, ...],
    weight: InputTensor,
    epsilon: Scalar[accum_of[grad_input.dtype]],
    ctx: DeviceContext,
) raises:
    """Writes the gradients of normalize; `grad_more` is added to that of the input.

    The rows are dealt to the parts of `partial`, in which each part leaves its sums for what there is of weight
    and bias: parts x these x columns. The order of every sum is fixed.
    """
    comptime dtype = grad_input.dtype
    comptime accum = accum_of[dtype]
    comptime left_dtype = partial.dtype
    comptime dims = grad_weight.rank if has_weight else grad_bias.rank if has_bias else 1
    comptime first = grad_input.rank - dims
    var grads = rows_of(grad_output, first, grad_input.rank)
    var more = rows_of(grad_more, first, grad_input.rank)
    var source = rows_of(input, first, grad_input.rank)
    var to = rows_of(grad_input, first, grad_input.rank)
    var scale = rows_of(weight, 0, weight.rank)
    var left = rows_of(partial, 2, 3)
    var columns = to.columns()
    var rows = to.count()
    var parts = partial.dim_size(0)

    @always_inline
    def program[
        width: Int, across: Bool, team: Int, hold: Int
    ](part: Int) {
        var grads,
        var more,
        var source,
        var to,
        var scale,
        var left,
        var columns,
        var rows,
        var parts,
        var epsilon,
    }:
        comptime Value = SIMD[accum, width]
        comptime keep = hold > 0
        comptime size = max(hold, 1)
        var of_weight = Array[Value, size](fill=0)
        var of_bias = Array[Value, size](fill=0)
        var held_grads = Array[Value, size](fill=0)
        var held = Array[Value, size](fill=0)
        comptime kinds = Int(has_weight) + Int(has_bias)
        var to_weight = left.start(kinds * part)
        var to_bias = left.start(kinds * part + kinds - 1)
        var count_of = Scalar[accum](columns)
        var first_row = part * rows // parts
        for row in range(first_row, (part + 1) * rows // parts):
            var grads_begin = grads.start(row)
            var more_begin = more.start(row)
            var begin = source.start(row)
            var target_begin = to.start(row)
            var fresh = row == first_row

            @always_inline
            def grad_at(k: Int, column: Int, count: Int) {imm} -> Value:
                comptime if keep:
                    return held_grads[k]
                return grads.load[width](grads_begin, column, count).cast[accum]()

            @always_inline
            def value_at(k: Int, column: Int, count: Int) {imm} -> Value:
                comptime if keep:
                    return held[k]
                return source.load[width](begin, column, count).cast[accum]()

            @always_inline
            def weighted(g: Value, column: Int, count: Int) {imm} -> Value:
                comptime if has_weight:
                    return g * scale.load[width](0, column, count).cast[accum]()
                return g

            var center = Value(0)
            comptime if keep or centered:
                var total = Value(0)

                @always_inline
                def read(k: Int, column: Int, count: Int) {mut}:
                    var x = source.load[width](begin, column, count).cast[accum]()
                    comptime if keep:
                        held[k] = x
                        held_grads[k] = grads.load[width](grads_begin, column, count).cast[accum]()
                    total += x

                each[width, False, team, hold](columns, width, read)
                comptime if centered:
                    center = reduced[SUM, False, team](total) / count_of
            var squares = Value(0)
            var dots = Value(0)
            var sums = Value(0)

            @always_inline
            def add(k: Int, column: Int, count: Int) {mut}:
                var d = value_at(k, column, count) - center
                comptime if centered and team == 0:
                    for lane in range(count, width):
                        d[lane] = 0
                var g = weighted(grad_at(k, column, count), column, count)
                squares += d * d
                dots += g * d
                comptime if centered:
                    sums += g

            each[width, False, team, hold](columns, width, add)
            var rate = 1 / sqrt(reduced[SUM, False, team](squares) / count_of + epsilon)
            var slope = reduced[SUM, False, team](dots) / count_of * rate * rate
            comptime if centered:
                sums = reduced[SUM, False, team](sums) / count_of

            @always_inline
            def write(k: Int, column: Int, count: Int) {mut}:
                var g = grad_at(k, column, count)
                var d = value_at(k, column, count) - center
                var result = (weighted(g, column, count) - sums - d * slope) * rate
                comptime if has_more:
                    result += more.load[width](more_begin, column, count).cast[accum]()
                to.store[width](target_begin, column, result.cast[dtype](), count)
                comptime if keep:
                    comptime if has_weight:
                        of_weight[k] += g * d * rate
                    comptime if has_bias:
                        of_bias[k] += g
                else:
                    comptime if has_weight:
                        var sum = g * d * rate
                        if not fresh:
                            sum += left.load[width](to_weight, column, count).cast[accum]()
                        left.store[width](to_weight, column, sum.cast[left_dtype](), count)
                    comptime if has_bias:
                        var sum = g
                        if not fresh:
                            sum += left.load[width](to_bias, column, count).cast[accum]()
                        left.store[width](to_bias, column, sum.cast[left_dtype](), count)

            each[width, False, team, hold](columns, width, write)
        if keep or first_row == (part + 1) * rows // parts:

            @always_inline
            def leave(k: Int, column: Int, count: Int) {mut}:
                comptime if has_weight:
                    left.store[width](to_weight, column, of_weight[k].cast[left_dtype](), count)
                comptime if has_bias:
                    left.store[width](to_bias, column, of_bias[k].cast[left_dtype](), count)

            each[width, False, team, hold](columns, width, leave)

    comptime vector = 16 // size_of[dtype]()
    var packed = grads.packed() and source.packed() and to.packed()
    var aligned = grads.aligned(vector) and source.aligned(vector) and to.aligned(vector)
    comptime if has_more:
        packed = packed and more.packed()
        aligned = aligned and more.aligned(vector)
    comptime if has_weight:
        packed = packed and scale.packed()
        aligned = aligned and scale.aligned(vector)
    comptime if target != "cpu":
        comptime Kernel = PartOnGpu[
            dtype,
            weight.dtype,
            left_dtype,
            grad_input.rank,
            weight.rank,
            centered,
            has_more,
            has_weight,
            has_bias,
        ]
        var threads = align_up(ceildiv(columns, vector * Kernel.hold), 32)
        if packed and aligned and columns % vector == 0 and threads > 32 and threads <= THREADS:
            ctx.enqueue_function(
                Kernel(
                    grads,
                    more,
                    source,
                    to,
                    scale,
                    pointer_of(partial),
                    columns,
                    rows,
                    parts,
                    epsilon,
                ),
                grid_dim=parts,
                block_dim=threads,
            )
            finish_parts[target, has_weight, has_bias](grad_weight, grad_bias, partial, ctx)
            return
    run_rows[target, dtype, 2](
        program, parts, columns, packed, aligned, 0, ctx, work=rows // parts + 1
    )
    finish_parts[target, has_weight, has_bias](grad_weight, grad_bias, partial, ctx)


def finish_parts[
    target: StaticString, has_weight: Bool, has_bias: Bool
](
    grad_weight: OutputTensor,
    grad_bias: OutputTensor,
    partial: OutputTensor[rank=3, ...],
    ctx: DeviceContext,
) raises:
    """Writes the gradients of weight and bias."""
    comptime if has_weight:
        sum_parts[target](grad_weight, partial, 0, ctx)
    comptime if has_bias:
        sum_parts[target](grad_bias, partial, Int(has_weight), ctx)


def sum_parts[
    target: StaticString
](output: OutputTensor, partial: OutputTensor[rank=3, ...], which: Int, ctx: DeviceContext,) raises:
    """Writes the sums of what the parts left for one of the two."""
    comptime result = output.dtype
    var parts = partial.dim_size(0)
    var columns = partial.dim_size(2)
    var step = partial.dim_size(1) * columns
    var source = pointer_of(partial).unsafe_offset(which * columns)
    var to = pointer_of(output)
    comptime if target != "cpu":
        if columns == 0:
            return
        ctx.enqueue_function(
            SumOnGpu[partial.dtype, result](source, to, columns, step, parts),
            grid_dim=ceildiv(columns, 32),
            block_dim=(32, SLICES),
        )
        return
    var run = columns

    @always_inline
    def program[
        width: Int, across: Bool, team: Int, hold: Int
    ](group: Int) {var source, var to, var step, var parts, var run}:
        var column, lanes = line[width, across](group, run)
        var total = SIMD[partial.dtype, width](0)

        @always_inline
        def add(k: Int, part: Int, count: Int) {mut total, imm}:
            total += load[width](source, part * step + column, count)

        each[width, across, team, hold](parts, lanes, add)
        total = reduced[SUM, across, team](total)
        store(to, column, total.cast[result](), lanes)

    run_rows[target, partial.dtype](program, columns, parts, False, False, run, ctx)


@extensibility.register("rms_norm_backward")
struct RmsNormBackward:
    """The gradients of rms_norm, and what is added to the first."""

    @staticmethod
    def execute[
        target: StaticString, has_weight: Bool, has_eps: Bool, has_grad_sum: Bool
    ](
        grad_input: OutputTensor,
        grad_weight: OutputTensor,
        partial: OutputTensor[rank=3, ...],
        grad_output: InputTensor[dtype=grad_input.dtype, rank=grad_input.rank, ...],
        input: InputTensor[dtype=grad_input.dtype, rank=grad_input.rank, ...],
        weight: InputTensor,
        eps: Float64,
        grad_sum: InputTensor[dtype=grad_input.dtype, rank=grad_input.rank, ...],
        ctx: DeviceContext,
    ) raises:
        differentiate[target, False, has_grad_sum, has_weight, False](
            grad_input,
            grad_weight,
            grad_weight,
            partial,
            grad_output,
            grad_sum,
            input,
            weight,
            epsilon_of[grad_input.dtype, has_eps](eps),
            ctx,
        )


@extensibility.register("layer_norm_backward")
struct LayerNormBackward:
    """The gradients of layer_norm."""

    @staticmethod
    def execute[
        target: StaticString, has_weight: Bool, has_bias: Bool
    ](
        grad_input: OutputTensor,
        grad_weight: OutputTensor,
        grad_bias: OutputTensor,
        partial: OutputTensor[rank=3, ...],
        grad_output: InputTensor[dtype=grad_input.dtype, rank=grad_input.rank, ...],
        input: InputTensor[dtype=grad_input.dtype, rank=grad_input.rank, ...],
        weight: InputTensor,
        bias: InputTensor,
        eps: Float64,
        ctx: DeviceContext,
    ) raises:
        differentiate[target, True, False, has_weight, has_bias](
            grad_input,
            grad_weight,
            grad_bias,
            partial,
            grad_output,
            grad_output,
            input,
            weight,
            epsilon_of[grad_input.dtype, True](eps),
            ctx,
        )
