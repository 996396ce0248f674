"""Volumes (N, C, D, H, W) read at evenly spaced places between their elements, and the gradient.

In each dimension a place of the output has one to four taps: elements of the input with weights. A gradient is gathered:
every element goes through the places that may have it as a tap, in their order.
"""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu.host import DeviceContext
from std.math import floor
from std.utils.static_tuple import StaticTuple

from aten_lines import walk
from aten_volumes import Three, Volumes, volumes
from rows import accum_of


def taps_of(mode: StaticString) -> Int:
    """Returns how many taps a place has in each dimension."""
    return 4 if mode == "cubic" else 2 if mode == "linear" else 1


@always_inline
def cubic[dtype: DType](t: Scalar[dtype]) -> StaticTuple[Scalar[dtype], 4]:
    """Returns the weights of cubic convolution with a = -0.75, at a place t behind the second tap."""
    comptime a = Scalar[dtype](-0.75)
    var weights = StaticTuple[Scalar[dtype], 4](0, 0, 0, 0)
    comptime for tap in range(4):
        comptime near = tap == 1 or tap == 2
        var x = abs(t + Scalar[dtype](1 - tap))
        comptime if near:
            weights[tap] = ((a + 2) * x - (a + 3)) * x * x + 1
        else:
            weights[tap] = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return weights


@fieldwise_init
struct Taps[mode: StaticString, dtype: DType](ImplicitlyCopyable, RegisterPassable):
    """What a place of the output reads in one dimension."""

    var first: Int  # not yet cut off at the borders
    var size: Int
    var weights: StaticTuple[Scalar[Self.dtype], 4]

    @always_inline
    def at(self, tap: Int) -> Int:
        """Returns which element a tap is."""
        return max(0, min(self.first + tap, self.size - 1))

    @always_inline
    def weight(self, element: Int) -> Scalar[Self.dtype]:
        """Returns the weight of an element."""
        var total = Scalar[Self.dtype](0)
        comptime for tap in range(taps_of(Self.mode)):
            if self.at(tap) == element:
                total += self.weights[tap]
        return total


@fieldwise_init
struct Places[mode: StaticString, dtype: DType](ImplicitlyCopyable, RegisterPassable):
    """Where the places of the output lie in the input."""

    comptime zero = Scalar[Self.dtype](0)

    var sizes: Three  # of the input
    var counts: Three  # of the output
    var scales: StaticTuple[Scalar[Self.dtype], 3]  # from place to place
    var align: Bool

    @always_inline
    def real(self, o: Int, d: Int) -> Scalar[Self.dtype]:
        """Returns where a place lies, in elements."""
        var scale = self.scales[d]
        comptime if Self.mode == "nearest":
            return scale * Scalar[Self.dtype](o)
        comptime if Self.mode == "nearest_exact":
            return scale * (Scalar[Self.dtype](o) + Scalar[Self.dtype](0.5))
        if self.align:
            return scale * Scalar[Self.dtype](o)
        var place = scale * (Scalar[Self.dtype](o) + Scalar[Self.dtype](0.5)) - Scalar[Self.dtype](
            0.5
        )
        comptime if Self.mode == "linear":
            return max(place, Self.zero)
        return place

    @always_inline
    def taps(self, o: Int, d: Int) -> Taps[Self.mode, Self.dtype]:
        """Returns what a place reads in dimension d."""
        comptime one = StaticTuple[Scalar[Self.dtype], 4](1, 0, 0, 0)
        var size = self.sizes[d]
        comptime if Self.mode == "linear":
            if size == self.counts[d]:
                return {o, size, one}
        var place = self.real(o, d)
        var down = floor(place)
        comptime if taps_of(Self.mode) == 1:
            return {min(Int(down), size - 1), size, one}
        var index = Int(down)
        comptime if Self.mode == "linear":
            index = min(index, size - 1)
        var t = min(max(place - Scalar[Self.dtype](index), Self.zero), Self.zero + 1)
        comptime if Self.mode == "linear":
            return {index, size, StaticTuple[Scalar[Self.dtype], 4](1 - t, t, 0, 0)}
        return {index - 1, size, cubic(t)}

    @always_inline
    def earliest(self, i: Int, d: Int) -> Int:
        """Returns a place that is not behind the first one that may read element i."""
        return 0 if i == 0 else max(self.near(i - taps_of(Self.mode), d) - 2, 0)

    @always_inline
    def end(self, i: Int, d: Int) -> Int:
        """Returns a place behind the last one that may read element i."""
        if i == self.sizes[d] - 1:
            return self.counts[d]
        return min(self.near(i + taps_of(Self.mode), d) + 3, self.counts[d])

    @always_inline
    def near(self, i: Int, d: Int) -> Int:
        """Returns about the place that lies at element i."""
        if self.scales[d] == 0:
            return 0
        var place = Scalar[Self.dtype](i) / self.scales[d]
        return Int(max(Self.zero - 4, min(floor(place), Scalar[Self.dtype](self.counts[d] + 4))))


@always_inline
def places[
    mode: StaticString, dtype: DType
](sizes: Three, counts: Three, s0: Float64, s1: Float64, s2: Float64, align: Int64) -> Places[
    mode, dtype
]:
    """Returns where the places lie; a scale of 0 is that of the sizes."""
    var given = StaticTuple[Float64, 3](s0, s1, s2)
    var scales = StaticTuple[Scalar[dtype], 3](0, 0, 0)
    comptime linked = mode == "linear" or mode == "cubic"
    comptime for d in range(3):
        if mode == "linear" and sizes[d] == counts[d]:
            scales[d] = 1  # such places are the elements
        elif linked and align != 0:
            if counts[d] > 1:
                scales[d] = Scalar[dtype](sizes[d] - 1) / Scalar[dtype](counts[d] - 1)
        elif given[d] > 0:
            scales[d] = (1 / given[d]).cast[dtype]()
        else:
            scales[d] = Scalar[dtype](sizes[d]) / Scalar[dtype](counts[d])
    return {sizes, counts, scales, align != 0}


@extensibility.register("aten_resample")
struct Resample[mode: StaticString]:
    """Each place as the sum of its taps."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[rank=5, ...],
        input: InputTensor[dtype=output.dtype, rank=5, ...],
        s0: Float64,
        s1: Float64,
        s2: Float64,
        align: Int64,
        dims: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime dtype = output.dtype
        comptime accum = accum_of[dtype]
        comptime taps = taps_of(Self.mode)
        var to = volumes(output)
        var source = volumes(input)
        var lies = places[Self.mode, accum](source.space(), to.space(), s0, s1, s2, align)
        # a dimension that the picture has not has one tap
        var deep = taps if dims == 3 else 1
        var high = taps if dims >= 2 else 1

        @always_inline
        def one(
            plane: Int, row: Int, first: Int, end: Int
        ) {var to, var source, var lies, var deep, var high}:
            var d = row // to.sizes[3]
            var h = row - d * to.sizes[3]
            var begin = source.plane(plane)
            var to_begin = to.plane(plane)
            var tz = lies.taps(d, 0)
            var ty = lies.taps(h, 1)
            for w in range(first, end):
                var tx = lies.taps(w, 2)
                comptime if taps == 1:
                    to.data[unsafe_offset=to.at(to_begin, d, h, w)] = source.data[
                        unsafe_offset=source.at(begin, tz.at(0), ty.at(0), tx.at(0))
                    ]
                else:
                    var total = Scalar[accum](0)
                    for a in range(deep):
                        var z = tz.at(a) if deep > 1 else d
                        var plane_total = Scalar[accum](0)
                        for b in range(high):
                            var y = ty.at(b) if high > 1 else h
                            var row_total = Scalar[accum](0)
                            comptime for c in range(taps):
                                var at = source.at(begin, z, y, tx.at(c))
                                row_total += (
                                    source.data[unsafe_offset=at].cast[accum]() * tx.weights[c]
                                )
                            plane_total += row_total * ty.weights[b] if high > 1 else row_total
                        total += plane_total * tz.weights[a] if deep > 1 else plane_total
                    to.data[unsafe_offset=to.at(to_begin, d, h, w)] = total.cast[dtype]()

        walk[target](one, to.extent(), ctx)


@extensibility.register("aten_resample_backward")
struct ResampleBackward[mode: StaticString]:
    """Each element as the sum of what the places bring that read it."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        grad_input: OutputTensor[rank=5, ...],
        grad_output: InputTensor[dtype=grad_input.dtype, rank=5, ...],
        s0: Float64,
        s1: Float64,
        s2: Float64,
        align: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime dtype = grad_input.dtype
        comptime accum = accum_of[dtype]
        var to = volumes(grad_input)
        var grads = volumes(grad_output)
        var lies = places[Self.mode, accum](to.space(), grads.space(), s0, s1, s2, align)

        @always_inline
        def one(plane: Int, row: Int, first: Int, end: Int) {var to, var grads, var lies}:
            var d = row // to.sizes[3]
            var h = row - d * to.sizes[3]
            var begin = grads.plane(plane)
            for w in range(first, end):
                var total = Scalar[accum](0)
                for z in range(lies.earliest(d, 0), lies.end(d, 0)):
                    var of_z = lies.taps(z, 0).weight(d)
                    if of_z == 0:
                        continue
                    for y in range(lies.earliest(h, 1), lies.end(h, 1)):
                        var of_y = lies.taps(y, 1).weight(h) * of_z
                        if of_y == 0:
                            continue
                        for x in range(lies.earliest(w, 2), lies.end(w, 2)):
                            var weight = lies.taps(x, 2).weight(w) * of_y
                            if weight != 0:
                                total += (
                                    grads.data[unsafe_offset=grads.at(begin, z, y, x)].cast[accum]()
                                    * weight
                                )
                to.data[unsafe_offset=to.at(to.plane(plane), d, h, w)] = total.cast[dtype]()

        walk[target](one, to.extent(), ctx)
