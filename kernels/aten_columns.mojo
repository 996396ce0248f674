"""Windows of a picture as columns of a matrix, and back: what every convolution's gradient is made of.

Pictures are (N, C, D, H, W); the columns are (N, C * K, L), where K counts the positions in a window and L the
windows. Window l begins at l * stride - padding in each dimension, and its positions are `dilation` apart.
"""

import extensibility
from extensibility import InputTensor, OutputTensor, foreach
from layout import Coord, coord_to_index_list
from max.gpu.host import DeviceContext
from rows import run_parallel
from std.utils.index import IndexList

comptime accum_of[dtype: DType] = DType.float64 if dtype == .float64 else DType.float32
comptime Three = IndexList[3]


@fieldwise_init
struct Windows(ImplicitlyCopyable, RegisterPassable):
    """How windows lie in a picture of `sizes`; `outs` says how many there are."""

    var sizes: Three
    var outs: Three
    var kernel: Three
    var stride: Three
    var padding: Three
    var dilation: Three

    @always_inline
    def place(self, axis: Int, tap: Int, window: Int) -> Int:
        """Returns where a position of a window lies; it may be outside of the picture."""
        return window * self.stride[axis] - self.padding[axis] + tap * self.dilation[axis]

    @always_inline
    def window(self, axis: Int, tap: Int, place: Int) -> Int:
        """Returns the window that has `place` at a position, or -1."""
        var start = place + self.padding[axis] - tap * self.dilation[axis]
        if start < 0:
            return -1
        var found = start // self.stride[axis]
        if found * self.stride[axis] != start or found >= self.outs[axis]:
            return -1
        return found

    @always_inline
    def taps(self) -> Int:
        return self.kernel[0] * self.kernel[1] * self.kernel[2]

    @always_inline
    def tap(self, index: Int) -> Three:
        return split(index, self.kernel)


@always_inline
def split(index: Int, sizes: Three) -> Three:
    """Returns the three coordinates of a number."""
    var rest, c = divmod(index, sizes[2])
    var a, b = divmod(rest, sizes[1])
    return Three(a, b, c)


@always_inline
def windows(
    sizes: Three,
    k0: Int64,
    k1: Int64,
    k2: Int64,
    s0: Int64,
    s1: Int64,
    s2: Int64,
    p0: Int64,
    p1: Int64,
    p2: Int64,
    d0: Int64,
    d1: Int64,
    d2: Int64,
) -> Windows:
    var w = Windows(
        sizes,
        Three(0),
        Three(Int(k0), Int(k1), Int(k2)),
        Three(Int(s0), Int(s1), Int(s2)),
        Three(Int(p0), Int(p1), Int(p2)),
        Three(Int(d0), Int(d1), Int(d2)),
    )
    comptime for axis in range(3):
        var reach = (w.kernel[axis] - 1) * w.dilation[axis] + 1
        w.outs[axis] = max((sizes[axis] + 2 * w.padding[axis] - reach) // w.stride[axis] + 1, 0)
    return w


@extensibility.register("aten_im2col")
struct ImageToColumns:
    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[rank=3, ...],
        x: InputTensor[dtype=output.dtype, rank=5, ...],
        k0: Int64,
        k1: Int64,
        k2: Int64,
        s0: Int64,
        s1: Int64,
        s2: Int64,
        p0: Int64,
        p1: Int64,
        p2: Int64,
        d0: Int64,
        d1: Int64,
        d2: Int64,
        ctx: DeviceContext,
    ) raises:
        var sizes = Three(x.dim_size(2), x.dim_size(3), x.dim_size(4))
        var w = windows(sizes, k0, k1, k2, s0, s1, s2, p0, p1, p2, d0, d1, d2)

        comptime if target == "cpu":

            def rows(begin: Int, end: Int) {imm}:
                for row in range(begin, end):
                    var n, column = divmod(row, output.dim_size(1))
                    var channel, tap = divmod(column, w.taps())
                    var position = w.tap(tap)
                    var l = 0
                    for a in range(w.outs[0]):
                        var i = w.place(0, position[0], a)
                        for b in range(w.outs[1]):
                            var j = w.place(1, position[1], b)
                            var outside = i < 0 or i >= sizes[0] or j < 0 or j >= sizes[1]
                            for c in range(w.outs[2]):
                                var k = w.place(2, position[2], c)
                                var value = Scalar[output.dtype](0)
                                if not outside and k >= 0 and k < sizes[2]:
                                    value = x[IndexList[5](n, channel, i, j, k)]
                                output[IndexList[3](n, column, l)] = value
                                l += 1

            run_parallel(rows, output.dim_size(0) * output.dim_size(1), output.size(), ctx)
        else:

            @always_inline
            def f[width: Int](idx: Coord) {var w, var x} -> SIMD[output.dtype, width]:
                var at = coord_to_index_list(idx)
                var channel, tap = divmod(at[1], w.taps())
                var position = w.tap(tap)
                var found = SIMD[output.dtype, width](0)
                comptime for lane in range(width):
                    var out = split(at[2] + lane, w.outs)
                    var i = w.place(0, position[0], out[0])
                    var j = w.place(1, position[1], out[1])
                    var k = w.place(2, position[2], out[2])
                    var rows = i >= 0 and i < w.sizes[0] and j >= 0 and j < w.sizes[1]
                    if rows and k >= 0 and k < w.sizes[2]:
                        found[lane] = x[IndexList[5](at[0], channel, i, j, k)]
                return found

            foreach[target=target](f, output, ctx)


@extensibility.register("aten_col2im")
struct ColumnsToImage:
    """A pixel's sum over all windows it is in; on a GPU each pixel gathers, so nothing is added atomically."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[rank=5, ...],
        columns: InputTensor[dtype=output.dtype, rank=3, ...],
        like: InputTensor[rank=5, ...],
        k0: Int64,
        k1: Int64,
        k2: Int64,
        s0: Int64,
        s1: Int64,
        s2: Int64,
        p0: Int64,
        p1: Int64,
        p2: Int64,
        d0: Int64,
        d1: Int64,
        d2: Int64,
        ctx: DeviceContext,
    ) raises:
        var sizes = Three(output.dim_size(2), output.dim_size(3), output.dim_size(4))
        var w = windows(sizes, k0, k1, k2, s0, s1, s2, p0, p1, p2, d0, d1, d2)

        comptime if target == "cpu":

            def planes(begin: Int, end: Int) {imm}:
                for plane in range(begin, end):
                    var n, channel = divmod(plane, output.dim_size(1))
                    for i in range(sizes[0]):
                        for j in range(sizes[1]):
                            for k in range(sizes[2]):
                                output[IndexList[5](n, channel, i, j, k)] = 0
                    for tap in range(w.taps()):
                        var position = w.tap(tap)
                        var l = -1
                        for a in range(w.outs[0]):
                            var i = w.place(0, position[0], a)
                            for b in range(w.outs[1]):
                                var j = w.place(1, position[1], b)
                                var outside = i < 0 or i >= sizes[0] or j < 0 or j >= sizes[1]
                                for c in range(w.outs[2]):
                                    l += 1
                                    var k = w.place(2, position[2], c)
                                    if not outside and k >= 0 and k < sizes[2]:
                                        output[IndexList[5](n, channel, i, j, k)] += columns[
                                            IndexList[3](n, channel * w.taps() + tap, l)
                                        ]

            run_parallel(planes, output.dim_size(0) * output.dim_size(1), columns.size(), ctx)
        else:
            comptime accum = accum_of[output.dtype]

            @always_inline
            def f[width: Int](idx: Coord) {var w, var columns} -> SIMD[output.dtype, width]:
                var at = coord_to_index_list(idx)
                var found = SIMD[output.dtype, width](0)
                comptime for lane in range(width):
                    var total = Scalar[accum](0)
                    for tap in range(w.taps()):
                        var position = w.tap(tap)
                        var a = w.window(0, position[0], at[2])
                        var b = w.window(1, position[1], at[3])
                        var c = w.window(2, position[2], at[4] + lane)
                        if a >= 0 and b >= 0 and c >= 0:
                            var l = (a * w.outs[1] + b) * w.outs[2] + c
                            total += columns[IndexList[3](at[0], at[1] * w.taps() + tap, l)].cast[
                                accum
                            ]()
                    found[lane] = total.cast[output.dtype]()
                return found

            foreach[target=target](f, output, ctx)
