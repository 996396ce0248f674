"""Softmax and its logarithm over one dimension, and their gradients."""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu.host import DeviceContext
from std.collections import Array
from std.math import log
from std.sys import size_of
from std.utils.numerics import neg_inf

from rows import MAX, SUM, accum_of, each, exp_of, line, reduced, rows_of, run_rows


@extensibility.register("softmax")
struct Softmax[logarithm: Bool]:
    """exp(x - max) / sum, or its logarithm: x - max - log(sum)."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        input: InputTensor[rank=output.rank, ...],
        dim: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime result = output.dtype
        comptime accum = accum_of[result]
        comptime assert accum.is_floating_point()
        var axis = Int(dim) + output.rank if dim < 0 else Int(dim)
        var source = rows_of(input, axis, axis + 1)
        var to = rows_of(output, axis, axis + 1)
        var columns = to.columns()
        var packed = source.packed() and to.packed()
        var run = 0 if packed else min(source.run(), to.run())

        @always_inline
        def program[
            width: Int, across: Bool, team: Int, hold: Int
        ](group: Int) {var source, var to, var columns, var run}:
            comptime Value = SIMD[accum, width]
            var row, lanes = line[width, across](group, run)
            var begin = source.start(row)
            var target_begin = to.start(row)
            var values = Array[Value, max(hold, 1)](fill=0)
            var largest = Value(neg_inf[accum]())
            comptime keep = hold > 0

            @always_inline
            def read(k: Int, column: Int, count: Int) {mut}:
                var x = source.load[width](begin, column, count).cast[result]().cast[accum]()
                comptime if not across:
                    if count < width:
                        for lane in range(count, width):
                            x[lane] = neg_inf[accum]()
                comptime if keep:
                    values[k] = x
                largest = max(largest, x)

            each[width, across, team, hold](columns, lanes, read)
            largest = reduced[MAX, across, team](largest)
            var total = Value(0)

            @always_inline
            def value_at(k: Int, column: Int, count: Int) {imm} -> Value:
                comptime if keep:
                    return values[k]
                return source.load[width](begin, column, count).cast[result]().cast[accum]()

            @always_inline
            def add(k: Int, column: Int, count: Int) {mut}:
                var e = exp_of(value_at(k, column, count) - largest)
                comptime if not across:
                    if count < width:
                        for lane in range(count, width):
                            e[lane] = 0
                comptime if not Self.logarithm:
                    comptime if keep:
                        values[k] = e
                    elif result == accum:
                        to.store[width](target_begin, column, e.cast[result](), count)
                total += e

            each[width, across, team, hold](columns, lanes, add)
            total = reduced[SUM, across, team](total)
            var scale = largest + log(total) if Self.logarithm else 1 / total

            @always_inline
            def write(k: Int, column: Int, count: Int) {mut}:
                var y: Value
                comptime if Self.logarithm:
                    y = value_at(k, column, count) - scale
                elif keep:
                    y = values[k] * scale
                elif result == accum:
                    y = to.load[width](target_begin, column, count).cast[accum]() * scale
                else:
                    y = exp_of(value_at(k, column, count) - largest) * scale
                to.store[width](target_begin, column, y.cast[result](), count)

            each[width, across, team, hold](columns, lanes, write)

        comptime vector = 16 // size_of[output.dtype]()
        var aligned = source.aligned(vector) and to.aligned(vector)
        run_rows[target, output.dtype](program, to.count(), columns, packed, aligned, run, ctx)


@extensibility.register("softmax_backward")
struct SoftmaxBackward[logarithm: Bool]:
    """y * (g - sum(g * y)), or g - exp(y) * sum(g) for the logarithm."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        grad_input: OutputTensor,
        grad_output: InputTensor[rank=grad_input.rank, ...],
        output: InputTensor[dtype=grad_output.dtype, rank=grad_input.rank, ...],
        dim: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime result = grad_input.dtype
        comptime accum = accum_of[grad_output.dtype]
        comptime assert accum.is_floating_point()
        var axis = Int(dim) + grad_input.rank if dim < 0 else Int(dim)
        var grads = rows_of(grad_output, axis, axis + 1)
        var source = rows_of(output, axis, axis + 1)
        var to = rows_of(grad_input, axis, axis + 1)
        var columns = to.columns()
        var packed = grads.packed() and source.packed() and to.packed()
        var run = 0 if packed else min(grads.run(), min(source.run(), to.run()))

        @always_inline
        def program[
            width: Int, across: Bool, team: Int, hold: Int
        ](group: Int) {var grads, var source, var to, var columns, var run}:
            comptime Value = SIMD[accum, width]
            var row, lanes = line[width, across](group, run)
            var grads_begin = grads.start(row)
            var begin = source.start(row)
            var target_begin = to.start(row)
            comptime keep = hold > 0
            var held_grads = Array[Value, max(hold, 1)](fill=0)
            var held = Array[Value, max(hold, 1)](fill=0)
            var total = Value(0)

            @always_inline
            def add(k: Int, column: Int, count: Int) {mut}:
                var g = grads.load[width](grads_begin, column, count).cast[accum]()
                comptime if keep:
                    held_grads[k] = g
                comptime if not Self.logarithm or keep:
                    var y = source.load[width](begin, column, count).cast[accum]()
                    comptime if keep:
                        held[k] = y
                    comptime if not Self.logarithm:
                        g *= y
                total += g

            each[width, across, team, hold](columns, lanes, add)
            total = reduced[SUM, across, team](total)

            @always_inline
            def write(k: Int, column: Int, count: Int) {mut}:
                var g: Value
                var y: Value
                comptime if keep:
                    g = held_grads[k]
                    y = held[k]
                else:
                    g = grads.load[width](grads_begin, column, count).cast[accum]()
                    y = source.load[width](begin, column, count).cast[accum]()
                comptime if Self.logarithm:
                    g -= exp_of(y) * total
                else:
                    g = y * (g - total)
                to.store[width](target_begin, column, g.cast[result](), count)

            each[width, across, team, hold](columns, lanes, write)

        comptime vector = 16 // size_of[grad_output.dtype]()
        var aligned = grads.aligned(vector) and source.aligned(vector) and to.aligned(vector)
        run_rows[target, grad_output.dtype](program, to.count(), columns, packed, aligned, run, ctx)
