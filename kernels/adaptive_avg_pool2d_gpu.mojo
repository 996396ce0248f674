"""Means over windows, and their gradient, by warps and blocks of a GPU."""

from extensibility import InputTensor, OutputTensor
from max.gpu import block_idx, thread_idx
from max.gpu.host import DeviceContext
from max.gpu.primitives import warp
from max.gpu.sync import barrier, syncwarp
from std.collections import Array
from std.memory import Pointer, unsafe_stack_allocation
from std.sys import size_of
from std.utils.index import IndexList

from planes import Planes, end_of, first_of
from rows import SUM, accum_of, each, pointer_of, reduced, rows_of, run_rows

comptime WARPS = 4  # in a block
comptime STRIP = 1024  # columns of which a warp keeps the sums in shared memory
comptime SPREADING = 128  # threads that make the gradient of a plane
comptime PLANES = 4  # that these make one after the other
comptime WINDOWS = 1024  # of a plane, that these keep in shared memory
comptime SIDE = 512  # pixels of a side, whose windows they keep


def mean_by_warp[
    dtype: DType
](
    output: Pointer[Scalar[dtype], MutUntrackedOrigin],
    data: Pointer[Scalar[dtype], MutUntrackedOrigin],
    count: Int64,
    channels: Int64,
    height: Int64,
    width: Int64,
    rows: Int64,
    columns: Int64,
    of_picture: Int64,
    of_channel: Int64,
    of_row: Int64,
    of_column: Int64,
):
    """One warp of a GPU for each window."""
    comptime accum = accum_of[dtype]
    var index = Int(block_idx.x) * WARPS + Int(thread_idx.y)
    if index >= Int(count):
        return
    var input = Planes[dtype](
        data,
        IndexList[4](1, Int(channels), Int(height), Int(width)),
        IndexList[4](Int(of_picture), Int(of_channel), Int(of_row), Int(of_column)),
    )
    var above = index // Int(columns)
    var j = index - above * Int(columns)
    var plane = above // Int(rows)
    var i = above - plane * Int(rows)
    var start = input.start(plane)
    var top = first_of(i, Int(height), Int(rows))
    var left = first_of(j, Int(width), Int(columns))
    var across = UInt32(end_of(j, Int(width), Int(columns)) - left)
    var size = UInt32(end_of(i, Int(height), Int(rows)) - top) * across
    var total = Scalar[accum](0)
    var element = UInt32(thread_idx.x)
    while element < size:
        var row = element // across
        total += input.at(start, top + Int(row), left + Int(element - row * across)).cast[accum]()
        element += 32
    comptime for step in range(5):
        total += warp.shuffle_xor(total, UInt32(16 >> step))
    if thread_idx.x == 0:
        output[unsafe_offset=index] = (total / Scalar[accum](size)).cast[dtype]()


@fieldwise_init
struct StripsOnGpu[dtype: DType, vector: Int](ImplicitlyCopyable, RegisterPassable, def() -> None):
    """Makes a line of means with one warp: its rows are added up first, neighbouring columns side by side.

    The lanes stand in rows too if the picture is narrow; what they found meets in shared memory.
    """

    comptime accum = accum_of[Self.dtype]
    comptime Some = SIMD[Self.accum, Self.vector]

    var output: Pointer[Scalar[Self.dtype], MutUntrackedOrigin]
    var input: Planes[Self.dtype]
    var lines: Int
    var rows: Int
    var columns: Int

    @always_inline
    def load(self, at: Int) -> Self.Some:
        comptime aligned = Self.vector * size_of[Self.dtype]()
        return self.input.data.unsafe_load[width=Self.vector, alignment=aligned](at).cast[
            Self.accum
        ]()

    def __call__(self) capturing:
        comptime unroll = 4
        var shared = unsafe_stack_allocation[
            WARPS * STRIP, Scalar[Self.accum], address_space=.SHARED
        ]()
        var line = UInt32(block_idx.x) * WARPS + UInt32(thread_idx.y)
        if line >= UInt32(self.lines):
            return
        var lane = Int(thread_idx.x)
        var sums = shared.unsafe_offset(Int(thread_idx.y) * STRIP)
        var plane = line // UInt32(self.rows)
        var i = Int(line - plane * UInt32(self.rows))
        var picture = plane // UInt32(self.input.sizes[1])
        var channel = Int(plane - picture * UInt32(self.input.sizes[1]))
        var start = Int(picture) * self.input.strides[0] + channel * self.input.strides[1]
        var width = self.input.sizes[3]
        var top = first_of(i, self.input.sizes[2], self.rows)
        var bottom = end_of(i, self.input.sizes[2], self.rows)
        var across = width // Self.vector
        var groups = 1
        var group = 0
        var first = lane
        if across < 32:
            groups = Int(UInt32(32) // UInt32(across))
            group = Int(UInt32(lane) // UInt32(across))
            first = lane - group * across
        var pitch = self.input.strides[2]
        if group < groups:
            for column in range(first, across, 32):
                var total = Self.Some(0)
                var row = top + group
                var at = start + row * pitch + column * Self.vector
                while row + (unroll - 1) * groups < bottom:
                    var some = Array[Self.Some, unroll](fill=0)
                    comptime for u in range(unroll):
                        some[u] = self.load(at + u * groups * pitch)
                    comptime for u in range(unroll):
                        total += some[u]
                    row += unroll * groups
                    at += unroll * groups * pitch
                while row < bottom:
                    total += self.load(at)
                    row += groups
                    at += groups * pitch
                comptime for v in range(Self.vector):
                    sums[unsafe_offset=group * width + column * Self.vector + v] = total[v]
        syncwarp()
        for j in range(lane, self.columns, 32):
            var left = first_of(j, width, self.columns)
            var right = end_of(j, width, self.columns)
            var total = Scalar[Self.accum](0)
            for g in range(groups):
                for column in range(left, right):
                    total += sums[unsafe_offset=g * width + column]
            total /= Scalar[Self.accum]((bottom - top) * (right - left))
            self.output[unsafe_offset=Int(line) * self.columns + j] = total.cast[Self.dtype]()


def mean_of_rows[
    target: StaticString
](
    output: OutputTensor,
    input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
    ctx: DeviceContext,
) raises:
    """Writes the mean of each whole plane, whose pixels lie side by side."""
    comptime dtype = output.dtype
    comptime accum = accum_of[dtype]
    var source = rows_of(input, output.rank - 2, output.rank)
    var to = pointer_of(output)
    var columns = source.columns()

    @always_inline
    def program[
        width: Int, across: Bool, team: Int, hold: Int
    ](row: Int) {var source, var to, var columns}:
        var begin = source.start(row)
        var total = SIMD[accum, width](0)

        @always_inline
        def add(k: Int, column: Int, count: Int) {mut total, imm}:
            total += source.load[width](begin, column, count).cast[accum]()

        each[width, across, team, hold](columns, width, add)
        total = reduced[SUM, across, team](total) / Scalar[accum](columns)
        if thread_idx.x == 0:
            to[unsafe_offset=row] = total[0].cast[dtype]()

    comptime vector = 16 // size_of[dtype]()
    run_rows[target, dtype](
        program, source.count(), columns, source.packed(), source.aligned(vector), 0, ctx
    )


@fieldwise_init
struct SpreadOnGpu[dtype: DType, vector: Int](ImplicitlyCopyable, RegisterPassable, def() -> None):
    """Makes the gradients of some planes; which windows a row or column is in stands in shared memory."""

    comptime accum = accum_of[Self.dtype]

    var output: Planes[Self.dtype]
    var grad: Planes[Self.dtype]

    def __call__(self) capturing:
        var values = unsafe_stack_allocation[WINDOWS, Scalar[Self.accum], address_space=.SHARED]()
        # the first window in the lower half of a word, the end in the upper
        var of_row = unsafe_stack_allocation[SIDE, UInt32, address_space=.SHARED]()
        var of_column = unsafe_stack_allocation[SIDE, UInt32, address_space=.SHARED]()
        var t = Int(thread_idx.x)
        var rows = self.grad.sizes[2]
        var columns = self.grad.sizes[3]
        var height = self.output.sizes[2]
        var width = self.output.sizes[3]
        for row in range(t, height, SPREADING):
            of_row[unsafe_offset=row] = UInt32(
                first_of(row, rows, height) | (end_of(row, rows, height) << 16)
            )
        for column in range(t, width, SPREADING):
            of_column[unsafe_offset=column] = UInt32(
                first_of(column, columns, width) | (end_of(column, columns, width) << 16)
            )
        var across = UInt32(width // Self.vector)
        var down = UInt32(SPREADING) // across
        var aside = UInt32(SPREADING) - down * across
        var first_row = UInt32(t) // across
        var first_column = UInt32(t) - first_row * across
        var plane = Int(block_idx.x) * PLANES
        for _ in range(min(PLANES, self.output.count() - plane)):
            var start = self.grad.start(plane)
            barrier()
            for window in range(t, rows * columns, SPREADING):
                var i = Int(UInt32(window) // UInt32(columns))
                var j = window - i * columns
                var size = (end_of(i, height, rows) - first_of(i, height, rows)) * (
                    end_of(j, width, columns) - first_of(j, width, columns)
                )
                values[unsafe_offset=window] = self.grad.at(start, i, j).cast[
                    Self.accum
                ]() / Scalar[Self.accum](size)
            barrier()
            var row = first_row
            var column = first_column
            var to = self.output.data.unsafe_offset(plane * height * width + t * Self.vector)
            while row < UInt32(height):
                var lines = of_row[unsafe_offset=row]

                @always_inline
                def gathered_at(windows: UInt32) {imm} -> Scalar[Self.accum]:
                    var total = Scalar[Self.accum](0)
                    var i = lines & 0xFFFF
                    var line = i * UInt32(columns)
                    while i < lines >> 16:
                        var j = windows & 0xFFFF
                        while j < windows >> 16:
                            total += values[unsafe_offset=line + j]
                            j += 1
                        i += 1
                        line += UInt32(columns)
                    return total

                var last = of_column[unsafe_offset=column * UInt32(Self.vector)]
                var value = gathered_at(last).cast[Self.dtype]()
                var found = SIMD[Self.dtype, Self.vector](value)
                comptime for v in range(1, Self.vector):
                    var windows = of_column[unsafe_offset=column * UInt32(Self.vector) + UInt32(v)]
                    if windows != last:
                        value = gathered_at(windows).cast[Self.dtype]()
                        last = windows
                    found[v] = value
                to.unsafe_store[alignment=Self.vector * size_of[Self.dtype]()](found)
                to = to.unsafe_offset(SPREADING * Self.vector)
                row += down
                column += aside
                if column >= across:
                    column -= across
                    row += 1
            plane += 1
