"""The k largest or smallest elements along a dimension.

Elements are compared as unsigned keys, and equal ones by their place: the first comes first. nan is the largest. On the
CPU a row's places stand in a heap; on a GPU a block finds the k-th key digit by digit.
"""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu import block_dim, thread_idx
from max.gpu.host import DeviceContext
from max.gpu.sync import barrier
from std.atomic import Atomic
from std.collections import Array
from std.memory import bitcast, unsafe_stack_allocation
from std.sys import simd_width_of, size_of
from std.utils.numerics import isnan

from rows import BLOCK, OnGpu, Rows, rows_of, run_parallel

comptime BLOCK_SIZE = 256
comptime EACH = 4  # results that a thread places at a time
comptime CHUNK = BLOCK_SIZE * EACH
comptime DIGITS = 256

comptime key_of[dtype: DType] = DType.uint8 if size_of[dtype]() == 1 else (
    DType.uint16 if size_of[dtype]()
    == 2 else (DType.uint32 if size_of[dtype]() == 4 else DType.uint64)
)


@always_inline
def key[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width], largest: Bool) -> SIMD[key_of[dtype], width]:
    """Returns numbers in the order of the elements, the other way round for the smallest."""
    comptime unsigned = key_of[dtype]
    comptime top = Scalar[unsigned](1) << Scalar[unsigned](8 * size_of[dtype]() - 1)
    var bits: SIMD[unsigned, width]
    comptime if dtype == .bool:
        bits = x.cast[unsigned]()
    else:
        bits = bitcast[unsigned, width](x)
    comptime if dtype.is_floating_point():
        var negative = (bits & top).ne(0)
        bits = negative.select(~bits, bits | top)
        bits = x.eq(0).select(SIMD[unsigned, width](top), bits)
        bits = isnan(x).select(~SIMD[unsigned, width](0), bits)
    elif dtype.is_signed():
        bits ^= top
    return bits if largest else ~bits


@fieldwise_init
struct Heap[dtype: DType, rank: Int](ImplicitlyCopyable, RegisterPassable):
    """The places of the best elements so far, the worst at the root; they stand in the output."""

    var source: Rows[Self.dtype, Self.rank]
    var begin: Int
    var slots: Rows[DType.int64, Self.rank]
    var slots_begin: Int
    var largest: Bool

    @always_inline
    def slot(self, i: Int) -> Int:
        return Int(self.slots.data[unsafe_offset=self.slots_begin + self.slots.offset(i)])

    @always_inline
    def set(self, i: Int, place: Int):
        self.slots.data[unsafe_offset=self.slots_begin + self.slots.offset(i)] = Int64(place)

    @always_inline
    def key(self, place: Int) -> Scalar[key_of[Self.dtype]]:
        var at = self.begin + self.source.offset(place)
        return key(self.source.data[unsafe_offset=at], self.largest)

    @always_inline
    def is_worse(self, a: Int, b: Int) -> Bool:
        var left = self.key(a)
        var right = self.key(b)
        return left < right or (left == right and a > b)

    def sink(self, start: Int, size: Int, place: Int):
        """Puts a place where it belongs at or below `start`."""
        var at = start
        while True:
            var child = 2 * at + 1
            if child >= size:
                break
            var lower = self.slot(child)
            if child + 1 < size:
                var other = self.slot(child + 1)
                if self.is_worse(other, lower):
                    child += 1
                    lower = other
            if not self.is_worse(lower, place):
                break
            self.set(at, lower)
            at = child
        self.set(at, place)


def on_cpu[
    dtype: DType, rank: Int
](
    source: Rows[dtype, rank],
    values: Rows[dtype, rank],
    slots: Rows[DType.int64, rank],
    row: Int,
    n: Int,
    k: Int,
    largest: Bool,
):
    """Writes the k best of one row, best first."""
    comptime width = simd_width_of[dtype]()
    var heap = Heap[dtype, rank](source, source.start(row), slots, slots.start(row), largest)
    for i in range(k):
        heap.set(i, i)
    for i in range(k // 2 - 1, -1, -1):
        heap.sink(i, k, heap.slot(i))
    var worst = heap.key(heap.slot(0))

    def offer(place: Int) {mut worst, imm}:
        if heap.key(place) > worst:
            heap.sink(0, k, place)
            worst = heap.key(heap.slot(0))

    var at = k
    if source.packed():
        while at + width <= n:
            var keys = key(source.load[width](heap.begin, at), largest)
            if keys.gt(SIMD[key_of[dtype], width](worst)).reduce_or():
                for lane in range(width):
                    offer(at + lane)
            at += width
    while at < n:
        offer(at)
        at += 1
    for end in range(k - 1, 0, -1):
        var place = heap.slot(end)
        heap.set(end, heap.slot(0))
        heap.sink(0, end, place)
    var to = values.start(row)
    for i in range(k):
        values.data[unsafe_offset=to + values.offset(i)] = source.data[
            unsafe_offset=heap.begin + source.offset(heap.slot(i))
        ]


@always_inline
def on_gpu[
    dtype: DType, rank: Int
](
    source: Rows[dtype, rank],
    values: Rows[dtype, rank],
    slots: Rows[DType.int64, rank],
    row: Int,
    n: Int,
    k: Int,
    largest: Bool,
):
    """Writes the k best of one row, best first, CHUNK at a time."""
    comptime Key = Scalar[key_of[dtype]]
    comptime bytes = size_of[dtype]()
    var t = Int(thread_idx.x)
    var begin = source.start(row)
    var bins = unsafe_stack_allocation[DIGITS, UInt32, address_space=.SHARED]()
    var found = unsafe_stack_allocation[3, UInt32, address_space=.SHARED]()
    var chosen_keys = unsafe_stack_allocation[CHUNK, Key, address_space=.SHARED]()
    var chosen = unsafe_stack_allocation[CHUNK, UInt32, address_space=.SHARED]()
    var bound = Key(0)  # what was written already is as good as this key, up to this place
    var bound_place = n
    var done = 0

    @always_inline
    def key_at(place: Int) {imm} -> Key:
        return key(source.data[unsafe_offset=begin + source.offset(place)], largest)

    @always_inline
    def is_left(its: Key, place: Int) {imm} -> Bool:
        return done == 0 or its < bound or (its == bound and place > bound_place)

    while done < k:
        var take = min(k - done, CHUNK)
        var need = take
        var ties = 0
        var digits = Key(0)
        comptime for p in range(bytes):  # the take-th key among what is left
            comptime shift = Key(8 * (bytes - 1 - p))
            bins[unsafe_offset=t] = 0
            barrier()
            for place in range(t, n, BLOCK_SIZE):
                var its = key_at(place)
                var fits = is_left(its, place)
                comptime if p > 0:
                    fits = fits and ((its ^ digits) >> (shift + 8)) == 0
                if fits:
                    var digit = Int((its >> shift) & 255)
                    _ = Atomic.fetch_add(bins.unsafe_offset(digit), 1)
            barrier()
            var above = 0
            for digit in range(t + 1, DIGITS):
                above += Int(bins[unsafe_offset=digit])
            var here = Int(bins[unsafe_offset=t])
            if above < need and above + here >= need:
                found[unsafe_offset=0] = UInt32(t)
                found[unsafe_offset=1] = UInt32(above)
                found[unsafe_offset=2] = UInt32(here)
            barrier()
            digits |= Key(found[unsafe_offset=0]) << shift
            need -= Int(found[unsafe_offset=1])
            ties = Int(found[unsafe_offset=2])
        var last = n  # of the elements with that key, those up to here
        if need < ties:
            last = 0
            comptime for p in range(4):
                comptime shift = 8 * (3 - p)
                bins[unsafe_offset=t] = 0
                barrier()
                for place in range(t, n, BLOCK_SIZE):
                    var its = key_at(place)
                    var fits = its == digits and is_left(its, place)
                    comptime if p > 0:
                        fits = fits and ((place ^ last) >> (shift + 8)) == 0
                    if fits:
                        var digit = (place >> shift) & 255
                        _ = Atomic.fetch_add(bins.unsafe_offset(digit), 1)
                barrier()
                var below = 0
                for digit in range(t):
                    below += Int(bins[unsafe_offset=digit])
                if below < need and below + Int(bins[unsafe_offset=t]) >= need:
                    found[unsafe_offset=0] = UInt32(t)
                    found[unsafe_offset=1] = UInt32(below)
                barrier()
                last |= Int(found[unsafe_offset=0]) << shift
                need -= Int(found[unsafe_offset=1])
        barrier()
        if t == 0:
            found[unsafe_offset=0] = 0
        barrier()
        for place in range(t, n, BLOCK_SIZE):
            var its = key_at(place)
            if is_left(its, place) and (its > digits or (its == digits and place <= last)):
                var slot = Int(Atomic.fetch_add(found, 1))
                chosen_keys[unsafe_offset=slot] = its
                chosen[unsafe_offset=slot] = UInt32(place)
        barrier()
        var to = values.start(row)
        var slots_to = slots.start(row)
        for i in range(t, take, BLOCK_SIZE):  # the order in which they came does not matter
            var its = chosen_keys[unsafe_offset=i]
            var place = chosen[unsafe_offset=i]
            var order = done
            for j in range(take):
                var other = chosen_keys[unsafe_offset=j]
                order += Int(
                    other > its or (other == its and chosen[unsafe_offset=j] < place)
                )
            slots.data[unsafe_offset=slots_to + slots.offset(order)] = Int64(place)
            values.data[unsafe_offset=to + values.offset(order)] = source.data[
                unsafe_offset=begin + source.offset(Int(place))
            ]
        bound = digits
        bound_place = last
        done += take
        barrier()


@extensibility.register("topk")
struct TopK:
    """The k largest or smallest, best first, and their places."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        values: OutputTensor,
        indices: OutputTensor[dtype=DType.int64, rank=values.rank, ...],
        input: InputTensor[dtype=values.dtype, rank=values.rank, ...],
        k: Int64,
        dim: Int64,
        largest: Bool,
        ctx: DeviceContext,
    ) raises:
        var axis = Int(dim) + values.rank if dim < 0 else Int(dim)
        var source = rows_of(input, axis, axis + 1)
        var best = rows_of(values, axis, axis + 1)
        var slots = rows_of(indices, axis, axis + 1)
        var n = source.columns()
        var count = Int(k)
        var rows = best.count()
        if count == 0 or rows == 0:
            return
        if n > 1 << 31:
            raise Error(
                "[mojo::topk] the dimension has ", n, " elements.\nSplit it: 2^31 are the most."
            )
        comptime if target == "cpu":

            def part(begin: Int, end: Int) {imm}:
                for row in range(begin, end):
                    on_cpu(source, best, slots, row, n, count, largest)

            run_parallel(part, rows, rows * n, ctx)
        else:

            @always_inline
            def program[
                width: Int, across: Bool, team: Int, hold: Int
            ](row: Int) {var source, var best, var slots, var n, var count, var largest}:
                on_gpu(source, best, slots, row, n, count, largest)

            ctx.enqueue_function(
                OnGpu[1, False, BLOCK, 0](program, rows), grid_dim=rows, block_dim=BLOCK_SIZE
            )


@extensibility.register("topk_backward")
struct TopKBackward:
    """Puts each gradient where its value came from, and zero elsewhere."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        grad_input: OutputTensor,
        grad_output: InputTensor[dtype=grad_input.dtype, rank=grad_input.rank, ...],
        indices: InputTensor[dtype=DType.int64, rank=grad_input.rank, ...],
        dim: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime dtype = grad_input.dtype
        var axis = Int(dim) + grad_input.rank if dim < 0 else Int(dim)
        var grads = rows_of(grad_output, axis, axis + 1)
        var slots = rows_of(indices, axis, axis + 1)
        var to = rows_of(grad_input, axis, axis + 1)
        var n = to.columns()
        var k = slots.columns()
        var rows = to.count()
        if rows == 0:
            return

        @always_inline
        def program[
            width: Int, across: Bool, team: Int, hold: Int
        ](row: Int) {var grads, var slots, var to, var n, var k}:
            var first = 0
            var step = 1
            comptime if team == BLOCK:
                first = Int(thread_idx.x)
                step = Int(block_dim.x)
            var begin = to.start(row)
            for i in range(first, n, step):
                to.data[unsafe_offset=begin + to.offset(i)] = 0
            comptime if team == BLOCK:
                barrier()
            var grads_begin = grads.start(row)
            var slots_begin = slots.start(row)
            for i in range(first, k, step):
                var place = Int(slots.data[unsafe_offset=slots_begin + slots.offset(i)])
                to.data[unsafe_offset=begin + to.offset(place)] = grads.data[
                    unsafe_offset=grads_begin + grads.offset(i)
                ]

        comptime if target == "cpu":

            def part(begin: Int, end: Int) {imm}:
                for row in range(begin, end):
                    program[1, False, 0, 0](row)

            run_parallel(part, rows, rows * n, ctx)
        else:
            ctx.enqueue_function(
                OnGpu[1, False, BLOCK, 0](program, rows), grid_dim=rows, block_dim=BLOCK_SIZE
            )
