"""Cross entropy of logits against class numbers, and its gradient, without the softmax in between."""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu import thread_idx
from max.gpu.host import DeviceContext
from std.math import exp, log
from std.sys import size_of
from std.utils.numerics import nan, neg_inf

from rows import (
    ALONE,
    MAX,
    SUM,
    accum_of,
    each,
    exp_of,
    line,
    load,
    pointer_of,
    reduced,
    rows_of,
    run_rows,
)


@always_inline
def leads[team: Int]() -> Bool:
    """Tells whether this thread writes what is one value for its row."""
    comptime if team == ALONE:
        return True
    return Int(thread_idx.x) == 0


def check_labels(labels: InputTensor, classes: Int, ignore_index: Int) raises:
    """Refuses class numbers that are none."""
    var numbers = rows_of(labels, 0, labels.rank)
    for i in range(numbers.columns()):
        var label = Int(numbers.data[unsafe_offset=numbers.offset(i)])
        if label != ignore_index and (label < 0 or label >= classes):
            raise Error(
                "[mojo::cross_entropy] target has the class ",
                label,
                " (element ",
                i,
                "), and input has ",
                classes,
                " classes.\nPass numbers from 0 to ",
                classes - 1,
                ", or ignore_index=",
                ignore_index,
                ".",
            )


@extensibility.register("cross_entropy_forward")
struct CrossEntropyForward:
    """Losses; the logarithm of each row's sum of exponentials, which the gradient needs; and the sums of weights.

    loss_i = (1 - s) * w[y_i] * (lse_i - x_i[y_i]) + s / C * sum_c w[c] * (lse_i - x_i[c])
    """

    @staticmethod
    def execute[
        target: StaticString, has_weight: Bool, reduction: StaticString
    ](
        loss: OutputTensor,
        lse: OutputTensor,
        terms: OutputTensor[rank=2, ...],
        total: OutputTensor[rank=1, ...],
        input: InputTensor,
        labels: InputTensor,
        weight: InputTensor[rank=1, ...],
        ignore_index: Int64,
        label_smoothing: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime accum = accum_of[input.dtype]
        comptime result = loss.dtype
        comptime assert accum.is_floating_point()
        comptime axis = 1 if input.rank > 1 else 0
        var source = rows_of(input, axis, axis + 1)
        var numbers = rows_of(labels, 0, labels.rank)
        var scale = rows_of(weight, 0, 1)
        var losses = pointer_of(loss)
        var logs = pointer_of(lse)
        var left = pointer_of(terms)
        var sums = pointer_of(total)
        var classes = source.columns()
        var rows = source.count()
        var ignored = Int(ignore_index)
        var smoothing = label_smoothing.cast[accum]()
        comptime if target == "cpu":
            check_labels(labels, classes, ignored)
        var packed = source.packed()
        var run = 0 if packed else source.run()

        @always_inline
        def program[
            width: Int, across: Bool, team: Int, hold: Int
        ](group: Int) {
            var source,
            var numbers,
            var scale,
            var losses,
            var logs,
            var left,
            var classes,
            var rows,
            var ignored,
            var smoothing,
            var run,
        }:
            comptime Value = SIMD[accum, width]
            var row, lanes = line[width, across](group, run)
            var begin = source.start(row)
            var largest = Value(neg_inf[accum]())
            var exponentials = Value(0)
            var all = Value(0)  # sum of w[c] * x[c]
            var weights = Value(0)  # sum of w[c]

            @always_inline
            def add(
                k: Int, column: Int, count: Int
            ) {mut largest, mut exponentials, mut all, mut weights, imm}:
                var x = source.load[width](begin, column, count).cast[accum]()
                var valid = x
                comptime if not across and team == ALONE:
                    for lane in range(count, width):
                        valid[lane] = neg_inf[accum]()
                var top = largest
                comptime if across:
                    top = max(largest, valid)
                else:
                    top = max(largest, Value(valid.reduce_max()))
                # minus infinity so far: 0 stands for it, so that its exponentials are 0 and not nan
                var base = top.eq(Value(neg_inf[accum]())).select(Value(0), top)
                if across or top[0] > largest[0]:
                    exponentials *= exp(largest - base)
                largest = top
                exponentials += exp_of(valid - base)
                if smoothing > 0:
                    comptime if has_weight:
                        comptime if across:
                            var w = scale.load[1](0, column).cast[accum]()[0]
                            all += x * w
                            weights += w
                        else:
                            var w = scale.load[width](0, column, count).cast[accum]()
                            all += x * w
                            weights += w
                    else:
                        all += x

            each[width, across, team, hold](classes, lanes, add)
            var top = reduced[MAX, across, team](largest)
            var base = top.eq(Value(neg_inf[accum]())).select(Value(0), top)
            exponentials = reduced[SUM, across, team](exponentials * exp(largest - base))
            var logarithm = top + log(exponentials)
            if smoothing > 0:
                all = reduced[SUM, across, team](all)
                comptime if has_weight:
                    weights = reduced[SUM, across, team](weights)
                else:
                    weights = Value(Scalar[accum](classes))
            if leads[team]():
                for lane in range(lanes if across else 1):
                    var at = row + lane
                    var label = Int(numbers.data[unsafe_offset=numbers.offset(at)])
                    var lse_of = logarithm[lane]
                    var value = Scalar[accum](0)
                    var w = Scalar[accum](0)
                    if label != ignored:
                        w = 1
                        if label < 0 or label >= classes:
                            lse_of = nan[accum]()
                            value = lse_of
                        else:
                            var x = source.data[
                                unsafe_offset=begin + source.offset(label) + lane
                            ].cast[accum]()
                            comptime if has_weight:
                                w = scale.data[unsafe_offset=scale.offset(label)].cast[accum]()
                            value = w * (lse_of - x)
                            if smoothing > 0:
                                var even = lse_of * weights[lane] - all[lane]
                                value = (1 - smoothing) * value + smoothing / Scalar[accum](
                                    classes
                                ) * even
                    logs[unsafe_offset=at] = lse_of.cast[lse.dtype]()
                    comptime if reduction == "none":
                        losses[unsafe_offset=at] = value.cast[result]()
                    else:
                        left[unsafe_offset=at] = value.cast[terms.dtype]()
                        left[unsafe_offset=rows + at] = w.cast[terms.dtype]()

        comptime vector = 16 // size_of[input.dtype]()
        var aligned = source.aligned(vector)
        comptime if has_weight:
            packed = packed and scale.packed()
            aligned = aligned and scale.aligned(vector)
        run_rows[target, input.dtype](program, rows, classes, packed, aligned, run, ctx)

        @always_inline
        def finish[
            width: Int, across: Bool, team: Int, hold: Int
        ](which: Int) {var scale, var losses, var left, var sums, var classes, var rows}:
            comptime Value = SIMD[accum, width]
            var value = Value(0)
            if which == 0:  # the losses
                comptime if reduction == "none":
                    if leads[team]():
                        sums[unsafe_offset=0] = 0
                else:
                    var weights = Value(0)

                    @always_inline
                    def add(k: Int, at: Int, count: Int) {mut value, mut weights, imm}:
                        value += load[width](left, at, count).cast[accum]()
                        weights += load[width](left, rows + at, count).cast[accum]()

                    each[width, False, team, hold](rows, width, add)
                    value = reduced[SUM, False, team](value)
                    weights = reduced[SUM, False, team](weights)
                    comptime if reduction == "mean":
                        value /= weights
                    if leads[team]():
                        losses[unsafe_offset=0] = value[0].cast[result]()
                        sums[unsafe_offset=0] = weights[0].cast[total.dtype]()
            else:  # the weights of all classes
                comptime if has_weight:

                    @always_inline
                    def add_weight(k: Int, at: Int, count: Int) {mut value, imm}:
                        value += scale.load[width](0, at, count).cast[accum]()

                    each[width, False, team, hold](classes, width, add_weight)
                    value = reduced[SUM, False, team](value)
                else:
                    value = Value(Scalar[accum](classes))
                if leads[team]():
                    sums[unsafe_offset=1] = value[0].cast[total.dtype]()

        # one value at a time on a GPU: the number of rows may be odd
        var simple = target == "cpu" and (not has_weight or scale.packed())
        run_rows[target, accum](finish, 2, max(rows, 512), simple, False, 0, ctx)


@extensibility.register("cross_entropy_backward")
struct CrossEntropyBackward:
    """p = exp(x - lse); the gradient is g_i * ((1 - s) * w[y] * (p - [c = y]) + s / C * (p * sum(w) - w))."""

    @staticmethod
    def execute[
        target: StaticString, has_weight: Bool, reduction: StaticString
    ](
        grad_input: OutputTensor,
        grad_output: InputTensor,
        input: InputTensor[dtype=grad_input.dtype, rank=grad_input.rank, ...],
        labels: InputTensor,
        weight: InputTensor[rank=1, ...],
        lse: InputTensor,
        total: InputTensor[rank=1, ...],
        ignore_index: Int64,
        label_smoothing: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime dtype = grad_input.dtype
        comptime accum = accum_of[dtype]
        comptime assert accum.is_floating_point()
        comptime axis = 1 if input.rank > 1 else 0
        var source = rows_of(input, axis, axis + 1)
        var to = rows_of(grad_input, axis, axis + 1)
        var numbers = rows_of(labels, 0, labels.rank)
        var grads = rows_of(grad_output, 0, grad_output.rank)
        var scale = rows_of(weight, 0, 1)
        var logs = rows_of(lse, 0, lse.rank)
        var sums = rows_of(total, 0, 1)
        var classes = source.columns()
        var ignored = Int(ignore_index)
        var smoothing = label_smoothing.cast[accum]()
        var packed = source.packed() and to.packed()
        var run = 0 if packed else min(source.run(), to.run())

        @always_inline
        def program[
            width: Int, across: Bool, team: Int, hold: Int
        ](group: Int) {
            var source,
            var to,
            var numbers,
            var grads,
            var scale,
            var logs,
            var sums,
            var classes,
            var ignored,
            var smoothing,
            var run,
        }:
            comptime Value = SIMD[accum, width]
            var row, lanes = line[width, across](group, run)
            var begin = source.start(row)
            var target_begin = to.start(row)
            var label = SIMD[DType.int64, width](-1)
            var log_of = Value(0)
            var main = Value(0)  # what p - [c = y] is multiplied by
            var even = Value(0)  # and p * sum(w) - w
            comptime for lane in range(width if across else 1):
                if not across or lane < lanes:
                    var number = Int(numbers.data[unsafe_offset=numbers.offset(row + lane)])
                    if number != ignored:
                        label[lane] = Int64(number if number >= 0 else -2)  # -1: ignored
                        log_of[lane] = logs.data[unsafe_offset=logs.offset(row + lane)].cast[
                            accum
                        ]()
                        var g: Scalar[accum]
                        comptime if reduction == "none":
                            g = grads.data[unsafe_offset=grads.offset(row + lane)].cast[accum]()
                        else:
                            g = grads.data[unsafe_offset=0].cast[accum]()
                        comptime if reduction == "mean":
                            g /= sums.data[unsafe_offset=0].cast[accum]()
                        var w = Scalar[accum](1)
                        comptime if has_weight:
                            if number >= 0 and number < classes:
                                w = scale.data[unsafe_offset=scale.offset(number)].cast[accum]()
                        main[lane] = g * w * (1 - smoothing)
                        even[lane] = g * smoothing / Scalar[accum](classes)
                    elif not across:
                        log_of[lane] = 0
            comptime if not across:
                label = SIMD[DType.int64, width](label[0])
                log_of = Value(log_of[0])
                main = Value(main[0])
                even = Value(even[0])
            var of_all = sums.data[unsafe_offset=sums.offset(1)].cast[accum]()
            var both = main + even * of_all
            var counted = label.ne(-1)
            var first = SIMD[DType.int64, width](0)
            comptime if not across:
                comptime for lane in range(width):
                    first[lane] = Int64(lane)

            @always_inline
            def write(k: Int, column: Int, count: Int) {imm}:
                var x = source.load[width](begin, column, count).cast[accum]()
                var p = exp_of(x - log_of)
                var value = p * both
                var here = (first + Int64(column)).eq(label)
                value -= here.select(main, Value(0))
                if smoothing > 0:
                    comptime if not has_weight:
                        value -= even
                    elif across:
                        value -= even * scale.load[1](0, column).cast[accum]()[0]
                    else:
                        value -= even * scale.load[width](0, column, count).cast[accum]()
                value = counted.select(value, Value(0))
                to.store[width](target_begin, column, value.cast[dtype](), count)

            each[width, across, team, hold](classes, lanes, write)

        comptime vector = 16 // size_of[dtype]()
        var aligned = source.aligned(vector) and to.aligned(vector)
        comptime if has_weight:
            packed = packed and scale.packed()
            aligned = aligned and scale.aligned(vector)
        run_rows[target, dtype](program, to.count(), classes, packed, aligned, run, ctx)
