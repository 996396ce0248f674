"""The k largest or smallest elements along a dimension.

Elements are compared as unsigned keys, and equal ones by their place: the first comes first. nan is the largest. On the
CPU a row's places stand in a heap. On a GPU a warp or a block has a row, and nothing but the results is written.
"""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu import MAX_THREADS_PER_BLOCK_METADATA, block_dim, block_idx, thread_idx
from max.gpu.host import DeviceContext
from max.gpu.primitives import warp
from max.gpu.sync import barrier
from std.atomic import Atomic
from std.collections import Array
from std.math import ceildiv
from std.memory import Pointer, unsafe_stack_allocation
from std.sys import simd_width_of, size_of
from std.utils.static_tuple import StaticTuple

from keys import key, key_of
from rows import BLOCK, WARPS, OnGpu, Rows, rows_of, run_parallel

comptime BLOCK_SIZE = 256
comptime CHUNK = 1024  # elements that are put in order at a time
comptime DIGITS = 256
comptime LONG = 16384  # elements that are worth a block of 1024 threads
comptime FEW = 264  # rows that do not fill a GPU with less


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
def choose(
    bins: Pointer[UInt32, MutUntrackedOrigin, address_space=.SHARED],
    found: Pointer[UInt32, MutUntrackedOrigin, address_space=.SHARED],
    need: Int,
    from_top: Bool,
):
    """Finds in which bin the need-th element is: the bin, how many come before it, how many it has.

    For one warp: a lane has neighbouring bins, in the order in which elements are counted.
    """
    comptime each = DIGITS // 32
    var lane = Int(thread_idx.x)
    var counts = Array[Int, each](fill=0)
    var sum = 0
    comptime for i in range(each):
        var digit = lane * each + i
        counts[i] = Int(bins[unsafe_offset=DIGITS - 1 - digit if from_top else digit])
        sum += counts[i]
    var before = Int32(sum)
    comptime for i in range(5):
        var other = warp.shuffle_up(before, UInt32(1 << i))
        if lane >= 1 << i:
            before += other
    var passed = Int(before) - sum
    comptime for i in range(each):
        if passed < need and passed + counts[i] >= need:
            var digit = lane * each + i
            found[unsafe_offset=0] = UInt32(DIGITS - 1 - digit if from_top else digit)
            found[unsafe_offset=1] = UInt32(passed)
            found[unsafe_offset=2] = UInt32(counts[i])
        passed += counts[i]


@fieldwise_init
struct BlockOnGpu[dtype: DType, rank: Int, threads: Int, vector: Int](
    ImplicitlyCopyable, RegisterPassable, def() -> None
):
    """Writes the k best of one row, best first.

    Each thread keeps the best key of its part of the row. The k-th of these bounds the k-th of the row from below, and
    hardly more than k elements reach it: they are gathered and put in order. If it is many more, as with equal
    elements, or k is large, the k-th key is found digit by digit.
    """

    comptime Key = Scalar[key_of[Self.dtype]]
    comptime Keys = Pointer[Self.Key, MutUntrackedOrigin, address_space=.SHARED]
    comptime Places = Pointer[UInt32, MutUntrackedOrigin, address_space=.SHARED]
    comptime bytes = size_of[Self.dtype]()

    var source: Rows[Self.dtype, Self.rank]
    var values: Rows[Self.dtype, Self.rank]
    var slots: Rows[DType.int64, Self.rank]
    var n: Int
    var k: Int
    var largest: Bool

    @__llvm_metadata(MAX_THREADS_PER_BLOCK_METADATA=StaticTuple[Int32, 1](Int32(Self.threads)))
    def __call__(self) capturing:
        var row = Int(block_idx.x)
        var bins = unsafe_stack_allocation[DIGITS, UInt32, address_space=.SHARED]()
        var found = unsafe_stack_allocation[4, UInt32, address_space=.SHARED]()
        var chosen_keys = unsafe_stack_allocation[CHUNK, Self.Key, address_space=.SHARED]()
        var chosen = unsafe_stack_allocation[CHUNK, UInt32, address_space=.SHARED]()
        var count = 0
        if self.k <= Self.threads // 2:
            count = self.gather(self.source.start(row), bins, found, chosen_keys, chosen)
        if count > 0:
            self.place(row, 0, self.k, count, chosen_keys, chosen)
        else:
            self.by_digits(row, bins, found, chosen_keys, chosen)

    @always_inline
    def key_at(self, begin: Int, place: Int) -> Self.Key:
        return key(self.source.data[unsafe_offset=begin + self.source.offset(place)], self.largest)

    @always_inline
    def gather(
        self,
        begin: Int,
        bins: Self.Places,
        found: Self.Places,
        keys: Self.Keys,
        places: Self.Places,
    ) -> Int:
        """Puts all that may be among the k best in shared memory; returns how many, 0 if there is no room."""
        comptime step = Self.threads * Self.vector
        comptime unroll = 4
        var t = Int(thread_idx.x)
        var best = Self.Key(0)
        var at = t * Self.vector
        while at + (unroll - 1) * step + Self.vector <= self.n:
            var some = Array[SIMD[Self.dtype, Self.vector], unroll](fill=0)
            comptime for u in range(unroll):
                some[u] = self.source.load[Self.vector](begin, at + u * step)
            comptime for u in range(unroll):
                best = max(best, key(some[u], self.largest).reduce_max())
            at += unroll * step
        while at < self.n:
            comptime if Self.vector > 1:  # whole vectors: rows are aligned
                best = max(
                    best,
                    key(self.source.load[Self.vector](begin, at), self.largest).reduce_max(),
                )
            else:
                best = max(best, self.key_at(begin, at))
            at += step

        var need = self.k
        var bound = Self.Key(0)
        comptime for p in range(Self.bytes):
            comptime shift = Self.Key(8 * (Self.bytes - 1 - p))
            if t < DIGITS:
                bins[unsafe_offset=t] = 0
            if t == 0:
                found[unsafe_offset=3] = 0
            barrier()
            var fits = True
            comptime if p > 0:
                fits = ((best ^ bound) >> (shift + 8)) == 0
            if fits:
                _ = Atomic.fetch_add(bins.unsafe_offset(Int((best >> shift) & 255)), 1)
            barrier()
            if t < 32:
                choose(bins, found, need, True)
            barrier()
            bound |= Self.Key(found[unsafe_offset=0]) << shift
            need -= Int(found[unsafe_offset=1])

        @always_inline
        def add(its: Self.Key, place: Int) {imm} -> Bool:
            if its < bound:
                return True
            var slot = Int(Atomic.fetch_add(found.unsafe_offset(3), 1))
            if slot >= CHUNK:
                return False
            keys[unsafe_offset=slot] = its
            places[unsafe_offset=slot] = UInt32(place)
            return True

        var room = True
        at = t * Self.vector
        while room and at + (unroll - 1) * step + Self.vector <= self.n:
            var some = Array[SIMD[key_of[Self.dtype], Self.vector], unroll](fill=0)
            comptime for u in range(unroll):
                some[u] = key(self.source.load[Self.vector](begin, at + u * step), self.largest)
            comptime for u in range(unroll):
                if some[u].reduce_max() >= bound:
                    comptime for v in range(Self.vector):
                        room = add(some[u][v], at + u * step + v) and room
            at += unroll * step
        while room and at < self.n:
            comptime if Self.vector > 1:
                var some = key(self.source.load[Self.vector](begin, at), self.largest)
                if some.reduce_max() >= bound:
                    comptime for v in range(Self.vector):
                        room = add(some[v], at + v) and room
            else:
                room = add(self.key_at(begin, at), at)
            at += step
        barrier()
        var count = Int(found[unsafe_offset=3])
        return count if count <= CHUNK else 0

    @always_inline
    def place(
        self, row: Int, done: Int, take: Int, count: Int, keys: Self.Keys, places: Self.Places
    ):
        """Writes the first of what was gathered, in whatever order, behind those that are done."""
        var begin = self.source.start(row)
        var to = self.values.start(row)
        var slots_to = self.slots.start(row)
        for i in range(Int(thread_idx.x), count, Self.threads):
            var its = keys[unsafe_offset=i]
            var place = places[unsafe_offset=i]
            var order = 0
            for j in range(count):
                var other = keys[unsafe_offset=j]
                order += Int(other > its or (other == its and places[unsafe_offset=j] < place))
            if order < take:
                order += done
                self.slots.data[unsafe_offset=slots_to + self.slots.offset(order)] = Int64(place)
                self.values.data[unsafe_offset=to + self.values.offset(order)] = self.source.data[
                    unsafe_offset=begin + self.source.offset(Int(place))
                ]

    @no_inline
    def by_digits(
        self, row: Int, bins: Self.Places, found: Self.Places, keys: Self.Keys, places: Self.Places
    ):
        """Writes the k best, CHUNK at a time."""
        var t = Int(thread_idx.x)
        var begin = self.source.start(row)
        var bound = Self.Key(0)  # what was written already is as good as this key, up to this place
        var bound_place = self.n
        var done = 0

        @always_inline
        def is_left(its: Self.Key, place: Int) {imm} -> Bool:
            return done == 0 or its < bound or (its == bound and place > bound_place)

        while done < self.k:
            var take = min(self.k - done, CHUNK)
            var need = take
            var ties = 0
            var digits = Self.Key(0)
            comptime for p in range(Self.bytes):  # the take-th key among what is left
                comptime shift = Self.Key(8 * (Self.bytes - 1 - p))
                barrier()
                if t < DIGITS:
                    bins[unsafe_offset=t] = 0
                barrier()
                for place in range(t, self.n, Self.threads):
                    var its = self.key_at(begin, place)
                    var fits = is_left(its, place)
                    comptime if p > 0:
                        fits = fits and ((its ^ digits) >> (shift + 8)) == 0
                    if fits:
                        _ = Atomic.fetch_add(bins.unsafe_offset(Int((its >> shift) & 255)), 1)
                barrier()
                if t < 32:
                    choose(bins, found, need, True)
                barrier()
                digits |= Self.Key(found[unsafe_offset=0]) << shift
                need -= Int(found[unsafe_offset=1])
                ties = Int(found[unsafe_offset=2])
            var last = self.n  # of the elements with that key, those up to here
            if need < ties:
                last = 0
                comptime for p in range(4):
                    comptime shift = 8 * (3 - p)
                    barrier()
                    if t < DIGITS:
                        bins[unsafe_offset=t] = 0
                    barrier()
                    for place in range(t, self.n, Self.threads):
                        var its = self.key_at(begin, place)
                        var fits = its == digits and is_left(its, place)
                        comptime if p > 0:
                            fits = fits and ((place ^ last) >> (shift + 8)) == 0
                        if fits:
                            _ = Atomic.fetch_add(bins.unsafe_offset((place >> shift) & 255), 1)
                    barrier()
                    if t < 32:
                        choose(bins, found, need, False)
                    barrier()
                    last |= Int(found[unsafe_offset=0]) << shift
                    need -= Int(found[unsafe_offset=1])
            if t == 0:
                found[unsafe_offset=3] = 0
            barrier()
            for place in range(t, self.n, Self.threads):
                var its = self.key_at(begin, place)
                if is_left(its, place) and (its > digits or (its == digits and place <= last)):
                    var slot = Int(Atomic.fetch_add(found.unsafe_offset(3), 1))
                    keys[unsafe_offset=slot] = its
                    places[unsafe_offset=slot] = UInt32(place)
            barrier()
            self.place(row, done, take, take, keys, places)
            bound = digits
            bound_place = last
            done += take


@fieldwise_init
struct WarpOnGpu[dtype: DType, rank: Int, each: Int](
    ImplicitlyCopyable, RegisterPassable, def() -> None
):
    """Writes the k best of a short row, which a warp has in registers: each element counts those before it."""

    comptime Wide = Scalar[DType.uint64 if size_of[Self.dtype]() == 8 else DType.uint32]

    var source: Rows[Self.dtype, Self.rank]
    var values: Rows[Self.dtype, Self.rank]
    var slots: Rows[DType.int64, Self.rank]
    var rows: Int
    var n: Int
    var k: Int
    var largest: Bool

    def __call__(self) capturing:
        var row = Int(block_idx.x) * WARPS + Int(thread_idx.y)
        if row >= self.rows:
            return
        var lane = Int(thread_idx.x)
        var begin = self.source.start(row)
        var elements = Array[Scalar[Self.dtype], Self.each](fill=0)
        var keys = Array[Self.Wide, Self.each](fill=0)
        var before = Array[Int32, Self.each](fill=0)
        comptime for e in range(Self.each):
            if e * 32 + lane < self.n:
                elements[e] = self.source.data[
                    unsafe_offset=begin + self.source.offset(e * 32 + lane)
                ]
                keys[e] = key(elements[e], self.largest).cast[Self.Wide.dtype]()
        comptime for other in range(Self.each):
            for j in range(min(self.n - other * 32, 32)):
                var its = warp.shuffle_idx(keys[other], UInt32(j))
                comptime for e in range(Self.each):
                    comptime if e > other:
                        before[e] += Int32(its >= keys[e])
                    elif e < other:
                        before[e] += Int32(its > keys[e])
                    else:
                        before[e] += Int32(its > keys[e] or (its == keys[e] and j < lane))
        var to = self.values.start(row)
        var slots_to = self.slots.start(row)
        comptime for e in range(Self.each):
            var order = Int(before[e])
            if e * 32 + lane < self.n and order < self.k:
                self.slots.data[unsafe_offset=slots_to + self.slots.offset(order)] = Int64(
                    e * 32 + lane
                )
                self.values.data[unsafe_offset=to + self.values.offset(order)] = elements[e]


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
        largest: Int64,
        ctx: DeviceContext,
    ) raises:
        var is_largest = largest != 0
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
                    on_cpu(source, best, slots, row, n, count, is_largest)

            run_parallel(part, rows, rows * n, ctx)
        else:

            comptime vector = 16 // size_of[values.dtype]()

            @always_inline
            def by_warps[each: Int]() raises {imm}:
                ctx.enqueue_function(
                    WarpOnGpu[values.dtype, values.rank, each](
                        source, best, slots, rows, n, count, is_largest
                    ),
                    grid_dim=ceildiv(rows, WARPS),
                    block_dim=(32, WARPS),
                )

            @always_inline
            def by_blocks[threads: Int, width: Int]() raises {imm}:
                ctx.enqueue_function(
                    BlockOnGpu[values.dtype, values.rank, threads, width](
                        source, best, slots, n, count, is_largest
                    ),
                    grid_dim=rows,
                    block_dim=threads,
                )

            # a thread without a vector would have no best: its key is the least
            var wide = source.packed() and source.aligned(vector) and n % vector == 0
            if n <= 32:
                by_warps[1]()
            elif n <= 64:
                by_warps[2]()
            elif n <= 128:
                by_warps[4]()
            elif n >= 1024 * vector and (n >= LONG or rows <= FEW):
                if wide:
                    by_blocks[1024, vector]()
                else:
                    by_blocks[1024, 1]()
            elif wide and n >= 256 * vector:
                by_blocks[256, vector]()
            else:
                by_blocks[256, 1]()


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
