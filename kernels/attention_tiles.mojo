"""What the passes of attention share: the tensors of a call, and tiles of scores on the CPU.

A tile has `LANES` columns, which fill the vectors: queries in the passes that go over queries, keys in the one that goes
over keys. What runs along the other side comes row by row as it lies in memory and is broadcast, so that nothing of it
has to be packed, and maxima and sums need no step across a vector.
"""

from std.collections import Array
from std.math import align_up, exp
from std.memory import Pointer
from std.sys import simd_width_of
from std.utils.index import IndexList
from std.utils.numerics import neg_inf

from extensibility import ManagedTensorSlice

comptime wide_of[dtype: DType] = DType.float64 if dtype == .float64 else DType.float32
comptime Place[dtype: DType] = Pointer[Scalar[dtype], MutUntrackedOrigin]

comptime LANES = 64
comptime ROWS = 96  # of a tile

comptime MASK = 0  # what `blend` does with a tensor: where it is 0, minus infinity
comptime ADD = 1
comptime TIMES = 2


@always_inline
def raised[dtype: DType, width: SIMDLength, //](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Returns e to the power of x, and exactly 0 for minus infinity."""
    comptime assert dtype.is_floating_point()
    return x.eq(neg_inf[dtype]()).select(SIMD[dtype, width](0), exp(x))


@fieldwise_init
struct Grid[dtype: DType](ImplicitlyCopyable, RegisterPassable):
    """A tensor of up to four dimensions."""

    var data: Place[Self.dtype]
    var strides: IndexList[4]

    @always_inline
    def at(self, a: Int, b: Int, c: Int = 0) -> Place[Self.dtype]:
        return self.data.unsafe_offset(
            a * self.strides[0] + b * self.strides[1] + c * self.strides[2]
        )


@always_inline
def grid_of(x: ManagedTensorSlice) -> Grid[x.dtype]:
    var strides = IndexList[4](0)
    comptime for d in range(x.rank):
        strides[d] = x.stride_length(d)
    return {Place[x.dtype](unsafe_from_address=Int(x.unsafe_ptr())), strides}


@always_inline
def broadcast_grid_of(x: ManagedTensorSlice) -> Grid[x.dtype]:
    """Returns a tensor whose dimensions of one element stand for any number."""
    var found = grid_of(x)
    comptime for d in range(x.rank):
        if x.dim_size(d) == 1:
            found.strides[d] = 0
    return found


@fieldwise_init
struct Problem[dtype: DType, mask_dtype: DType, has_mask: Bool, keep_dtype: DType, has_keep: Bool](
    ImplicitlyCopyable, RegisterPassable
):
    """The arguments of a call. query is (batch, heads, queries, size), value (batch, kv heads, keys, value size)."""

    comptime wide = wide_of[Self.dtype]

    var query: Grid[Self.dtype]
    var key: Grid[Self.dtype]
    var value: Grid[Self.dtype]
    var mask: Grid[Self.mask_dtype]
    var keep: Grid[Self.keep_dtype]
    var batch: Int
    var heads: Int
    var group: Int  # heads for each head of key and value
    var queries: Int
    var keys: Int
    var size: Int
    var value_size: Int
    var causal: Bool
    var scale: Scalar[Self.wide]
    var keep_scale: Scalar[Self.wide]

    @always_inline
    def hide[
        queries_in_lanes: Bool
    ](
        self,
        tile: Place[Self.wide],
        sequence: Int,
        head: Int,
        first_row: Int,
        rows: Int,
        first_lane: Int,
        lanes: Int,
    ):
        """Applies the mask and causality to a tile of scores."""
        comptime if Self.has_mask:
            var data = self.mask.at(sequence, head)
            comptime kind = ADD if Self.mask_dtype.is_floating_point() else MASK
            comptime q = 1 if queries_in_lanes else 0
            var row_step = self.mask.strides[2 + q]
            var lane_step = self.mask.strides[3 - q]
            data = data.unsafe_offset(first_row * row_step + first_lane * lane_step)
            blend[kind](data, row_step, lane_step, tile, rows, lanes, 1)
        if self.causal:
            for r in range(rows):
                var row = tile.unsafe_offset(r * LANES)
                comptime if queries_in_lanes:
                    for i in range(min(first_row + r - first_lane, lanes)):
                        row[unsafe_offset=i] = neg_inf[Self.wide]()
                else:
                    for i in range(max(first_row + r - first_lane + 1, 0), lanes):
                        row[unsafe_offset=i] = neg_inf[Self.wide]()

    @always_inline
    def drop[
        queries_in_lanes: Bool
    ](
        self,
        tile: Place[Self.wide],
        sequence: Int,
        head: Int,
        first_row: Int,
        rows: Int,
        first_lane: Int,
        lanes: Int,
    ):
        """Applies dropout to a tile of weights, or of their gradients."""
        comptime if Self.has_keep:
            var data = self.keep.at(sequence, head)
            comptime q = 1 if queries_in_lanes else 0
            var row_step = self.keep.strides[2 + q]
            var lane_step = self.keep.strides[3 - q]
            data = data.unsafe_offset(first_row * row_step + first_lane * lane_step)
            blend[TIMES](data, row_step, lane_step, tile, rows, lanes, self.keep_scale)


def blend[
    dtype: DType, wide: DType, //, kind: Int
](
    data: Place[dtype],
    row_step: Int,
    lane_step: Int,
    tile: Place[wide],
    rows: Int,
    lanes: Int,
    factor: Scalar[wide],
):
    """Combines a tile with a tensor of its shape, in place."""
    comptime native = simd_width_of[wide]()

    @always_inline
    def put[width: Int](at: Int, found: SIMD[dtype, width]) {imm}:
        var old = tile.unsafe_load[width=width](at)
        comptime if kind == MASK:
            tile.unsafe_store(at, found.eq(0).select(SIMD[wide, width](neg_inf[wide]()), old))
        elif kind == ADD:
            tile.unsafe_store(at, old + found.cast[wide]())
        else:
            tile.unsafe_store(at, old * found.cast[wide]() * factor)

    if lane_step == 0:
        for r in range(rows):
            var found = SIMD[dtype, native](data[unsafe_offset=r * row_step])
            for i in range(0, align_up(lanes, native), native):
                put[native](r * LANES + i, found)
    elif lane_step == 1:
        for r in range(rows):
            var whole = lanes // native * native
            for i in range(0, whole, native):
                put[native](r * LANES + i, data.unsafe_load[width=native](r * row_step + i))
            for i in range(whole, lanes):
                put[1](r * LANES + i, data[unsafe_offset=r * row_step + i])
    else:
        for r in range(rows):
            for i in range(0, lanes, native):
                var found = SIMD[dtype, native](0)
                comptime for lane in range(native):
                    var at = r * row_step + min(i + lane, lanes - 1) * lane_step
                    found[lane] = data[unsafe_offset=at]
                put[native](r * LANES + i, found)


@always_inline
def block[
    dtype: DType, //, rows: Int, across: Bool
](a: Place[dtype], pitch: Int, b: Place[dtype], c: Place[dtype], depth: Int, fresh: Bool):
    """Computes `rows` rows of `product`, two vectors wide."""
    comptime width = simd_width_of[dtype]()
    var sum = Array[SIMD[dtype, width], 2 * rows](fill=0)
    if not fresh:
        comptime for r in range(rows):
            sum[2 * r] = c.unsafe_load[width=width](r * LANES)
            sum[2 * r + 1] = c.unsafe_load[width=width](r * LANES + width)
    for k in range(depth):
        var left = b.unsafe_load[width=width](k * LANES)
        var right = b.unsafe_load[width=width](k * LANES + width)
        comptime for r in range(rows):
            var at: Int
            comptime if across:
                at = k * pitch + r
            else:
                at = r * pitch + k
            var one = SIMD[dtype, width](a[unsafe_offset=at])
            sum[2 * r] = left.fma(one, sum[2 * r])
            sum[2 * r + 1] = right.fma(one, sum[2 * r + 1])
    comptime for r in range(rows):
        c.unsafe_store(r * LANES, sum[2 * r])
        c.unsafe_store(r * LANES + width, sum[2 * r + 1])


def product[
    dtype: DType, //, across: Bool
](
    a: Place[dtype],
    pitch: Int,
    b: Place[dtype],
    c: Place[dtype],
    rows: Int,
    depth: Int,
    lanes: Int,
    fresh: Bool,
):
    """Adds a . b to c, or writes it if c is fresh: b is depth x LANES, c rows x LANES.

    Parameters:
        dtype: of all.
        across: whether a is given as depth x rows, not rows x depth.

    Args:
        a: has `pitch` elements from line to line.
        lanes: how many of the columns count.
    """
    comptime width = 2 * simd_width_of[dtype]()
    var step = 1 if across else pitch
    var r = 0

    @always_inline
    def go[size: Int]() {mut r, imm}:
        while r + size <= rows:
            for i in range(0, lanes, width):
                block[size, across](
                    a.unsafe_offset(r * step),
                    pitch,
                    b.unsafe_offset(i),
                    c.unsafe_offset(r * LANES + i),
                    depth,
                    fresh,
                )
            r += size

    go[6]()
    go[4]()
    go[1]()


@always_inline
def pack[
    dtype: DType, wide: DType
](
    rows: Grid[dtype],
    first: Place[dtype],
    count: Int,
    lanes: Int,
    size: Int,
    factor: Scalar[wide],
    into: Place[wide],
):
    """Turns `count` rows into the first of `lanes` columns of a tile, zeros into the others."""
    for i in range(count):
        var row = first.unsafe_offset(i * rows.strides[2])
        for d in range(size):
            var value = row[unsafe_offset=d * rows.strides[3]].cast[wide]()
            into[unsafe_offset=d * LANES + i] = value * factor
    for d in range(size):
        for i in range(count, lanes):
            into[unsafe_offset=d * LANES + i] = 0


@always_inline
def clear[dtype: DType](tile: Place[dtype], rows: Int, lanes: Int):
    comptime native = simd_width_of[dtype]()
    for r in range(rows):
        for i in range(0, lanes, native):
            tile.unsafe_store(r * LANES + i, SIMD[dtype, native](0))


@always_inline
def unpack[
    dtype: DType, wide: DType
](
    tile: Place[wide],
    rows: Grid[dtype],
    first: Place[dtype],
    count: Int,
    size: Int,
    factor: Scalar[wide],
):
    """Turns the columns of a tile into rows."""
    for i in range(count):
        for d in range(size):
            var value = tile[unsafe_offset=d * LANES + i] * factor
            first[unsafe_offset=i * rows.strides[2] + d * rows.strides[3]] = value.cast[dtype]()


@always_inline
def lines[
    dtype: DType, wide: DType
](
    rows: Grid[dtype],
    sequence: Int,
    head: Int,
    first: Int,
    count: Int,
    size: Int,
    spare: Place[wide],
    mut pitch: Int,
) -> Place[wide]:
    """Returns `count` rows with their elements side by side: where they are, or converted into `spare`."""
    var data = rows.at(sequence, head, first)
    comptime if dtype == wide:
        if rows.strides[3] == 1:
            pitch = rows.strides[2]
            return rebind[Place[wide]](data)
    pitch = size
    comptime native = simd_width_of[wide]()
    for r in range(count):
        var line = data.unsafe_offset(r * rows.strides[2])
        var whole = size // native * native if rows.strides[3] == 1 else 0
        for d in range(0, whole, native):
            spare.unsafe_store(r * size + d, line.unsafe_load[width=native](d).cast[wide]())
        for d in range(whole, size):
            spare[unsafe_offset=r * size + d] = line[unsafe_offset=d * rows.strides[3]].cast[wide]()
    return spare
