"""The gradient of an embedding's weight: every row is the sum of the gradients of the places that looked it up."""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu.host import DeviceContext
from std.collections import Array
from std.sys import size_of

from rows import Rows, accum_of, each, rows_of, run_rows


@always_inline
def lower_bound(numbers: Rows[DType.int64, 1], end: Int, wanted: Int) -> Int:
    """Returns the first place whose number is not less than the wanted one."""
    var low = 0
    var high = end
    while low < high:
        var middle = (low + high) // 2
        if Int(numbers.data[unsafe_offset=numbers.offset(middle)]) < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@extensibility.register("embedding_sum")
struct EmbeddingSum:
    """Sums the rows of each number; `sorted` are the numbers in order, `order` where each was before."""

    @staticmethod
    def execute[
        target: StaticString, scale_grad_by_freq: Bool
    ](
        output: OutputTensor[rank=2, ...],
        grad_output: InputTensor[dtype=output.dtype, ...],
        sorted: InputTensor[dtype=DType.int64, rank=1, ...],
        order: InputTensor[dtype=DType.int64, rank=1, ...],
        padding_idx: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime dtype = output.dtype
        comptime accum = accum_of[dtype]
        comptime last = grad_output.rank - 1
        var grads = rows_of(grad_output, last, grad_output.rank)
        var to = rows_of(output, 1, 2)
        var numbers = rows_of(sorted, 0, 1)
        var places = rows_of(order, 0, 1)
        var count = sorted.dim_size(0)
        var columns = to.columns()
        var rows = to.count()
        var padding = Int(padding_idx)
        if count > 0:
            comptime if target == "cpu":
                var least = Int(numbers.data[unsafe_offset=0])
                var most = Int(numbers.data[unsafe_offset=numbers.offset(count - 1)])
                if least < 0 or most >= rows:
                    raise Error(
                        "[mojo::embedding_dense_backward] indices go from ", least, " to ", most,
                        ", and num_weights is ", rows, ".\nPass a larger num_weights.",
                    )

        @always_inline
        def program[
            width: Int, across: Bool, team: Int, hold: Int
        ](row: Int) {
            var grads, var to, var numbers, var places, var count, var columns, var padding
        }:
            comptime Value = SIMD[accum, width]
            comptime keep = hold > 0
            var sums = Array[Value, max(hold, 1)](fill=0)
            var target_begin = to.start(row)
            var first = lower_bound(numbers, count, row)
            var end = first
            while end < count and Int(numbers.data[unsafe_offset=numbers.offset(end)]) == row:
                end += 1
            if row == padding:
                end = first
            var scale = Scalar[accum](1)
            comptime if scale_grad_by_freq:
                scale = 1 / Scalar[accum](max(end - first, 1))
            comptime if keep:
                for i in range(first, end):
                    var place = Int(places.data[unsafe_offset=places.offset(i)])
                    var begin = grads.start(place)

                    @always_inline
                    def add(k: Int, column: Int, lanes: Int) {mut sums, imm}:
                        sums[k] += grads.load[width](begin, column, lanes).cast[accum]()

                    each[width, False, team, hold](columns, width, add)

                @always_inline
                def write(k: Int, column: Int, lanes: Int) {imm}:
                    to.store[width](
                        target_begin, column, (sums[k] * scale).cast[dtype](), lanes
                    )

                each[width, False, team, hold](columns, width, write)
            else:

                @always_inline
                def sum_up(k: Int, column: Int, lanes: Int) {imm}:
                    var total = Value(0)
                    for i in range(first, end):
                        var place = Int(places.data[unsafe_offset=places.offset(i)])
                        var begin = grads.start(place)
                        total += grads.load[width](begin, column, lanes).cast[accum]()
                    to.store[width](target_begin, column, (total * scale).cast[dtype](), lanes)

                each[width, False, team, hold](columns, width, sum_up)

        comptime vector = 16 // size_of[dtype]()
        var packed = grads.packed() and to.packed()
        var aligned = grads.aligned(vector) and to.aligned(vector)
        run_rows[target, dtype](program, rows, columns, packed, aligned, 0, ctx)
