"""Pictures (N, C, H, W) or volumes (N, C, D, H, W) read at the places of a grid, and the gradients.

In every dimension a place has some taps: pixels with a weight and with its slope, the weight's derivative. The result is
the sum over all combinations of the dimensions' taps that lie inside.
"""

import extensibility
from extensibility import InputTensor, ManagedTensorSlice, OutputTensor, elementwise
from layout import Coord, coord_to_index_list
from max.algorithm.functional import sync_parallelize
from max.gpu.host import DeviceContext
from max.runtime.asyncrt import parallelism_level
from std.atomic import Atomic
from std.collections import Array
from std.math import ceildiv, clamp, floor, iota
from std.memory import Pointer
from std.sys import simd_width_of
from std.utils.index import IndexList
from std.utils.numerics import isnan

comptime GRAIN = 8192  # taps that are worth another CPU thread
comptime accum_of[dtype: DType] = DType.float64 if dtype == .float64 else DType.float32
comptime count_of[mode: StaticString] = 1 if mode == "nearest" else 2 if mode == "bilinear" else 4
comptime Places[width: Int] = SIMD[DType.int64, width]


def spread[F: def(Int, Int) -> None](items: Int, work: Int, f: F):
    """Calls f(begin, end) on torch's threads so that all items have their turn once."""
    var tasks = min(items, min(parallelism_level(None), ceildiv(work, GRAIN)))
    if tasks <= 1:
        f(0, items)
        return

    def task(i: Int) {imm}:
        f(i * items // tasks, (i + 1) * items // tasks)

    sync_parallelize(task, tasks)


@fieldwise_init
struct Volume[dtype: DType](ImplicitlyCopyable, RegisterPassable):
    """A tensor as (N, C, D, H, W); of a grid, C are the coordinates."""

    var data: Pointer[Scalar[Self.dtype], MutUntrackedOrigin]
    var sizes: IndexList[5]
    var strides: IndexList[5]
    var step: Int  # from place to place in the order of (D, H, W), -1 if it is not always the same

    def places(self) -> Int:
        return self.sizes[2] * self.sizes[3] * self.sizes[4]

    @always_inline
    def offsets[width: Int](self, place: Int) -> Places[width]:
        """Returns where `width` places from `place` on are."""
        if self.step >= 0:
            return (iota[DType.int64, width]() + Int64(place)) * Int64(self.step)
        var found = Places[width](0)
        comptime for lane in range(width):
            var row = (place + lane) // self.sizes[4]
            var plane = row // self.sizes[3]
            found[lane] = Int64(
                (place + lane - row * self.sizes[4]) * self.strides[4]
                + (row - plane * self.sizes[3]) * self.strides[3]
                + plane * self.strides[2]
            )
        return found

    @always_inline
    def load[
        width: Int
    ](self, batch: Int, channel: Int, offsets: Places[width]) -> SIMD[Self.dtype, width]:
        """Returns the values of a channel at some offsets; neighbours, if the step is 1."""
        var base = batch * self.strides[0] + channel * self.strides[1]
        comptime if width > 1:
            if self.step == 1:
                return self.data.unsafe_load[width=width](base + Int(offsets[0]))
        var found = SIMD[Self.dtype, width]()
        comptime for lane in range(width):
            found[lane] = self.data[unsafe_offset=base + Int(offsets[lane])]
        return found


def volume[grid: Bool](x: ManagedTensorSlice) -> Volume[x.dtype]:
    """Returns a tensor of rank 4 or 5 as volumes."""
    comptime assert x.rank == 4 or x.rank == 5
    var sizes = IndexList[5](1)
    var strides = IndexList[5](0)
    sizes[0] = x.dim_size(0)
    strides[0] = x.stride_length(0)
    comptime channel = x.rank - 1 if grid else 1
    sizes[1] = x.dim_size(channel)
    strides[1] = x.stride_length(channel)
    comptime for i in range(x.rank - 2):
        comptime d = x.rank - 1 - i - Int(grid)
        sizes[4 - i] = x.dim_size(d)
        strides[4 - i] = x.stride_length(d)
    var step = 0
    var expected = -1
    for i in range(3):
        var d = 4 - i
        if sizes[d] != 1:
            if expected < 0:
                step = strides[d]
            elif strides[d] != expected:
                step = -1
                break
            expected = strides[d] * sizes[d]
    return {
        Pointer[Scalar[x.dtype], MutUntrackedOrigin](unsafe_from_address=Int(x.unsafe_ptr())),
        sizes,
        strides,
        step,
    }


# Where a place lies in one dimension


@fieldwise_init
struct Mapped[dtype: DType, width: Int](ImplicitlyCopyable, RegisterPassable):
    """A coordinate and its derivative."""

    var at: SIMD[Self.dtype, Self.width]
    var slope: SIMD[Self.dtype, Self.width]


@always_inline
def padded[
    padding: StaticString, dtype: DType, width: Int
](x: SIMD[dtype, width], size: Int, align: Bool) -> Mapped[
    dtype, width
] where dtype.is_floating_point():
    """Returns a coordinate outside brought back inside, unless zeros are there."""
    comptime Value = SIMD[dtype, width]
    comptime if padding == "zeros":
        return {x, Value(1)}
    var at = x
    var slope = Value(1)
    comptime if padding == "reflection":
        var low = Scalar[dtype](0) if align else Scalar[dtype](-0.5)
        var span = Scalar[dtype](size - 1 if align else size)
        var from_low = x - low
        slope = from_low.lt(0).select(Value(-1), Value(1))
        from_low = abs(from_low)
        var flips = floor(from_low / span)
        var rest = from_low - flips * span
        var odd = (flips - 2 * floor(flips * 0.5)).ne(0)
        at = odd.select(span - rest, rest) + low
        slope = odd.select(-slope, slope)
        if span == 0:
            at = Value(0)
            slope = Value(0)
    var last = Scalar[dtype](size - 1)
    slope = (at.le(0) | at.ge(last)).select(Value(0), slope)
    return {clamp(at, Value(0), Value(last)), slope}


struct Taps[dtype: DType, width: Int, count: Int](Copyable, Movable):
    """The taps of one dimension."""

    var index: Array[Places[Self.width], Self.count]
    var inside: Array[SIMD[DType.bool, Self.width], Self.count]
    var weight: Array[SIMD[Self.dtype, Self.width], Self.count]
    var slope: Array[SIMD[Self.dtype, Self.width], Self.count]

    @always_inline
    def __init__(out self):
        """One tap at 0: a dimension that is not there."""
        self.index = {fill = 0}
        self.inside = {fill = SIMD[DType.bool, Self.width](fill=True)}
        self.weight = {fill = 1}
        self.slope = {fill = 0}

    @always_inline
    def put(mut self, k: Int, at: SIMD[Self.dtype, Self.width], size: Int):
        """Sets the pixel of a tap; outside, it is one that can be read."""
        self.inside[k] = at.ge(0) & at.lt(Scalar[Self.dtype](size))
        self.index[k] = self.inside[k].select(at.cast[DType.int64](), Places[Self.width](0))


@always_inline
def taps_of[
    mode: StaticString, padding: StaticString, dtype: DType, width: Int
](x: SIMD[dtype, width], size: Int, align: Bool) -> Taps[
    dtype, width, count_of[mode]
] where dtype.is_floating_point():
    """Returns the taps for a coordinate from -1 to 1."""
    comptime Value = SIMD[dtype, width]
    var taps = Taps[dtype, width, count_of[mode]]()
    var factor = Scalar[dtype](size - 1 if align else size) * 0.5
    var at = (x + 1) * factor - (Scalar[dtype](0) if align else Scalar[dtype](0.5))
    at = isnan(at).select(Value(-100), clamp(at, Value(-1e9), Value(1e9)))
    comptime if mode == "bicubic":
        # Keys' cubic convolution, https://doi.org/10.1109/TASSP.1981.1163711, with a = -0.75
        comptime a = Scalar[dtype](-0.75)
        var base = floor(at)
        var t = at - base
        comptime for k in range(4):
            var d = t + 1 if k == 0 else t if k == 1 else 1 - t if k == 2 else 2 - t
            comptime sign = Scalar[dtype](1 if k < 2 else -1)
            comptime if k == 1 or k == 2:
                taps.weight[k] = ((a + 2) * d - (a + 3)) * d * d + 1
                taps.slope[k] = sign * factor * (3 * (a + 2) * d - 2 * (a + 3)) * d
            else:
                taps.weight[k] = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
                taps.slope[k] = sign * factor * ((3 * a * d - 10 * a) * d + 8 * a)
            taps.put(k, padded[padding](base + Scalar[dtype](k - 1), size, align).at, size)
    else:
        var mapped = padded[padding](at, size, align)
        comptime if mode == "nearest":
            taps.put(0, round(mapped.at), size)
        else:
            var base = floor(mapped.at)
            taps.weight[1] = mapped.at - base
            taps.weight[0] = 1 - taps.weight[1]
            taps.slope[1] = mapped.slope * factor
            taps.slope[0] = -taps.slope[1]
            taps.put(0, base, size)
            taps.put(1, base + 1, size)
    return taps^


struct Sites[dtype: DType, width: Int, across: Int, deep: Int](Copyable, Movable):
    """All taps of `width` places in a picture or a volume: across * across * deep."""

    comptime count = Self.across * Self.across * Self.deep
    var x: Taps[Self.dtype, Self.width, Self.across]
    var y: Taps[Self.dtype, Self.width, Self.across]
    var z: Taps[Self.dtype, Self.width, Self.deep]
    var offset: Array[Places[Self.width], Self.count]
    var inside: Array[SIMD[DType.bool, Self.width], Self.count]

    @always_inline
    def __init__(
        out self,
        var x: Taps[Self.dtype, Self.width, Self.across],
        var y: Taps[Self.dtype, Self.width, Self.across],
        var z: Taps[Self.dtype, Self.width, Self.deep],
        strides: IndexList[5],
    ):
        self.offset = {fill = 0}
        self.inside = {fill = SIMD[DType.bool, Self.width](fill=True)}
        comptime for k in range(Self.count):
            comptime i = k % Self.across
            comptime j = k // Self.across % Self.across
            comptime l = k // (Self.across * Self.across)
            self.offset[k] = x.index[i] * Int64(strides[4]) + y.index[j] * Int64(strides[3])
            self.inside[k] = x.inside[i] & y.inside[j]
            comptime if Self.deep > 1:
                self.offset[k] += z.index[l] * Int64(strides[2])
                self.inside[k] &= z.inside[l]
        self.x = x^
        self.y = y^
        self.z = z^

    @always_inline
    def factor[k: Int, slope: Int](self) -> SIMD[Self.dtype, Self.width]:
        """Returns a tap's weight, or its derivative for coordinate `slope`: 0 is x, -1 none."""
        comptime i = k % Self.across
        comptime j = k // Self.across % Self.across
        comptime l = k // (Self.across * Self.across)
        var x = self.x.slope[i] if slope == 0 else self.x.weight[i]
        var y = self.y.slope[j] if slope == 1 else self.y.weight[j]
        comptime if Self.deep == 1:
            return x * y
        return x * y * (self.z.slope[l] if slope == 2 else self.z.weight[l])


@always_inline
def read[
    dtype: DType, width: Int
](
    data: Pointer[Scalar[dtype], MutUntrackedOrigin],
    base: Int,
    offset: Places[width],
    inside: SIMD[DType.bool, width],
) -> SIMD[dtype, width]:
    """Returns the pixels of a tap, 0 for what is outside."""
    var found = SIMD[dtype, width]()
    comptime for lane in range(width):
        found[lane] = data[unsafe_offset=base + Int(offset[lane])]
    return inside.select(found, SIMD[dtype, width](0))


@fieldwise_init
struct Sampler[dtype: DType, mode: StaticString, padding: StaticString, rank: Int](
    ImplicitlyCopyable, RegisterPassable
):
    """What all three kernels share."""

    comptime accum = accum_of[Self.dtype]
    comptime across = count_of[Self.mode]
    comptime deep = Self.across if Self.rank == 5 else 1
    comptime count = Self.across * Self.across * Self.deep

    var input: Volume[Self.dtype]
    var grid: Volume[Self.dtype]
    var align: Bool

    @always_inline
    def sites[
        width: Int
    ](self, batch: Int, place: Int, strides: IndexList[5]) -> Sites[
        Self.accum, width, Self.across, Self.deep
    ]:
        """Returns the taps of `width` places, as offsets by the given strides."""
        comptime assert Self.accum.is_floating_point()
        comptime of = taps_of[Self.mode, Self.padding, Self.accum, width]
        var at = self.grid.offsets[width](place)

        @always_inline
        def coordinate(channel: Int) {imm} -> SIMD[Self.accum, width]:
            var found = SIMD[Self.dtype, width]()
            var base = batch * self.grid.strides[0] + channel * self.grid.strides[1]
            comptime for lane in range(width):
                found[lane] = self.grid.data[unsafe_offset=base + Int(at[lane])]
            return found.cast[Self.accum]()

        var z = Taps[Self.accum, width, Self.deep]()
        comptime if Self.rank == 5:
            z = rebind_var[Taps[Self.accum, width, Self.deep]](
                of(coordinate(2), self.input.sizes[2], self.align)
            )
        return {
            of(coordinate(0), self.input.sizes[4], self.align),
            of(coordinate(1), self.input.sizes[3], self.align),
            z^,
            strides,
        }

    @always_inline
    def sample[width: Int](self, batch: Int, place: Int, output: Volume[Self.dtype]):
        """Writes all channels of `width` places."""
        var sites = self.sites[width](batch, place, self.input.strides)
        var weights = Array[SIMD[Self.accum, width], Self.count](fill=0)
        comptime for k in range(Self.count):
            weights[k] = sites.factor[k, -1]()
        for channel in range(output.sizes[1]):
            var base = batch * self.input.strides[0] + channel * self.input.strides[1]
            var total = SIMD[Self.accum, width](0)
            comptime for k in range(Self.count):
                var pixels = read(self.input.data, base, sites.offset[k], sites.inside[k])
                total += weights[k] * pixels.cast[Self.accum]()
            var to = batch * output.strides[0] + channel * output.strides[1] + place
            output.data.unsafe_store(to, total.cast[Self.dtype]())

    @always_inline
    def slopes[
        width: Int
    ](self, batch: Int, place: Int, grad: Volume[Self.dtype], to: Volume[Self.dtype]):
        """Writes the gradients of `width` places' coordinates."""
        var sites = self.sites[width](batch, place, self.input.strides)
        comptime dims = Self.rank - 2
        comptime Value = SIMD[Self.accum, width]
        var totals = Array[Value, 3](fill=0)
        comptime if Self.mode != "nearest":
            var at = grad.offsets[width](place)
            for channel in range(grad.sizes[1]):
                var base = batch * self.input.strides[0] + channel * self.input.strides[1]
                var g = grad.load[width](batch, channel, at).cast[Self.accum]()
                comptime for k in range(Self.count):
                    var pixels = read(self.input.data, base, sites.offset[k], sites.inside[k])
                    var value = g * pixels.cast[Self.accum]()
                    comptime for d in range(dims):
                        totals[d] += value * sites.factor[k, d]()
        comptime for d in range(dims):
            comptime for lane in range(width):
                var at = batch * to.strides[0] + (place + lane) * dims + d
                to.data[unsafe_offset=at] = totals[d][lane].cast[Self.dtype]()

    @always_inline
    def scatter[
        width: Int, atomic: Bool
    ](
        self,
        batch: Int,
        place: Int,
        grad: Volume[Self.dtype],
        to: Volume[Self.accum],
        first: Int,
        end: Int,
    ):
        """Adds to the pixels that `width` places have read, in some channels."""
        var sites = self.sites[width](batch, place, to.strides)
        var weights = Array[SIMD[Self.accum, width], Self.count](fill=0)
        comptime for k in range(Self.count):
            weights[k] = sites.factor[k, -1]()
        var at = grad.offsets[width](place)
        for channel in range(first, end):
            var g = grad.load[width](batch, channel, at).cast[Self.accum]()
            var base = batch * to.strides[0] + channel * to.strides[1]
            comptime for k in range(Self.count):
                var value = g * weights[k]
                comptime for lane in range(width):
                    if sites.inside[k][lane]:
                        var cell = to.data.unsafe_offset(base + Int(sites.offset[k][lane]))
                        comptime if atomic:
                            _ = Atomic.fetch_add(cell, value[lane])
                        else:
                            cell[] += value[lane]


@always_inline
def each_place[
    F: def[width: Int](Int, Int) -> None, //, native: Int
](places: Int, begin: Int, end: Int, f: F):
    """Calls f[width](batch, place) for blocks of places on the CPU, and one by one at the end of a batch."""
    var blocks = ceildiv(places, native)
    for item in range(begin, end):
        var batch = item // blocks
        var place = (item - batch * blocks) * native
        if place + native <= places:
            f[native](batch, place)
        else:
            for one in range(place, places):
                f[1](batch, one)


@extensibility.register("grid_sample")
struct GridSample:
    """Reads the input."""

    @staticmethod
    def execute[
        target: StaticString, mode: StaticString, padding_mode: StaticString
    ](
        output: OutputTensor,
        input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        grid: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        align_corners: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime dtype = output.dtype
        var sampler = Sampler[dtype, mode, padding_mode, output.rank](
            volume[False](input), volume[True](grid), align_corners != 0
        )
        var to = volume[False](output)
        var places = to.places()
        var batches = to.sizes[0]
        if batches * places == 0:
            return

        comptime if target == "cpu":
            comptime native = simd_width_of[DType.float32]()

            @always_inline
            def one[width: Int](batch: Int, place: Int) {imm}:
                sampler.sample[width](batch, place, to)

            def run(begin: Int, end: Int) {imm}:
                each_place[native](places, begin, end, one)

            spread(batches * ceildiv(places, native), batches * places * to.sizes[1], run)
        else:

            @always_inline
            def at[width: Int, alignment: Int = 1](at: Coord) {var sampler, var to}:
                var index = coord_to_index_list(at)
                sampler.sample[1](Int(index[0]), Int(index[1]), to)

            elementwise[1, target=target](at, Coord(IndexList[2](batches, places)), ctx)


@extensibility.register("grid_sample_grid_backward")
struct GridSampleGridBackward:
    """The gradient of the grid."""

    @staticmethod
    def execute[
        target: StaticString, mode: StaticString, padding_mode: StaticString
    ](
        grad_grid: OutputTensor,
        grad_output: InputTensor[dtype=grad_grid.dtype, rank=grad_grid.rank, ...],
        input: InputTensor[dtype=grad_grid.dtype, rank=grad_grid.rank, ...],
        grid: InputTensor[dtype=grad_grid.dtype, rank=grad_grid.rank, ...],
        align_corners: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime dtype = grad_grid.dtype
        var sampler = Sampler[dtype, mode, padding_mode, grad_grid.rank](
            volume[False](input), volume[True](grid), align_corners != 0
        )
        var grad = volume[False](grad_output)
        var to = volume[True](grad_grid)
        var places = to.places()
        var batches = to.sizes[0]
        if batches * places == 0:
            return

        comptime if target == "cpu":
            comptime native = simd_width_of[DType.float32]()

            @always_inline
            def one[width: Int](batch: Int, place: Int) {imm}:
                sampler.slopes[width](batch, place, grad, to)

            def run(begin: Int, end: Int) {imm}:
                each_place[native](places, begin, end, one)

            spread(batches * ceildiv(places, native), batches * places * grad.sizes[1], run)
        else:

            @always_inline
            def at[width: Int, alignment: Int = 1](at: Coord) {var sampler, var grad, var to}:
                var index = coord_to_index_list(at)
                sampler.slopes[1](Int(index[0]), Int(index[1]), grad, to)

            elementwise[1, target=target](at, Coord(IndexList[2](batches, places)), ctx)


@extensibility.register("grid_sample_input_backward")
struct GridSampleInputBackward:
    """The gradient of the input: on the CPU a thread has some channels for itself, a GPU adds atomically."""

    @staticmethod
    def execute[
        target: StaticString, mode: StaticString, padding_mode: StaticString
    ](
        grad_input: OutputTensor,
        grad_output: InputTensor[rank=grad_input.rank, ...],
        input: InputTensor[dtype=grad_output.dtype, rank=grad_input.rank, ...],
        grid: InputTensor[dtype=grad_output.dtype, rank=grad_input.rank, ...],
        align_corners: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime dtype = grad_output.dtype
        comptime accum = accum_of[dtype]
        comptime assert grad_input.dtype == accum
        var sampler = Sampler[dtype, mode, padding_mode, grad_input.rank](
            volume[False](input), volume[True](grid), align_corners != 0
        )
        var grad = volume[False](grad_output)
        var plain = volume[False](grad_input)
        var to = Volume[accum](
            Pointer[Scalar[accum], MutUntrackedOrigin](unsafe_from_address=Int(plain.data)),
            plain.sizes,
            plain.strides,
            plain.step,
        )
        var places = grad.places()
        var batches = to.sizes[0]
        var channels = to.sizes[1]
        var pixels = to.places()
        if batches * channels * pixels == 0:
            return

        comptime if target == "cpu":
            comptime native = simd_width_of[DType.float32]()
            var groups = min(channels, ceildiv(parallelism_level(None), batches))

            def run(begin: Int, end: Int) {imm}:
                for item in range(begin, end):
                    var batch = item // groups
                    var group = item - batch * groups
                    var first = group * channels // groups
                    var last = (group + 1) * channels // groups
                    var begin_of = (batch * channels + first) * pixels
                    for i in range(begin_of, begin_of + (last - first) * pixels):
                        to.data[unsafe_offset=i] = 0

                    @always_inline
                    def one[width: Int](_batch: Int, place: Int) {imm}:
                        sampler.scatter[width, False](batch, place, grad, to, first, last)

                    each_place[native](places, 0, ceildiv(places, native), one)

            spread(batches * groups, batches * channels * (places + pixels), run)
        else:

            @always_inline
            def clear[width: Int, alignment: Int = 1](at: Coord) {var to}:
                to.data[unsafe_offset=Int(coord_to_index_list(at)[0])] = 0

            elementwise[1, target=target](
                clear, Coord(IndexList[1](batches * channels * pixels)), ctx
            )
            if places == 0:
                return

            @always_inline
            def at[width: Int, alignment: Int = 1](at: Coord) {var sampler, var grad, var to}:
                var index = coord_to_index_list(at)
                sampler.scatter[1, True](Int(index[0]), Int(index[1]), grad, to, 0, to.sizes[1])

            elementwise[1, target=target](at, Coord(IndexList[2](batches, places)), ctx)
