"""The gradient of an embedding's weight: every row is the sum of the gradients of the places that looked it up."""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu import block_idx, thread_idx
from max.gpu.host import DeviceContext
from max.gpu.sync import barrier
from std.collections import Array
from std.math import ceildiv
from std.memory import unsafe_stack_allocation
from std.sys import size_of

from rows import Rows, accum_of, each, rows_of, run_rows

comptime AHEAD = 4  # rows that a GPU thread has under way
comptime SLICES = 8  # threads that find out together where a number goes
comptime TILE = 2048  # numbers that a block compares with at a time
comptime CLEARED = 8  # vectors that a thread sets to zero


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


def sum_by_rows[
    target: StaticString, scale_grad_by_freq: Bool
](
    output: OutputTensor[rank=2, ...],
    grads: Rows[output.dtype, _],
    numbers: Rows[DType.int64, 1],
    places: Rows[DType.int64, 1],
    count: Int,
    padding: Int,
    ctx: DeviceContext,
) raises:
    """Writes every row of the output: the sum of what belongs to it."""
    comptime dtype = output.dtype
    comptime accum = accum_of[dtype]
    var to = rows_of(output, 1, 2)
    var columns = to.columns()
    var rows = to.count()

    @always_inline
    def program[
        width: Int, across: Bool, team: Int, hold: Int
    ](row: Int) {var grads, var to, var numbers, var places, var count, var columns, var padding}:
        comptime Value = SIMD[accum, width]
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


def sum_runs[
    target: StaticString, scale_grad_by_freq: Bool
](
    output: OutputTensor[rank=2, ...],
    grads: Rows[output.dtype, _],
    numbers: Rows[DType.int64, 1],
    places: Rows[DType.int64, 1],
    count: Int,
    padding: Int,
    ctx: DeviceContext,
) raises:
    """Writes the rows that are not zero: where a number comes for the first time, its sum is made."""
    comptime dtype = output.dtype
    comptime accum = accum_of[dtype]
    var to = rows_of(output, 1, 2)
    var columns = to.columns()
    var rows = to.count()

    @always_inline
    def program[
        width: Int, across: Bool, team: Int, hold: Int
    ](first: Int) {
        var grads, var to, var numbers, var places, var count, var columns, var padding, var rows
    }:
        comptime Value = SIMD[accum, width]
        comptime Raw = SIMD[dtype, width]
        comptime size = max(hold, 1)

        @always_inline
        def number_at(i: Int) {imm} -> Int:
            return Int(numbers.data[unsafe_offset=numbers.offset(i)])

        var next = Array[Int, AHEAD](fill=0)  # numbers and places, read before they are needed
        var next_places = Array[Int, AHEAD](fill=0)

        @always_inline
        def look(begin: Int) {mut next, mut next_places, imm}:
            comptime for a in range(AHEAD):
                var at = min(begin + a, count - 1)
                next[a] = number_at(at) if begin + a < count else -1
                next_places[a] = Int(places.data[unsafe_offset=places.offset(at)])

        look(first)
        var last = number_at(max(first - 1, 0))
        var row = next[0]
        if (first > 0 and last == row) or row < 0 or row >= rows or row == padding:
            return
        var target_begin = to.start(row)
        comptime if hold > 0:
            var sums = Array[Value, size](fill=0)
            var found = 0
            var more = True
            while more:
                var some = Array[Raw, AHEAD * size](fill=0)
                comptime for a in range(AHEAD):
                    more = more and next[a] == row
                    if more:
                        var begin = grads.start(next_places[a])

                        @always_inline
                        def fetch(k: Int, column: Int, lanes: Int) {mut some, imm}:
                            some[a * size + k] = grads.load[width](begin, column, lanes)

                        each[width, False, team, hold](columns, width, fetch)
                found += AHEAD
                if more:
                    look(first + found)
                comptime for a in range(AHEAD):
                    comptime for k in range(size):
                        sums[k] += some[a * size + k].cast[accum]()
            var scale = Scalar[accum](1)
            comptime if scale_grad_by_freq:
                var end = first + max(found - AHEAD, 0)
                while end < count and number_at(end) == row:
                    end += 1
                scale = 1 / Scalar[accum](end - first)

            @always_inline
            def write(k: Int, column: Int, lanes: Int) {imm}:
                to.store[width](target_begin, column, (sums[k] * scale).cast[dtype](), lanes)

            each[width, False, team, hold](columns, width, write)
        else:
            var end = first
            while end < count and number_at(end) == row:
                end += 1
            var scale = Scalar[accum](1)
            comptime if scale_grad_by_freq:
                scale = 1 / Scalar[accum](end - first)

            @always_inline
            def sum_up(k: Int, column: Int, lanes: Int) {imm}:
                var total = Value(0)
                for i in range(first, end):
                    var place = Int(places.data[unsafe_offset=places.offset(i)])
                    total += grads.load[width](grads.start(place), column, lanes).cast[accum]()
                to.store[width](target_begin, column, (total * scale).cast[dtype](), lanes)

            each[width, False, team, hold](columns, width, sum_up)

    comptime vector = 16 // size_of[dtype]()
    var packed = grads.packed() and to.packed()
    var aligned = grads.aligned(vector) and to.aligned(vector)
    run_rows[target, dtype, 2](program, count, columns, packed, aligned, 0, ctx)


@fieldwise_init
struct PrepareOnGpu[dtype: DType, index: DType, rank: Int, ranks: Bool](
    ImplicitlyCopyable, RegisterPassable, def() -> None
):
    """Sets the output to zero; the first blocks put the numbers in order meanwhile.

    A number goes behind those that are less and those that are equal and came before it: 32 of them, each compared
    with all, by `SLICES` threads.
    """

    var to: Rows[Self.dtype, 2]
    var elements: Int
    var indices: Rows[Self.index, Self.rank]
    var numbers: Rows[DType.int64, 1]
    var places: Rows[DType.int64, 1]
    var count: Int

    def __call__(self) capturing:
        comptime threads = 32 * SLICES
        var lane = Int(thread_idx.x)
        var slice = Int(thread_idx.y)
        var t = slice * 32 + lane
        var block = Int(block_idx.x)
        comptime if Self.ranks:
            var ranking = ceildiv(self.count, 32)
            if block < ranking:
                self.rank_some(block * 32 + lane, slice, t)
                return
            block -= ranking
        comptime vector = 16 // size_of[Self.dtype]()
        var first = (block * CLEARED * threads + t) * vector
        comptime for c in range(CLEARED):
            var at = first + c * threads * vector
            if at + vector <= self.elements:
                self.to.data.unsafe_store[alignment=16](at, SIMD[Self.dtype, vector](0))
            else:
                for i in range(at, self.elements):
                    self.to.data[unsafe_offset=i] = 0

    @always_inline
    def number(self, i: Int) -> Int32:
        """Returns a number, that of no row if it is out of range."""
        var found = Int(self.indices.data[unsafe_offset=self.indices.offset(i)])
        var rows = self.to.sizes[0]
        return Int32(found if found >= 0 and found < rows else rows)

    @always_inline
    def rank_some(self, i: Int, slice: Int, t: Int):
        var tile = unsafe_stack_allocation[TILE, Int32, address_space=.SHARED, alignment=16]()
        var counts = unsafe_stack_allocation[32 * SLICES, Int32, address_space=.SHARED]()
        comptime width = 4
        comptime share = TILE // SLICES
        var own = self.number(min(i, self.count - 1))
        var before = SIMD[DType.int32, width](0)
        for begin in range(0, self.count, TILE):
            barrier()
            for j in range(t, TILE, 32 * SLICES):
                var at = begin + j
                tile[unsafe_offset=j] = self.number(at) if at < self.count else Int32.MAX
            barrier()
            for j in range(slice * share, (slice + 1) * share, width):
                var some = tile.unsafe_load[width=width, alignment=16](j)
                comptime for v in range(width):
                    var limit = own + Int32(begin + j + v < i)
                    before[v] += Int32(some[v] < limit)
        counts[unsafe_offset=t] = before.reduce_add()
        barrier()
        if slice == 0 and i < self.count:
            var at = 0
            comptime for s in range(SLICES):
                at += Int(counts[unsafe_offset=s * 32 + i % 32])
            self.numbers.data[unsafe_offset=self.numbers.offset(at)] = Int64(own)
            self.places.data[unsafe_offset=self.places.offset(at)] = Int64(i)


def prepare[
    index: DType, rank: Int, //, ranks: Bool
](
    output: OutputTensor[rank=2, ...],
    indices: Rows[index, rank],
    numbers: Rows[DType.int64, 1],
    places: Rows[DType.int64, 1],
    count: Int,
    ctx: DeviceContext,
) raises:
    comptime vector = 16 // size_of[output.dtype]()
    var to = rows_of(output, 1, 2)
    var elements = to.columns() * to.count()
    var blocks = ceildiv(elements, CLEARED * 32 * SLICES * vector)
    comptime if ranks:
        blocks += ceildiv(count, 32)
    if blocks > 0:
        ctx.enqueue_function(
            PrepareOnGpu[output.dtype, index, rank, ranks](
                to, elements, indices, numbers, places, count
            ),
            grid_dim=blocks,
            block_dim=(32, SLICES),
        )


def check_numbers(least: Int, most: Int, rows: Int) raises:
    """Refuses numbers that are none."""
    if least < 0 or most >= rows:
        raise Error(
            "[mojo::embedding_dense_backward] indices go from ",
            least,
            " to ",
            most,
            ", and num_weights is ",
            rows,
            ".\nPass a larger num_weights.",
        )


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
        comptime last = grad_output.rank - 1
        var grads = rows_of(grad_output, last, grad_output.rank)
        var numbers = rows_of(sorted, 0, 1)
        var places = rows_of(order, 0, 1)
        var count = sorted.dim_size(0)
        comptime if target == "cpu":
            if count > 0:
                check_numbers(
                    Int(numbers.data[unsafe_offset=0]),
                    Int(numbers.data[unsafe_offset=numbers.offset(count - 1)]),
                    output.dim_size(0),
                )
            sum_by_rows[target, scale_grad_by_freq](
                output, grads, numbers, places, count, Int(padding_idx), ctx
            )
        else:
            prepare[False](output, numbers, numbers, places, count, ctx)
            sum_runs[target, scale_grad_by_freq](
                output, grads, numbers, places, count, Int(padding_idx), ctx
            )


@extensibility.register("embedding_sum_few")
struct EmbeddingSumFew:
    """Puts the numbers in order by comparing each with all others, and sums the rows of each."""

    @staticmethod
    def execute[
        target: StaticString, scale_grad_by_freq: Bool
    ](
        output: OutputTensor[rank=2, ...],
        sorted: OutputTensor[dtype=DType.int64, rank=1, ...],
        order: OutputTensor[dtype=DType.int64, rank=1, ...],
        grad_output: InputTensor[dtype=output.dtype, ...],
        indices: InputTensor,
        padding_idx: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime last = grad_output.rank - 1
        var grads = rows_of(grad_output, last, grad_output.rank)
        var given = rows_of(indices, 0, indices.rank)
        var numbers = rows_of(sorted, 0, 1)
        var places = rows_of(order, 0, 1)
        var count = sorted.dim_size(0)
        comptime if target == "cpu":
            var rows = output.dim_size(0)
            var starts = List[Int](length=rows + 1, fill=0)
            for i in range(count):
                var number = Int(given.data[unsafe_offset=given.offset(i)])
                check_numbers(number, number, rows)
                starts[number + 1] += 1
            for row in range(rows):
                starts[row + 1] += starts[row]
            for i in range(count):
                var number = Int(given.data[unsafe_offset=given.offset(i)])
                numbers.data[unsafe_offset=numbers.offset(starts[number])] = Int64(number)
                places.data[unsafe_offset=places.offset(starts[number])] = Int64(i)
                starts[number] += 1
            sum_by_rows[target, scale_grad_by_freq](
                output, grads, numbers, places, count, Int(padding_idx), ctx
            )
        else:
            prepare[True](output, given, numbers, places, count, ctx)
            sum_runs[target, scale_grad_by_freq](
                output, grads, numbers, places, count, Int(padding_idx), ctx
            )
