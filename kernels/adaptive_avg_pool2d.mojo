"""The mean over windows that cover a picture evenly, and its gradient.

Window i of n over `size` pixels reaches from floor(i * size / n) to ceil((i + 1) * size / n).
"""

import extensibility
from extensibility import InputTensor, ManagedTensorSlice, OutputTensor, elementwise
from layout import Coord, coord_to_index_list
from max.algorithm.functional import sync_parallelize
from max.gpu import block_idx, thread_idx
from max.gpu.host import DeviceContext
from max.gpu.primitives import warp
from max.runtime.asyncrt import parallelism_level
from std.math import ceildiv
from std.memory import Pointer
from std.sys import simd_width_of, size_of
from std.utils.index import IndexList

comptime GRAIN = 16384  # elements that are worth another CPU thread
comptime WARPS = 4  # in a block
comptime WIDE = 24  # elements of a window that are worth a warp
comptime accum_of[dtype: DType] = DType.float64 if dtype == .float64 else DType.float32


@always_inline
def first_of(i: Int, size: Int, count: Int) -> Int:
    """Returns where window i begins; in 32 bits, where a GPU divides much faster."""
    return Int(UInt32(i) * UInt32(size) // UInt32(count))


@always_inline
def end_of(i: Int, size: Int, count: Int) -> Int:
    """Returns where window i ends."""
    return Int((UInt32(i + 1) * UInt32(size) + UInt32(count - 1)) // UInt32(count))


def spread[F: def(Int, Int) -> None](items: Int, elements: Int, f: F):
    """Calls f(begin, end) on torch's threads so that all items have their turn once."""
    var tasks = min(items, min(parallelism_level(None), ceildiv(elements, GRAIN)))
    if tasks <= 1:
        f(0, items)
        return

    def task(i: Int) {imm}:
        f(i * items // tasks, (i + 1) * items // tasks)

    sync_parallelize(task, tasks)


@fieldwise_init
struct Planes[dtype: DType](ImplicitlyCopyable, RegisterPassable):
    """A tensor (N, C, H, W) or (C, H, W): N * C planes."""

    var data: Pointer[Scalar[Self.dtype], MutUntrackedOrigin]
    var sizes: IndexList[4]
    var strides: IndexList[4]

    @always_inline
    def start(self, plane: Int) -> Int:
        var picture = plane // self.sizes[1]
        var channel = plane - picture * self.sizes[1]
        return picture * self.strides[0] + channel * self.strides[1]

    @always_inline
    def at(self, start: Int, row: Int, column: Int) -> Scalar[Self.dtype]:
        return self.data[unsafe_offset=start + row * self.strides[2] + column * self.strides[3]]

    def count(self) -> Int:
        return self.sizes[0] * self.sizes[1]

    def elements(self) -> Int:
        return self.count() * self.sizes[2] * self.sizes[3]


def planes(x: ManagedTensorSlice) -> Planes[x.dtype]:
    """Returns a tensor of rank 3 or 4 as planes."""
    comptime assert x.rank == 3 or x.rank == 4
    var sizes = IndexList[4](1)
    var strides = IndexList[4](0)
    comptime for d in range(x.rank):
        sizes[4 - x.rank + d] = x.dim_size(d)
        strides[4 - x.rank + d] = x.stride_length(d)
    return {
        Pointer[Scalar[x.dtype], MutUntrackedOrigin](unsafe_from_address=Int(x.unsafe_ptr())),
        sizes,
        strides,
    }


@always_inline
def mean[
    dtype: DType, width: Int
](input: Planes[dtype], start: Int, rows: Int, columns: Int, i: Int, j: Int) -> Scalar[
    accum_of[dtype]
]:
    """Returns the mean of window (i, j), `width` neighbours at a time."""
    comptime accum = accum_of[dtype]
    var top = first_of(i, input.sizes[2], rows)
    var bottom = end_of(i, input.sizes[2], rows)
    var left = first_of(j, input.sizes[3], columns)
    var right = end_of(j, input.sizes[3], columns)
    var total = Scalar[accum](0)
    var totals = SIMD[accum, width](0)
    var packed = input.strides[3] == 1 and right - left >= width
    for row in range(top, bottom):
        var column = left
        comptime if width > 1:
            if packed:
                var line = start + row * input.strides[2]
                while column + width <= right:
                    totals += input.data.unsafe_load[width=width](line + column).cast[accum]()
                    column += width
        while column < right:
            total += input.at(start, row, column).cast[accum]()
            column += 1
    return (total + totals.reduce_add()) / Scalar[accum]((bottom - top) * (right - left))


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


def pool_channels_last[dtype: DType](output: Planes[dtype], input: Planes[dtype]):
    """Goes through pictures whose channels are neighbours, on the CPU."""
    comptime accum = accum_of[dtype]
    comptime native = simd_width_of[dtype]()
    var rows = output.sizes[2]
    var columns = output.sizes[3]
    var channels = input.sizes[1]

    def run(begin: Int, end: Int) {imm}:
        for item in range(begin, end):
            var picture = item // (rows * columns)
            var i = item // columns % rows
            var j = item % columns
            var top = first_of(i, input.sizes[2], rows)
            var bottom = end_of(i, input.sizes[2], rows)
            var left = first_of(j, input.sizes[3], columns)
            var right = end_of(j, input.sizes[3], columns)
            var size = Scalar[accum]((bottom - top) * (right - left))
            var to = picture * output.strides[0] + i * output.strides[2] + j * output.strides[3]

            @always_inline
            def some[width: Int](channel: Int) {imm}:
                var total = SIMD[accum, width](0)
                for row in range(top, bottom):
                    var line = picture * input.strides[0] + row * input.strides[2] + channel
                    for column in range(left, right):
                        var at = line + column * input.strides[3]
                        total += input.data.unsafe_load[width=width](at).cast[accum]()
                total /= size
                comptime for lane in range(width):
                    var at = to + (channel + lane) * output.strides[1]
                    output.data[unsafe_offset=at] = total[lane].cast[dtype]()

            var channel = 0
            while channel + native <= channels:
                some[native](channel)
                channel += native
            while channel < channels:
                some[1](channel)
                channel += 1

    spread(output.sizes[0] * rows * columns, input.elements(), run)


@extensibility.register("adaptive_avg_pool2d")
struct AdaptiveAvgPool2d:
    """The means."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime dtype = output.dtype
        comptime native = simd_width_of[dtype]() if target == "cpu" else 1
        var source = planes(input)
        var to = planes(output)
        var rows = to.sizes[2]
        var columns = to.sizes[3]
        var count = to.elements()
        if count == 0:
            return

        comptime if target == "cpu":
            if source.strides[1] == 1 and source.strides[3] != 1 and source.sizes[1] > 1:
                pool_channels_last(to, source)
                return

            def run(begin: Int, end: Int) {imm}:
                for line in range(begin, end):
                    var plane = line // rows
                    var i = line - plane * rows
                    var start = source.start(plane)
                    for j in range(columns):
                        var value = mean[dtype, native](source, start, rows, columns, i, j)
                        to.data[unsafe_offset=line * columns + j] = value.cast[dtype]()

            spread(to.count() * rows, source.elements(), run)
        else:
            if source.elements() >= WIDE * count:
                ctx.enqueue_function[mean_by_warp[dtype]](
                    to.data,
                    source.data,
                    Int64(count),
                    Int64(source.sizes[1]),
                    Int64(source.sizes[2]),
                    Int64(source.sizes[3]),
                    Int64(rows),
                    Int64(columns),
                    Int64(source.strides[0]),
                    Int64(source.strides[1]),
                    Int64(source.strides[2]),
                    Int64(source.strides[3]),
                    grid_dim=ceildiv(count, WARPS),
                    block_dim=(32, WARPS),
                )
                return

            @always_inline
            def one[width: Int, alignment: Int = 1](place: Coord) {var source, var to}:
                var at = coord_to_index_list(place)
                var i = Int(at[1])
                var j = Int(at[2])
                var value = mean[dtype, 1](
                    source, source.start(Int(at[0])), to.sizes[2], to.sizes[3], i, j
                )
                var line = Int(at[0]) * to.sizes[2] + i
                to.data[unsafe_offset=line * to.sizes[3] + j] = value.cast[dtype]()

            elementwise[1, target=target](
                one, Coord(IndexList[3](to.count(), rows, columns)), ctx
            )


@always_inline
def gathered[
    dtype: DType
](grad: Planes[dtype], start: Int, height: Int, width: Int, row: Int, column: Int) -> Scalar[
    accum_of[dtype]
]:
    """Returns the sum over the windows that have a pixel, each divided by its size."""
    comptime accum = accum_of[dtype]
    var rows = grad.sizes[2]
    var columns = grad.sizes[3]
    var total = Scalar[accum](0)
    # window i has row r if i * height < (r + 1) * rows and (i + 1) * height > r * rows
    for i in range(first_of(row, rows, height), end_of(row, rows, height)):
        var tall = end_of(i, height, rows) - first_of(i, height, rows)
        for j in range(first_of(column, columns, width), end_of(column, columns, width)):
            var size = tall * (end_of(j, width, columns) - first_of(j, width, columns))
            total += grad.at(start, i, j).cast[accum]() / Scalar[accum](size)
    return total


@always_inline
def next_edge(column: Int, width: Int, columns: Int) -> Int:
    """Returns up to where the pixels of a row lie in the same windows as this one."""
    var stop = end_of(first_of(column, columns, width), width, columns)
    var next = end_of(column, columns, width)
    return min(stop, first_of(next, width, columns)) if next < columns else stop


@extensibility.register("adaptive_avg_pool2d_backward")
struct AdaptiveAvgPool2dBackward:
    """Each pixel gathers from the windows that have it: nothing depends on the order of threads."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        grad_input: OutputTensor,
        grad_output: InputTensor[dtype=grad_input.dtype, rank=grad_input.rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime dtype = grad_input.dtype
        var grad = planes(grad_output)
        var to = planes(grad_input)
        var height = to.sizes[2]
        var width = to.sizes[3]
        if to.elements() == 0:
            return

        comptime if target == "cpu":

            def run(begin: Int, end: Int) {imm}:
                for line in range(begin, end):
                    var plane = line // height
                    var row = line - plane * height
                    var start = grad.start(plane)
                    var data = to.data.unsafe_offset(line * width)
                    var column = 0
                    while column < width:
                        var value = gathered(grad, start, height, width, row, column)
                        var stop = next_edge(column, width, grad.sizes[3])
                        for at in range(column, stop):
                            data[unsafe_offset=at] = value.cast[dtype]()
                        column = stop

            spread(to.count() * height, to.elements(), run)
        else:

            @always_inline
            def some[lanes: Int, alignment: Int = 1](place: Coord) {var grad, var to}:
                var at = Int(coord_to_index_list(place)[0])
                var line = at // to.sizes[3]
                var column = at - line * to.sizes[3]
                var plane = line // to.sizes[2]
                var row = line - plane * to.sizes[2]
                var stop = column
                var value = Scalar[accum_of[dtype]](0)
                var values = SIMD[dtype, lanes]()
                comptime for lane in range(lanes):
                    if column == to.sizes[3]:
                        column = 0
                        stop = 0
                        row += 1
                        if row == to.sizes[2]:
                            row = 0
                            plane += 1
                    if column == stop:
                        value = gathered(
                            grad, grad.start(plane), to.sizes[2], to.sizes[3], row, column
                        )
                        stop = next_edge(column, to.sizes[3], grad.sizes[3])
                    values[lane] = value.cast[dtype]()
                    column += 1
                to.data.unsafe_store[alignment = lanes * size_of[dtype]()](at, values)

            comptime vector = 16 // size_of[dtype]()
            elementwise[vector, target=target](some, Coord(IndexList[1](to.elements())), ctx)
