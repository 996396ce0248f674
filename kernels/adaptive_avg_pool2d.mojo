"""The mean over windows that cover a picture evenly, and its gradient."""

import extensibility
from extensibility import InputTensor, OutputTensor, elementwise
from layout import Coord, coord_to_index_list
from max.algorithm.functional import sync_parallelize
from max.gpu.host import DeviceContext
from max.runtime.asyncrt import parallelism_level
from std.math import ceildiv
from std.sys import simd_width_of, size_of
from std.utils.index import IndexList

from adaptive_avg_pool2d_gpu import (
    PLANES,
    SIDE,
    SPREADING,
    STRIP,
    WARPS,
    WINDOWS,
    SpreadOnGpu,
    StripsOnGpu,
    mean_by_warp,
    mean_of_rows,
)
from planes import Planes, end_of, first_of, planes
from rows import accum_of

comptime GRAIN = 16384  # elements that are worth another CPU thread
comptime WIDE = 24  # elements of a window that are worth a warp


def spread[F: def(Int, Int) -> None](items: Int, elements: Int, f: F):
    """Calls f(begin, end) on torch's threads so that all items have their turn once."""
    var tasks = min(items, min(parallelism_level(None), ceildiv(elements, GRAIN)))
    if tasks <= 1:
        f(0, items)
        return

    def task(i: Int) {imm}:
        f(i * items // tasks, (i + 1) * items // tasks)

    sync_parallelize(task, tasks)


@always_inline
def mean[
    dtype: DType
](input: Planes[dtype], start: Int, rows: Int, columns: Int, i: Int, j: Int) -> Scalar[
    accum_of[dtype]
]:
    """Returns the mean of window (i, j)."""
    comptime accum = accum_of[dtype]
    var top = first_of(i, input.sizes[2], rows)
    var bottom = end_of(i, input.sizes[2], rows)
    var left = first_of(j, input.sizes[3], columns)
    var right = end_of(j, input.sizes[3], columns)
    var total = Scalar[accum](0)
    for row in range(top, bottom):
        for column in range(left, right):
            total += input.at(start, row, column).cast[accum]()
    return total / Scalar[accum]((bottom - top) * (right - left))


def windows_of(size: Int, count: Int) -> List[Int]:
    """Returns where each window begins and ends."""
    var found = List[Int](capacity=2 * count)
    for i in range(count):
        found.append(first_of(i, size, count))
        found.append(end_of(i, size, count))
    return found^


def pool_lines[
    dtype: DType
](output: Planes[dtype], input: Planes[dtype], windows: List[Int], begin: Int, end: Int):
    """Makes some lines of means on the CPU: rows are added up first, then their columns."""
    comptime accum = accum_of[dtype]
    comptime native = simd_width_of[accum]()
    var rows = output.sizes[2]
    var columns = output.sizes[3]
    var width = input.sizes[3]
    if rows * columns == 1 and input.strides[3] == 1 and input.strides[2] == width:
        for plane in range(begin, end):
            var at = input.start(plane)
            var stop = at + input.sizes[2] * width
            var totals = SIMD[accum, native](0)
            while at + native <= stop:
                totals += input.data.unsafe_load[width=native](at).cast[accum]()
                at += native
            var total = totals.reduce_add()
            while at < stop:
                total += input.data[unsafe_offset=at].cast[accum]()
                at += 1
            total /= Scalar[accum](input.sizes[2] * width)
            output.data[unsafe_offset=plane] = total.cast[dtype]()
        return
    var scratch = List[Scalar[accum]](length=width, fill=0)
    var sums = scratch.unsafe_ptr()
    for line in range(begin, end):
        var plane = line // rows
        var i = line - plane * rows
        var start = input.start(plane)
        var top = first_of(i, input.sizes[2], rows)
        var bottom = end_of(i, input.sizes[2], rows)

        @always_inline
        def add[lanes: Int](column: Int) {imm}:
            var total = SIMD[accum, lanes](0)
            for row in range(top, bottom):
                var at = start + row * input.strides[2] + column * input.strides[3]
                total += input.data.unsafe_load[width=lanes](at).cast[accum]()
            sums.unsafe_store(column, total)

        var column = 0
        if input.strides[3] == 1:
            while column + native <= width:
                add[native](column)
                column += native
            if column + 4 <= width:
                add[4](column)
                column += 4
            if column + 2 <= width:
                add[2](column)
                column += 2
        while column < width:
            add[1](column)
            column += 1
        for j in range(columns):
            var at = windows[2 * j]
            var right = windows[2 * j + 1]
            var size = Scalar[accum]((bottom - top) * (right - at))
            var total = Scalar[accum](0)
            if right - at >= 2 * native:
                var totals = SIMD[accum, native](0)
                while at + native <= right:
                    totals += sums.unsafe_load[width=native](at)
                    at += native
                total = totals.reduce_add()
            while at < right:
                total += sums[unsafe_offset=at]
                at += 1
            output.data[unsafe_offset=line * columns + j] = (total / size).cast[dtype]()


def spread_lines[
    dtype: DType
](output: Planes[dtype], grad: Planes[dtype], windows: List[Int], begin: Int, end: Int):
    """Makes some lines of gradients on the CPU; a line with the windows of the one before is the same."""
    comptime accum = accum_of[dtype]
    comptime native = simd_width_of[accum]()
    var rows = grad.sizes[2]
    var columns = grad.sizes[3]
    var height = output.sizes[2]
    var width = output.sizes[3]
    if rows * columns == 1:
        var at = begin * width
        while at < end * width:
            var plane = at // (height * width)
            var stop = min(end, (plane + 1) * height) * width
            var value = grad.at(grad.start(plane), 0, 0).cast[accum]()
            var same = (value / Scalar[accum](height * width)).cast[dtype]()
            while at + native <= stop:
                output.data.unsafe_store(at, SIMD[dtype, native](same))
                at += native
            while at < stop:
                output.data[unsafe_offset=at] = same
                at += 1
        return
    var scratch = List[Scalar[accum]](length=width, fill=0)
    var sums = scratch.unsafe_ptr()
    var last = -1  # the plane of the line before, and its windows
    var last_first = -1
    var last_end = -1
    for line in range(begin, end):
        var plane = line // height
        var row = line - plane * height
        var first = first_of(row, rows, height)
        var stop = end_of(row, rows, height)
        if plane != last or first != last_first or stop != last_end:
            last = plane
            last_first = first
            last_end = stop
            var start = grad.start(plane)
            for at in range(width):
                sums[unsafe_offset=at] = 0
            for i in range(first, stop):
                var tall = end_of(i, height, rows) - first_of(i, height, rows)
                for j in range(columns):
                    var at = windows[2 * j]
                    var right = windows[2 * j + 1]
                    var size = Scalar[accum](tall * (right - at))
                    var value = grad.at(start, i, j).cast[accum]() / size
                    while at < right:
                        sums[unsafe_offset=at] += value
                        at += 1
        var to = line * width
        var column = 0
        while column + native <= width:
            var some = sums.unsafe_load[width=native](column)
            output.data.unsafe_store(to + column, some.cast[dtype]())
            column += native
        while column < width:
            output.data[unsafe_offset=to + column] = sums[unsafe_offset=column].cast[dtype]()
            column += 1


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

            var windows = windows_of(source.sizes[3], columns)

            def run(begin: Int, end: Int) {imm}:
                pool_lines(to, source, windows, begin, end)

            spread(to.count() * rows, source.elements(), run)
        else:
            comptime vector = 16 // size_of[dtype]()
            var side_by_side = source.strides[3] == 1 or source.sizes[3] == 1
            if (
                rows * columns == 1
                and (source.strides[2] == source.sizes[3] * source.strides[3])
                and source.strides[3] == 1
            ):
                mean_of_rows[target](output, input, ctx)
                return

            @always_inline
            def strips[vector: Int]() raises {imm}:
                ctx.enqueue_function(
                    StripsOnGpu[dtype, vector](to.data, source, to.count() * rows, rows, columns),
                    grid_dim=ceildiv(to.count() * rows, WARPS),
                    block_dim=(32, WARPS),
                )

            # narrow windows leave threads without work, which one thread for each does not
            var tall = source.sizes[2] >= 2 * rows and source.elements() >= 8 * count
            if side_by_side and source.sizes[3] <= STRIP and tall and to.count() * rows < 1 << 31:
                if source.aligned(vector):
                    strips[vector]()
                else:
                    strips[1]()
                return
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
                var value = mean[dtype](
                    source, source.start(Int(at[0])), to.sizes[2], to.sizes[3], i, j
                )
                var line = Int(at[0]) * to.sizes[2] + i
                to.data[unsafe_offset=line * to.sizes[3] + j] = value.cast[dtype]()

            elementwise[1, target=target](one, Coord(IndexList[3](to.count(), rows, columns)), ctx)


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

            var windows = windows_of(width, grad.sizes[3])

            def run(begin: Int, end: Int) {imm}:
                spread_lines(to, grad, windows, begin, end)

            spread(to.count() * height, to.elements(), run)
        else:
            comptime vector = 16 // size_of[dtype]()

            @always_inline
            def spread_planes[vector: Int]() raises {imm}:
                ctx.enqueue_function(
                    SpreadOnGpu[dtype, vector](to, grad),
                    grid_dim=ceildiv(to.count(), PLANES),
                    block_dim=SPREADING,
                )

            var small = height <= SIDE and width <= SIDE
            if small and grad.sizes[2] * grad.sizes[3] <= WINDOWS and height * width >= SPREADING:
                if width % vector == 0 and Int(to.data) % 16 == 0:
                    spread_planes[vector]()
                else:
                    spread_planes[1]()
                return

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
                to.data.unsafe_store[alignment=lanes * size_of[dtype]()](at, values)

            elementwise[vector, target=target](some, Coord(IndexList[1](to.elements())), ctx)
