"""Rows in order, stable: elements are compared as unsigned keys, equal ones by their place; nan is the largest.

On the CPU a row is sorted digit by digit; a long one, if there are few, in parts which are then merged. On a GPU blocks
sort tiles in shared memory, and launches merge twice as much each time.
"""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu import block_dim, block_idx, thread_idx
from max.gpu.host import DeviceContext
from max.gpu.sync import barrier
from max.runtime.asyncrt import parallelism_level
from std.math import ceildiv
from std.memory import Pointer, unsafe_stack_allocation
from std.sys import size_of

from aten_lines import Scratch
from keys import key, key_of
from rows import Rows, rows_of, run_parallel

comptime FEW = 32  # elements that are inserted one by one
comptime LONG = 65536  # elements of a row that are worth several CPU threads
comptime PIECE = 8192  # elements that a CPU thread merges at a time
comptime TILE = 1024  # elements that a block sorts
comptime EACH = 8  # elements that a GPU thread merges
comptime THREADS = 256


@fieldwise_init
struct Pairs[dtype: DType](ImplicitlyCopyable, RegisterPassable):
    """Keys, and the places that they come from."""

    var keys: Pointer[Scalar[Self.dtype], MutUntrackedOrigin]
    var places: Pointer[UInt32, MutUntrackedOrigin]

    @always_inline
    def set(self, at: Int, other: Self, its: Int):
        self.keys[unsafe_offset=at] = other.keys[unsafe_offset=its]
        self.places[unsafe_offset=at] = other.places[unsafe_offset=its]

    @always_inline
    def behind(self, count: Int) -> Self:
        """Returns the pairs from one on."""
        return {self.keys.unsafe_offset(count), self.places.unsafe_offset(count)}


def insertion_sort[dtype: DType](pairs: Pairs[dtype], n: Int):
    for i in range(1, n):
        var its = pairs.keys[unsafe_offset=i]
        var place = pairs.places[unsafe_offset=i]
        var at = i
        while at > 0 and pairs.keys[unsafe_offset=at - 1] > its:
            pairs.set(at, pairs, at - 1)
            at -= 1
        pairs.keys[unsafe_offset=at] = its
        pairs.places[unsafe_offset=at] = place


def radix_sort[dtype: DType](pairs: Pairs[dtype], spare: Pairs[dtype], n: Int):
    """Sorts pairs, least digit first; both memories are used."""
    comptime digits = size_of[dtype]()
    if n <= FEW:
        insertion_sort(pairs, n)
        return
    var counts = List[UInt32](length=digits * 256, fill=0)
    for i in range(n):
        var its = pairs.keys[unsafe_offset=i]
        comptime for d in range(digits):
            counts[d * 256 + Int((its >> Scalar[dtype](8 * d)) & 255)] += 1
    var source = pairs
    var to = spare
    var swapped = False
    for d in range(digits):
        var bins = counts.unsafe_ptr().unsafe_offset(d * 256)
        var shift = Scalar[dtype](8 * d)
        var first = Int((source.keys[] >> shift) & 255)
        if Int(bins[unsafe_offset=first]) == n:
            continue  # all have this digit
        var total = UInt32(0)
        for bin in range(256):
            var here = bins[unsafe_offset=bin]
            bins[unsafe_offset=bin] = total
            total += here
        for i in range(n):
            var bin = Int((source.keys[unsafe_offset=i] >> shift) & 255)
            to.set(Int(bins[unsafe_offset=bin]), source, i)
            bins[unsafe_offset=bin] += 1
        swap(source, to)
        swapped = not swapped
    if swapped:
        for i in range(n):
            pairs.set(i, spare, i)


@always_inline
def merge[
    dtype: DType, //
](to: Pairs[dtype], source: Pairs[dtype], first: Int, end: Int, width: Int, n: Int):
    """Merges neighbouring sorted runs of a width; writes only the results from `first` to `end`."""
    var begin = first
    while begin < end:
        var a = begin // (2 * width) * (2 * width)
        var b = min(a + width, n)
        var b_end = min(b + width, n)
        var stop = min(end, b_end)
        # how many of the results before `begin` come from the first run
        var behind = begin - a
        var low = max(0, behind - (b_end - b))
        var high = min(behind, b - a)
        while low < high:
            var middle = (low + high) // 2
            var other = source.keys[unsafe_offset=b + behind - 1 - middle]
            if source.keys[unsafe_offset=a + middle] <= other:
                low = middle + 1
            else:
                high = middle
        var i = a + low
        var j = b + behind - low
        for at in range(begin, stop):
            var take = j >= b_end
            if not take and i < b:
                take = source.keys[unsafe_offset=i] <= source.keys[unsafe_offset=j]
            if take:
                to.set(at, source, i)
                i += 1
            else:
                to.set(at, source, j)
                j += 1
        begin = stop


@fieldwise_init
struct Sorter[dtype: DType, rank: Int](ImplicitlyCopyable, RegisterPassable):
    """The rows of a tensor, and where they go."""

    var source: Rows[Self.dtype, Self.rank]
    var values: Rows[Self.dtype, Self.rank]
    var indices: Rows[DType.int64, Self.rank]
    var n: Int
    var ascending: Bool

    @always_inline
    def load(self, row: Int, pairs: Pairs[key_of[Self.dtype]], first: Int, end: Int):
        """Writes the keys and places of some elements of a row."""
        var begin = self.source.start(row)
        for i in range(first, end):
            var its = self.source.data[unsafe_offset=begin + self.source.offset(i)]
            pairs.keys[unsafe_offset=i] = key(its, self.ascending)
            pairs.places[unsafe_offset=i] = UInt32(i)

    @always_inline
    def store(self, row: Int, pairs: Pairs[key_of[Self.dtype]], first: Int, end: Int):
        """Writes some results of a row."""
        var begin = self.source.start(row)
        var to = self.values.start(row)
        var slots = self.indices.start(row)
        for i in range(first, end):
            var place = Int(pairs.places[unsafe_offset=i])
            self.values.data[unsafe_offset=to + self.values.offset(i)] = self.source.data[
                unsafe_offset=begin + self.source.offset(place)
            ]
            self.indices.data[unsafe_offset=slots + self.indices.offset(i)] = Int64(place)


struct Memory[target: StaticString, dtype: DType]:
    """Two times `count` pairs."""

    var count: Int
    var keys: Scratch[Self.target, Self.dtype]
    var places: Scratch[Self.target, DType.uint32]

    def __init__(out self, count: Int, ctx: DeviceContext) raises:
        self.count = count
        self.keys = Scratch[Self.target, Self.dtype](2 * count, ctx)
        self.places = Scratch[Self.target, DType.uint32](2 * count, ctx)

    def pairs(mut self) -> Pairs[Self.dtype]:
        """Returns the first half; the memory has to be kept alive by hand."""
        return {self.keys.data(), self.places.data()}

    def spare(mut self) -> Pairs[Self.dtype]:
        """Returns the second half."""
        return self.pairs().behind(self.count)


def sort_together[
    dtype: DType, rank: Int, //
](sorter: Sorter[dtype, rank], row: Int, parts: Int, ctx: DeviceContext) raises:
    """Sorts one row on all CPU threads."""
    var n = sorter.n
    var memory = Memory["cpu", key_of[dtype]](n, ctx)
    var pairs = memory.pairs()
    var spare = memory.spare()
    var width = ceildiv(n, parts)

    def own_part(begin: Int, end: Int) {imm}:
        for part in range(begin, end):
            var first = part * width
            var last = min(first + width, n)
            if first < last:
                sorter.load(row, pairs, first, last)
                radix_sort(pairs.behind(first), spare.behind(first), last - first)

    run_parallel(own_part, parts, n, ctx)
    var pieces = ceildiv(n, PIECE)
    while width < n:

        def piece(begin: Int, end: Int) {imm}:
            merge(spare, pairs, begin * PIECE, min(end * PIECE, n), width, n)

        run_parallel(piece, pieces, n, ctx)
        swap(pairs, spare)
        width *= 2

    def results(begin: Int, end: Int) {imm}:
        sorter.store(row, pairs, begin * PIECE, min(end * PIECE, n))

    run_parallel(results, pieces, n, ctx)
    _ = memory^


@fieldwise_init
struct SortTiles[dtype: DType, rank: Int](ImplicitlyCopyable, RegisterPassable, def() -> None):
    """A block sorts TILE elements of a row by comparing and exchanging, in shared memory."""

    var sorter: Sorter[Self.dtype, Self.rank]
    var to: Pairs[key_of[Self.dtype]]
    var tiles: Int

    def __call__(self) capturing:
        comptime Key = Scalar[key_of[Self.dtype]]
        var keys = unsafe_stack_allocation[TILE, Key, address_space=.SHARED]()
        var places = unsafe_stack_allocation[TILE, UInt32, address_space=.SHARED]()
        var row = Int(block_idx.x) // self.tiles
        var first = (Int(block_idx.x) - row * self.tiles) * TILE
        var count = min(TILE, self.sorter.n - first)
        var begin = self.sorter.source.start(row)
        for i in range(Int(thread_idx.x), TILE, THREADS):
            var its = ~Key(0)
            if i < count:
                var at = begin + self.sorter.source.offset(first + i)
                its = key(self.sorter.source.data[unsafe_offset=at], self.sorter.ascending)
            keys[unsafe_offset=i] = its
            places[unsafe_offset=i] = UInt32(first + i)
        barrier()
        var size = 2
        while size <= TILE:
            var step = size // 2
            while step > 0:
                for pair in range(Int(thread_idx.x), TILE // 2, THREADS):
                    var i = 2 * pair - (pair & (step - 1))
                    var j = i + step
                    var a = keys[unsafe_offset=i]
                    var b = keys[unsafe_offset=j]
                    var a_place = places[unsafe_offset=i]
                    var b_place = places[unsafe_offset=j]
                    var behind = a > b or (a == b and a_place > b_place)
                    if behind == ((i & size) == 0):
                        keys[unsafe_offset=i] = b
                        keys[unsafe_offset=j] = a
                        places[unsafe_offset=i] = b_place
                        places[unsafe_offset=j] = a_place
                barrier()
                step //= 2
            size *= 2
        var own = self.to.behind(row * self.sorter.n + first)
        for i in range(Int(thread_idx.x), count, THREADS):
            own.keys[unsafe_offset=i] = keys[unsafe_offset=i]
            own.places[unsafe_offset=i] = places[unsafe_offset=i]


@fieldwise_init
struct MergeRuns[dtype: DType](ImplicitlyCopyable, RegisterPassable, def() -> None):
    """A thread writes EACH results of a merge."""

    var to: Pairs[Self.dtype]
    var source: Pairs[Self.dtype]
    var width: Int
    var n: Int
    var rows: Int

    def __call__(self) capturing:
        var number = Int(block_idx.x) * Int(block_dim.x) + Int(thread_idx.x)
        var groups = ceildiv(self.n, EACH)
        var row = number // groups
        if row < self.rows:
            var first = (number - row * groups) * EACH
            var begin = row * self.n
            merge(
                self.to.behind(begin),
                self.source.behind(begin),
                first,
                min(first + EACH, self.n),
                self.width,
                self.n,
            )


@fieldwise_init
struct StoreRows[dtype: DType, rank: Int](ImplicitlyCopyable, RegisterPassable, def() -> None):
    """A thread writes one result."""

    var sorter: Sorter[Self.dtype, Self.rank]
    var source: Pairs[key_of[Self.dtype]]
    var rows: Int

    def __call__(self) capturing:
        var number = Int(block_idx.x) * Int(block_dim.x) + Int(thread_idx.x)
        var row = number // self.sorter.n
        if row < self.rows:
            var i = number - row * self.sorter.n
            self.sorter.store(row, self.source.behind(row * self.sorter.n), i, i + 1)


@extensibility.register("aten_sort")
struct Sort:
    """The elements of each row in order, and their places."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        values: OutputTensor,
        indices: OutputTensor[dtype=DType.int64, rank=values.rank, ...],
        input: InputTensor[dtype=values.dtype, rank=values.rank, ...],
        dim: Int64,
        descending: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime dtype = values.dtype
        var axis = Int(dim) + values.rank if dim < 0 else Int(dim)
        var source = rows_of(input, axis, axis + 1)
        var n = source.columns()
        var rows = source.count()
        var sorter = Sorter(
            source,
            rows_of(values, axis, axis + 1),
            rows_of(indices, axis, axis + 1),
            n,
            descending == 0,
        )
        if n == 0 or rows == 0:
            return
        if n >= 1 << 32:
            raise Error("the dimension has ", n, " elements.\nSplit it: 2^32 - 1 are the most.")
        comptime if target == "cpu":
            var threads = parallelism_level(None)
            if rows < threads and n >= LONG:
                for row in range(rows):
                    sort_together(sorter, row, threads, ctx)
                return

            def part(begin: Int, end: Int) {imm}:
                var keys = List[Scalar[key_of[dtype]]](unsafe_uninit_length=2 * n)
                var places = List[UInt32](unsafe_uninit_length=2 * n)
                var pairs = Pairs[key_of[dtype]](
                    {unsafe_from_address = Int(keys.unsafe_ptr())},
                    {unsafe_from_address = Int(places.unsafe_ptr())},
                )
                for row in range(begin, end):
                    sorter.load(row, pairs, 0, n)
                    radix_sort(pairs, pairs.behind(n), n)
                    sorter.store(row, pairs, 0, n)
                _ = keys^
                _ = places^

            run_parallel(part, rows, 8 * rows * n, ctx)
        else:
            var memory = Memory[target, key_of[dtype]](rows * n, ctx)
            var pairs = memory.pairs()
            var spare = memory.spare()
            var tiles = ceildiv(n, TILE)
            ctx.enqueue_function(
                SortTiles(sorter, pairs, tiles), grid_dim=rows * tiles, block_dim=THREADS
            )
            var width = TILE
            while width < n:
                ctx.enqueue_function(
                    MergeRuns(spare, pairs, width, n, rows),
                    grid_dim=ceildiv(rows * ceildiv(n, EACH), THREADS),
                    block_dim=THREADS,
                )
                swap(pairs, spare)
                width *= 2
            ctx.enqueue_function(
                StoreRows(sorter, pairs, rows),
                grid_dim=ceildiv(rows * n, THREADS),
                block_dim=THREADS,
            )
            _ = memory^
