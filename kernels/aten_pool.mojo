"""Pooling over windows of volumes (N, C, D, H, W): the largest element or the mean, and the gradients.

A gradient is gathered: every place of the input goes through the windows that may cover it, in their order, so that the
result is the same every time and on every device.
"""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.utils.numerics import isnan, neg_inf

from aten_lines import walk
from aten_volumes import Three, Volumes, volumes
from rows import accum_of


trait Windows(Deinitable, ImplicitlyCopyable, RegisterPassable):
    """Where the windows of one dimension lie."""

    def first(self, o: Int, d: Int) -> Int:
        """Returns where window o begins in dimension d, inside."""
        ...

    def end(self, o: Int, d: Int) -> Int:
        """Returns where it ends, inside."""
        ...

    def step(self, d: Int) -> Int:
        """Returns how far its places are from each other."""
        ...

    def share(self, o: Three) -> Int:
        """Returns what a mean is divided by."""
        ...

    def earliest(self, i: Int, d: Int) -> Int:
        """Returns the first window that may cover place i."""
        ...

    def latest(self, i: Int, d: Int) -> Int:
        """Returns the last one."""
        ...


@fieldwise_init
struct Sliding(Windows):
    """Windows of one size, at equal distances."""

    var sizes: Three  # of the input
    var counts: Three  # of the output
    var kernel: Three
    var stride: Three
    var padding: Three
    var dilation: Three
    var count_padding: Bool
    var divisor: Int  # 0 for the number of places

    @always_inline
    def first(self, o: Int, d: Int) -> Int:
        var begin = o * self.stride[d] - self.padding[d]
        if begin < 0:
            begin += ceildiv(-begin, self.dilation[d]) * self.dilation[d]
        return begin

    @always_inline
    def end(self, o: Int, d: Int) -> Int:
        var begin = o * self.stride[d] - self.padding[d]
        return min(begin + (self.kernel[d] - 1) * self.dilation[d] + 1, self.sizes[d])

    @always_inline
    def step(self, d: Int) -> Int:
        return self.dilation[d]

    @always_inline
    def share(self, o: Three) -> Int:
        if self.divisor != 0:
            return self.divisor
        var count = 1
        comptime for d in range(3):
            if self.count_padding:
                var begin = o[d] * self.stride[d] - self.padding[d]
                count *= min(begin + self.kernel[d], self.sizes[d] + self.padding[d]) - begin
            else:
                count *= max(0, self.end(o[d], d) - self.first(o[d], d))
        return count

    @always_inline
    def earliest(self, i: Int, d: Int) -> Int:
        var reach = (self.kernel[d] - 1) * self.dilation[d]
        return max(0, ceildiv(i + self.padding[d] - reach, self.stride[d]))

    @always_inline
    def latest(self, i: Int, d: Int) -> Int:
        return min((i + self.padding[d]) // self.stride[d], self.counts[d] - 1)


def sliding(
    sizes: Three,
    counts: Three,
    k0: Int64,
    k1: Int64,
    k2: Int64,
    s0: Int64,
    s1: Int64,
    s2: Int64,
    p0: Int64,
    p1: Int64,
    p2: Int64,
    l0: Int64,
    l1: Int64,
    l2: Int64,
    count_padding: Int64,
    divisor: Int64,
) -> Sliding:
    return {
        sizes,
        counts,
        Three(Int(k0), Int(k1), Int(k2)),
        Three(Int(s0), Int(s1), Int(s2)),
        Three(Int(p0), Int(p1), Int(p2)),
        Three(Int(l0), Int(l1), Int(l2)),
        count_padding != 0,
        Int(divisor),
    }


@fieldwise_init
struct Even(Windows):
    """Windows that cover the input evenly: o of n reaches from floor(o * size / n) to ceil((o + 1) * size / n)."""

    var sizes: Three
    var counts: Three

    @always_inline
    def first(self, o: Int, d: Int) -> Int:
        return o * self.sizes[d] // self.counts[d]

    @always_inline
    def end(self, o: Int, d: Int) -> Int:
        return ceildiv((o + 1) * self.sizes[d], self.counts[d])

    @always_inline
    def step(self, d: Int) -> Int:
        return 1

    @always_inline
    def share(self, o: Three) -> Int:
        var count = 1
        comptime for d in range(3):
            count *= self.end(o[d], d) - self.first(o[d], d)
        return count

    @always_inline
    def earliest(self, i: Int, d: Int) -> Int:
        return i * self.counts[d] // self.sizes[d]

    @always_inline
    def latest(self, i: Int, d: Int) -> Int:
        return min(ceildiv((i + 1) * self.counts[d], self.sizes[d]), self.counts[d]) - 1


def max_pool[
    W: Windows, dtype: DType, //, target: StaticString
](
    to: Volumes[dtype],
    indices: Volumes[DType.int64],
    source: Volumes[dtype],
    windows: W,
    ctx: DeviceContext,
) raises:
    """Writes the largest element of each window and its place in the volume: the first, or the last nan."""

    @always_inline
    def one(
        plane: Int, row: Int, first: Int, end: Int
    ) {var to, var indices, var source, var windows}:
        var d = row // to.sizes[3]
        var h = row - d * to.sizes[3]
        var begin = source.plane(plane)
        for w in range(first, end):
            var best = Scalar[dtype].MIN
            comptime if dtype.is_floating_point():
                best = neg_inf[dtype]()
            var place = (
                windows.first(d, 0) * source.sizes[3] + windows.first(h, 1)
            ) * source.sizes[4] + windows.first(w, 2)
            for z in range(windows.first(d, 0), windows.end(d, 0), windows.step(0)):
                for y in range(windows.first(h, 1), windows.end(h, 1), windows.step(1)):
                    for x in range(windows.first(w, 2), windows.end(w, 2), windows.step(2)):
                        var value = source.data[unsafe_offset=source.at(begin, z, y, x)]
                        var better = value > best
                        comptime if dtype.is_floating_point():
                            better = better or isnan(value)
                        if better:
                            best = value
                            place = (z * source.sizes[3] + y) * source.sizes[4] + x
            to.data[unsafe_offset=to.at(to.plane(plane), d, h, w)] = best
            indices.data[unsafe_offset=indices.at(indices.plane(plane), d, h, w)] = Int64(place)

    walk[target](one, to.extent(), ctx)


def avg_pool[
    W: Windows, dtype: DType, //, target: StaticString
](to: Volumes[dtype], source: Volumes[dtype], windows: W, ctx: DeviceContext) raises:
    """Writes the mean of each window."""
    comptime accum = accum_of[dtype] if dtype.is_floating_point() else DType.int64

    @always_inline
    def one(plane: Int, row: Int, first: Int, end: Int) {var to, var source, var windows}:
        var d = row // to.sizes[3]
        var h = row - d * to.sizes[3]
        var begin = source.plane(plane)
        for w in range(first, end):
            var total = Scalar[accum](0)
            for z in range(windows.first(d, 0), windows.end(d, 0)):
                for y in range(windows.first(h, 1), windows.end(h, 1)):
                    for x in range(windows.first(w, 2), windows.end(w, 2)):
                        var at = source.at(begin, z, y, x)
                        total += source.data[unsafe_offset=at].cast[accum]()
            var share = Scalar[accum](windows.share(Three(d, h, w)))
            var mean = Scalar[accum](0)
            if share != 0:  # else the window lies in the padding
                comptime if dtype.is_floating_point():
                    mean = total / share
                else:
                    mean = abs(total) // abs(share)  # towards 0
                    if (total < 0) != (share < 0):
                        mean = -mean
            to.data[unsafe_offset=to.at(to.plane(plane), d, h, w)] = mean.cast[dtype]()

    walk[target](one, to.extent(), ctx)


def gather_gradient[
    W: Windows, dtype: DType, //, target: StaticString, of_max: Bool
](
    to: Volumes[dtype],
    grads: Volumes[dtype],
    indices: Volumes[DType.int64],
    windows: W,
    ctx: DeviceContext,
) raises:
    """Writes to each place what the windows that cover it bring: all, if it was their largest, or their share."""
    comptime accum = accum_of[dtype]

    @always_inline
    def one(
        plane: Int, row: Int, first: Int, end: Int
    ) {var to, var grads, var indices, var windows}:
        var d = row // to.sizes[3]
        var h = row - d * to.sizes[3]
        var begin = grads.plane(plane)
        var index_begin = indices.plane(plane)
        for w in range(first, end):
            var total = Scalar[accum](0)
            var place = Int64(row * to.sizes[4] + w)
            for z in range(windows.earliest(d, 0), windows.latest(d, 0) + 1):
                for y in range(windows.earliest(h, 1), windows.latest(h, 1) + 1):
                    for x in range(windows.earliest(w, 2), windows.latest(w, 2) + 1):
                        comptime if of_max:
                            var at = indices.at(index_begin, z, y, x)
                            if indices.data[unsafe_offset=at] != place:
                                continue
                        var value = grads.data[unsafe_offset=grads.at(begin, z, y, x)].cast[accum]()
                        comptime if not of_max:
                            value /= Scalar[accum](windows.share(Three(z, y, x)))
                        total += value
            to.data[unsafe_offset=to.at(to.plane(plane), d, h, w)] = total.cast[dtype]()

    walk[target](one, to.extent(), ctx)


@extensibility.register("aten_max_pool")
struct MaxPool:
    """The largest element of each window and its place."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[rank=5, ...],
        indices: OutputTensor[dtype=DType.int64, rank=5, ...],
        input: InputTensor[dtype=output.dtype, rank=5, ...],
        k0: Int64,
        k1: Int64,
        k2: Int64,
        s0: Int64,
        s1: Int64,
        s2: Int64,
        p0: Int64,
        p1: Int64,
        p2: Int64,
        l0: Int64,
        l1: Int64,
        l2: Int64,
        ctx: DeviceContext,
    ) raises:
        var to = volumes(output)
        var source = volumes(input)
        var windows = sliding(
            source.space(), to.space(), k0, k1, k2, s0, s1, s2, p0, p1, p2, l0, l1, l2, 0, 0
        )
        max_pool[target](to, volumes(indices), source, windows, ctx)


@extensibility.register("aten_max_pool_backward")
struct MaxPoolBackward:
    """The gradients of the largest elements, where those were."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        grad_input: OutputTensor[rank=5, ...],
        grad_output: InputTensor[dtype=grad_input.dtype, rank=5, ...],
        indices: InputTensor[dtype=DType.int64, rank=5, ...],
        k0: Int64,
        k1: Int64,
        k2: Int64,
        s0: Int64,
        s1: Int64,
        s2: Int64,
        p0: Int64,
        p1: Int64,
        p2: Int64,
        l0: Int64,
        l1: Int64,
        l2: Int64,
        ctx: DeviceContext,
    ) raises:
        var to = volumes(grad_input)
        var grads = volumes(grad_output)
        var windows = sliding(
            to.space(), grads.space(), k0, k1, k2, s0, s1, s2, p0, p1, p2, l0, l1, l2, 0, 0
        )
        gather_gradient[target, True](to, grads, volumes(indices), windows, ctx)


@extensibility.register("aten_avg_pool")
struct AvgPool:
    """The mean of each window."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[rank=5, ...],
        input: InputTensor[dtype=output.dtype, rank=5, ...],
        k0: Int64,
        k1: Int64,
        k2: Int64,
        s0: Int64,
        s1: Int64,
        s2: Int64,
        p0: Int64,
        p1: Int64,
        p2: Int64,
        count_padding: Int64,
        divisor: Int64,
        ctx: DeviceContext,
    ) raises:
        var to = volumes(output)
        var source = volumes(input)
        var windows = sliding(
            source.space(),
            to.space(),
            k0,
            k1,
            k2,
            s0,
            s1,
            s2,
            p0,
            p1,
            p2,
            1,
            1,
            1,
            count_padding,
            divisor,
        )
        avg_pool[target](to, source, windows, ctx)


@extensibility.register("aten_avg_pool_backward")
struct AvgPoolBackward:
    """The gradients of the means, spread over their windows."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        grad_input: OutputTensor[rank=5, ...],
        grad_output: InputTensor[dtype=grad_input.dtype, rank=5, ...],
        k0: Int64,
        k1: Int64,
        k2: Int64,
        s0: Int64,
        s1: Int64,
        s2: Int64,
        p0: Int64,
        p1: Int64,
        p2: Int64,
        count_padding: Int64,
        divisor: Int64,
        ctx: DeviceContext,
    ) raises:
        var to = volumes(grad_input)
        var grads = volumes(grad_output)
        var windows = sliding(
            to.space(),
            grads.space(),
            k0,
            k1,
            k2,
            s0,
            s1,
            s2,
            p0,
            p1,
            p2,
            1,
            1,
            1,
            count_padding,
            divisor,
        )
        gather_gradient[target, False](to, grads, grads.with_index(), windows, ctx)


@extensibility.register("aten_adaptive_max_pool")
struct AdaptiveMaxPool:
    """The largest element of windows that cover the input evenly, and its place."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[rank=5, ...],
        indices: OutputTensor[dtype=DType.int64, rank=5, ...],
        input: InputTensor[dtype=output.dtype, rank=5, ...],
        ctx: DeviceContext,
    ) raises:
        var to = volumes(output)
        var source = volumes(input)
        var windows = Even(source.space(), to.space())
        max_pool[target](to, volumes(indices), source, windows, ctx)


@extensibility.register("aten_adaptive_max_pool_backward")
struct AdaptiveMaxPoolBackward:
    """The gradients of those, where they were."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        grad_input: OutputTensor[rank=5, ...],
        grad_output: InputTensor[dtype=grad_input.dtype, rank=5, ...],
        indices: InputTensor[dtype=DType.int64, rank=5, ...],
        ctx: DeviceContext,
    ) raises:
        var to = volumes(grad_input)
        var grads = volumes(grad_output)
        var windows = Even(to.space(), grads.space())
        gather_gradient[target, True](to, grads, volumes(indices), windows, ctx)


@extensibility.register("aten_adaptive_avg_pool")
struct AdaptiveAvgPool:
    """The mean of windows that cover the input evenly."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[rank=5, ...],
        input: InputTensor[dtype=output.dtype, rank=5, ...],
        ctx: DeviceContext,
    ) raises:
        var to = volumes(output)
        var source = volumes(input)
        avg_pool[target](to, source, Even(source.space(), to.space()), ctx)


@extensibility.register("aten_adaptive_avg_pool_backward")
struct AdaptiveAvgPoolBackward:
    """The gradients of those, spread over their windows."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        grad_input: OutputTensor[rank=5, ...],
        grad_output: InputTensor[dtype=grad_input.dtype, rank=5, ...],
        ctx: DeviceContext,
    ) raises:
        var to = volumes(grad_input)
        var grads = volumes(grad_output)
        var windows = Even(to.space(), grads.space())
        gather_gradient[target, False](to, grads, grads.with_index(), windows, ctx)
