"""The demo's kernels: ordinary MAX custom operators for a picture, on CPU and GPU.

A picture is rows x columns, or rows x columns x 3 for red, green and blue.
"""

import extensibility
from extensibility import InputTensor, OutputTensor, elementwise, foreach
from layout import Coord, coord_to_index_list
from max.gpu.host import DeviceContext
from std.atomic import Atomic
from std.collections import Array
from std.math import clamp, sqrt
from std.utils.index import IndexList


@extensibility.register("grayscale")
struct Grayscale:
    """Brightness in [0, 1], by the weights of ITU-R BT.601."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[dtype=DType.float32, rank=2, ...],
        picture: InputTensor[dtype=DType.uint8, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def brightness[width: Int](at: Coord) {var picture} -> SIMD[output.dtype, width]:
            var place = coord_to_index_list(at)
            var red = SIMD[output.dtype, width]()
            var green = SIMD[output.dtype, width]()
            var blue = SIMD[output.dtype, width]()
            comptime for lane in range(width):
                red[lane] = picture[place[0], place[1] + lane, 0].cast[output.dtype]()
                green[lane] = picture[place[0], place[1] + lane, 1].cast[output.dtype]()
                blue[lane] = picture[place[0], place[1] + lane, 2].cast[output.dtype]()
            return (0.299 * red + 0.587 * green + 0.114 * blue) / 255

        foreach[target=target](brightness, output, ctx)


@always_inline
def row_around[
    width: Int
](x: InputTensor[dtype=DType.float32, rank=2, ...], row: Int, column: Int) -> Array[
    SIMD[DType.float32, width], 3
]:
    """Returns `width` pixels and their neighbours to the left and to the right.

    Outside the picture stands the nearest pixel of its border.
    """
    var r = clamp(row, 0, x.dim_size(0) - 1)
    var last = x.dim_size(1) - 1
    var found = Array[SIMD[DType.float32, width], 3](fill=0)
    if column > 0 and column + width <= last:
        comptime for k in range(3):
            found[k] = x.load[width](IndexList[2](r, column + k - 1))
    else:
        comptime for k in range(3):
            comptime for lane in range(width):
                found[k][lane] = x[r, clamp(column + lane + k - 1, 0, last)]
    return found^


@extensibility.register("sharpen")
struct Sharpen:
    """An unsharp mask: adds `amount` times the difference to the 3x3 binomial blur, within [0, 1]."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[dtype=DType.float32, rank=2, ...],
        x: InputTensor[dtype=DType.float32, rank=2, ...],
        amount: Float32,
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def sharper[width: Int](at: Coord) {var x, var amount} -> SIMD[output.dtype, width]:
            var place = coord_to_index_list(at)
            var above = row_around[width](x, place[0] - 1, place[1])
            var here = row_around[width](x, place[0], place[1])
            var below = row_around[width](x, place[0] + 1, place[1])
            var corners = above[0] + above[2] + below[0] + below[2]
            var sides = above[1] + below[1] + here[0] + here[2]
            var blurred = (corners + 2 * sides + 4 * here[1]) / 16
            var result = clamp(here[1] + amount * (here[1] - blurred), 0, 1)
            return rebind[SIMD[output.dtype, width]](result)

        foreach[target=target](sharper, output, ctx)


@extensibility.register("sobel")
struct Sobel:
    """The magnitude of the 3x3 Sobel gradient."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[dtype=DType.float32, rank=2, ...],
        x: InputTensor[dtype=DType.float32, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def magnitude[width: Int](at: Coord) {var x} -> SIMD[output.dtype, width]:
            var place = coord_to_index_list(at)
            var above = row_around[width](x, place[0] - 1, place[1])
            var here = row_around[width](x, place[0], place[1])
            var below = row_around[width](x, place[0] + 1, place[1])
            var across = (above[2] + 2 * here[2] + below[2]) - (above[0] + 2 * here[0] + below[0])
            var down = (below[0] + 2 * below[1] + below[2]) - (above[0] + 2 * above[1] + above[2])
            return rebind[SIMD[output.dtype, width]](sqrt(across * across + down * down))

        foreach[target=target](magnitude, output, ctx)


@extensibility.register("histogram")
struct Histogram[bins: Int]:
    """Counts the pixels of each brightness: `bins` equal steps of [0, 1]; what is outside goes to the ends."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[dtype=DType.int64, rank=1, ...],
        x: InputTensor[dtype=DType.float32, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def zero[width: Int](at: Coord) {} -> SIMD[output.dtype, width]:
            return 0

        @always_inline
        def bin_of(value: Float32) {} -> Int:
            return Int(clamp(value * Float32(Self.bins), 0, Float32(Self.bins - 1)))

        comptime if target == "cpu":
            var counts = Array[Int64, Self.bins](fill=0)
            for row in range(x.dim_size(0)):
                for column in range(x.dim_size(1)):
                    counts[bin_of(x[row, column])] += 1
            for i in range(Self.bins):
                output[i] = counts[i]
        else:
            foreach[target=target](zero, output, ctx)

            @always_inline
            def count[width: Int, alignment: Int = 1](at: Coord) {var x, var output}:
                var place = coord_to_index_list(at)
                var cell = output.unsafe_ptr().unsafe_offset(bin_of(x[place[0], place[1]]))
                _ = Atomic.fetch_add(cell, 1)

            elementwise[1, target=target](count, Coord(x.shape()), ctx)
