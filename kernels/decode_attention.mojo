"""Attention of one query token for each sequence against a cache of keys and values.

The heads of a group share a head of the cache, which is read once for all of them. A span of positions gives each head
a maximum, a sum and a weighted sum of values that is not divided yet; spans of one sequence are joined afterwards.
"""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.algorithm.functional import sync_parallelize
from max.gpu import block_idx, thread_idx
from max.gpu.host import DeviceContext
from max.gpu.primitives import warp
from max.gpu.sync import barrier
from std.collections import Array
from std.math import align_up, ceildiv, exp
from std.memory import Pointer, unsafe_stack_allocation
from std.sys import simd_width_of, size_of
from std.utils.index import IndexList
from std.utils.numerics import neg_inf

comptime wide_of[dtype: DType] = DType.float64 if dtype == .float64 else DType.float32
comptime Place[dtype: DType] = Pointer[Scalar[dtype], MutUntrackedOrigin]

comptime TILE = 64  # positions whose scores a CPU thread keeps at a time
comptime WARPS = 4  # in a block
comptime AHEAD = 4  # rows that a GPU thread has under way
comptime JOINING = 128  # threads that join the spans of a head


@always_inline
def place_of[dtype: DType](data: Pointer[Scalar[dtype], _]) -> Place[dtype]:
    return Place[dtype](unsafe_from_address=Int(data))


@always_inline
def raised[dtype: DType, width: SIMDLength, //](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Returns e to the power of x."""
    comptime assert dtype.is_floating_point()
    return exp(x)


@fieldwise_init
struct Grid[dtype: DType](ImplicitlyCopyable, RegisterPassable):
    """A tensor of four dimensions."""

    var data: Place[Self.dtype]
    var strides: IndexList[4]

    @always_inline
    def at(self, a: Int, b: Int, c: Int) -> Place[Self.dtype]:
        return self.data.unsafe_offset(
            a * self.strides[0] + b * self.strides[1] + c * self.strides[2]
        )

    def packed(self, vector: Int) -> Bool:
        """Tells whether each row can be read `vector` elements at a time, aligned."""
        return (
            self.strides[3] == 1
            and self.strides[0] % vector == 0
            and self.strides[1] % vector == 0
            and self.strides[2] % vector == 0
            and Int(self.data) % (vector * size_of[Self.dtype]()) == 0
        )


@fieldwise_init
struct Problem[dtype: DType, index: DType, head_dim: Int, group: Int](
    ImplicitlyCopyable, RegisterPassable
):
    """The tensors of a call. `spans` is in how many a sequence is cut; with one, `partial` is not used."""

    comptime wide = wide_of[Self.dtype]

    var query: Grid[Self.dtype]  # batch, kv head, head of the group, feature
    var keys: Grid[Self.dtype]
    var values: Grid[Self.dtype]
    var lengths: Place[Self.index]
    var lengths_step: Int
    var capacity: Int
    var output: Place[Self.dtype]
    var partial: Place[Self.wide]
    var stats: Place[Self.wide]
    var batch: Int
    var kv_heads: Int
    var spans: Int
    var scale: Scalar[Self.wide]

    @always_inline
    def span(self, sequence: Int, number: Int) -> IndexList[2]:
        """Returns the positions from and to which a span of a sequence goes."""
        var length = Int(self.lengths[unsafe_offset=sequence * self.lengths_step])
        length = max(min(length, self.capacity), 0)
        var size = align_up(ceildiv(length, self.spans), 16)
        return {min(number * size, length), min((number + 1) * size, length)}

    @always_inline
    def row(self, sequence: Int, kv_head: Int, g: Int) -> Int:
        """Returns the number of a head among all of the output."""
        return (sequence * self.kv_heads + kv_head) * Self.group + g


# CPU: a thread takes a span for all heads of a group.


@always_inline
def at_step[
    dtype: DType, width: Int
](data: Place[dtype], at: Int, step: Int) -> SIMD[wide_of[dtype], width]:
    """Returns `width` neighbours; only single elements may be further apart than one."""
    comptime if width == 1:
        return SIMD[wide_of[dtype], width](data[unsafe_offset=at * step].cast[wide_of[dtype]]())
    else:
        return data.unsafe_load[width=width](at).cast[wide_of[dtype]]()


def span_on_cpu[
    dtype: DType, index: DType, head_dim: Int, group: Int, //, width: Int
](p: Problem[dtype, index, head_dim, group], sequence: Int, kv_head: Int, number: Int):
    comptime wide = wide_of[dtype]
    comptime whole = head_dim // width * width
    var query = unsafe_stack_allocation[group * head_dim, Scalar[wide]]()
    var total = unsafe_stack_allocation[group * head_dim, Scalar[wide]]()
    var scores = unsafe_stack_allocation[group * TILE, Scalar[wide]]()
    var most = Array[Scalar[wide], group](fill=neg_inf[wide]())
    var sums = Array[Scalar[wide], group](fill=0)
    for g in range(group):
        var head = p.query.at(sequence, kv_head, g)
        for i in range(head_dim):
            var value = head[unsafe_offset=i * p.query.strides[3]].cast[wide]()
            query[unsafe_offset=g * head_dim + i] = value * p.scale
            total[unsafe_offset=g * head_dim + i] = 0

    @always_inline
    def score[rows: Int](first: Int, into: Int) {imm}:
        """Computes the scores of `rows` positions for all heads."""
        for g in range(group):
            var sum = Array[SIMD[wide, width], rows](fill=0)
            var own = query.unsafe_offset(g * head_dim)
            for i in range(0, whole, width):
                var q = own.unsafe_load[width=width](i)
                comptime for r in range(rows):
                    var key = p.keys.at(sequence, kv_head, first + r)
                    sum[r] = at_step[dtype, width](key, i, p.keys.strides[3]).fma(q, sum[r])
            comptime for r in range(rows):
                var one = sum[r].reduce_add()
                comptime for i in range(whole, head_dim):
                    var key = p.keys.at(sequence, kv_head, first + r)
                    one += at_step[dtype, 1](key, i, p.keys.strides[3])[0] * own[unsafe_offset=i]
                scores[unsafe_offset=g * TILE + into + r] = one

    @always_inline
    def add[lanes: Int, vectors: Int](g: Int, feature: Int, first: Int, count: Int) {imm}:
        """Adds the weighted values of `count` positions, some features of them."""
        var into = total.unsafe_offset(g * head_dim + feature)
        var sum = Array[SIMD[wide, lanes], vectors](fill=0)
        comptime for v in range(vectors):
            sum[v] = into.unsafe_load[width=lanes](v * lanes)
        for t in range(count):
            var value = p.values.at(sequence, kv_head, first + t)
            var weight = SIMD[wide, lanes](scores[unsafe_offset=g * TILE + t])
            comptime for v in range(vectors):
                var some = at_step[dtype, lanes](value, feature + v * lanes, p.values.strides[3])
                sum[v] = some.fma(weight, sum[v])
        comptime for v in range(vectors):
            into.unsafe_store(v * lanes, sum[v])

    var positions = p.span(sequence, number)
    for first in range(positions[0], positions[1], TILE):
        var count = min(TILE, positions[1] - first)
        for t in range(0, count - 3, 4):
            score[4](first + t, t)
        for t in range(count // 4 * 4, count):
            score[1](first + t, t)
        for g in range(group):
            var own = scores.unsafe_offset(g * TILE)
            var top = most[g]
            for t in range(count):
                top = max(top, own[unsafe_offset=t])
            var shrink = raised(most[g] - top) if sums[g] != 0 else Scalar[wide](0)
            for i in range(head_dim):
                total[unsafe_offset=g * head_dim + i] *= shrink
            var sum = sums[g] * shrink
            comptime native = simd_width_of[wide]()
            for t in range(count, align_up(count, native)):
                own[unsafe_offset=t] = top
            for t in range(0, count, native):
                own.unsafe_store(t, raised(own.unsafe_load[width=native](t) - top))
            for t in range(count):
                sum += own[unsafe_offset=t]
            most[g] = top
            sums[g] = sum
            comptime block = 4 * width
            for i in range(0, head_dim // block * block, block):
                add[width, 4](g, i, first, count)
            for i in range(head_dim // block * block, whole, width):
                add[width, 1](g, i, first, count)
            for i in range(whole, head_dim):
                add[1, 1](g, i, first, count)

    for g in range(group):
        var row = p.row(sequence, kv_head, g)
        var own = total.unsafe_offset(g * head_dim)
        if p.spans == 1:
            var share = 1 / sums[g] if sums[g] != 0 else Scalar[wide](0)
            for i in range(head_dim):
                p.output[unsafe_offset=row * head_dim + i] = (own[unsafe_offset=i] * share).cast[
                    dtype
                ]()
        else:
            var at = row * p.spans + number
            p.stats[unsafe_offset=2 * at] = most[g]
            p.stats[unsafe_offset=2 * at + 1] = sums[g]
            for i in range(head_dim):
                p.partial[unsafe_offset=at * head_dim + i] = own[unsafe_offset=i]


@always_inline
def join[
    dtype: DType, index: DType, head_dim: Int, group: Int, //
](p: Problem[dtype, index, head_dim, group], row: Int, begin: Int, step: Int):
    """Joins the spans of one head: features begin, begin + step, ..."""
    comptime wide = wide_of[dtype]
    var stats = p.stats.unsafe_offset(2 * row * p.spans)
    var top = neg_inf[wide]()
    for s in range(p.spans):
        if stats[unsafe_offset=2 * s + 1] != 0:
            top = max(top, stats[unsafe_offset=2 * s])
    for i in range(begin, head_dim, step):
        var sum = Scalar[wide](0)
        var total = Scalar[wide](0)
        for s in range(p.spans):
            var weight = stats[unsafe_offset=2 * s + 1]
            if weight != 0:
                var share = raised(stats[unsafe_offset=2 * s] - top)
                sum += weight * share
                total += p.partial[unsafe_offset=(row * p.spans + s) * head_dim + i] * share
        var found = total / sum if sum != 0 else Scalar[wide](0)
        p.output[unsafe_offset=row * head_dim + i] = found.cast[dtype]()


# GPU: a block takes a span for some heads of a group, a warp several rows of the cache at a time.


@fieldwise_init
struct JoinOnGpu[dtype: DType, index: DType, head_dim: Int, group: Int](
    ImplicitlyCopyable, RegisterPassable, def() -> None
):
    """Joins the spans of one head: what no position was in has a weight of 0, and partial sums of 0."""

    var problem: Problem[Self.dtype, Self.index, Self.head_dim, Self.group]

    def __call__(self) capturing:
        ref p = self.problem
        comptime wide = wide_of[Self.dtype]
        comptime together = 8
        var row = Int(block_idx.x)
        var stats = p.stats.unsafe_offset(2 * row * p.spans)
        var top = Scalar[wide](-1e30)
        for s in range(p.spans):
            top = max(top, stats[unsafe_offset=2 * s])
        for i in range(Int(thread_idx.x), Self.head_dim, JOINING):
            var sum = Scalar[wide](0)
            var total = Scalar[wide](0)
            for first in range(0, p.spans, together):
                var some = Array[Scalar[wide], together](fill=0)
                comptime for u in range(together):
                    if first + u < p.spans:
                        some[u] = p.partial[
                            unsafe_offset=(row * p.spans + first + u) * Self.head_dim + i
                        ]
                comptime for u in range(together):
                    if first + u < p.spans:
                        var at = 2 * (first + u)
                        var share = raised(stats[unsafe_offset=at] - top)
                        sum += stats[unsafe_offset=at + 1] * share
                        total += some[u] * share
            var found = total / sum if sum != 0 else Scalar[wide](0)
            p.output[unsafe_offset=row * Self.head_dim + i] = found.cast[Self.dtype]()


def power_of_two(least: Int) -> Int:
    var found = 1
    while found < least:
        found *= 2
    return found


def bits_of(power: Int) -> Int:
    """Returns the logarithm of a power of two."""
    var found = 0
    while 1 << found < power:
        found += 1
    return found


@fieldwise_init
struct SpanOnGpu[dtype: DType, index: DType, head_dim: Int, group: Int, vector: Int, heads: Int](
    ImplicitlyCopyable, RegisterPassable, def() -> None
):
    """`lanes` threads share a row of the cache, each has `per` vectors of it; `heads` of the group at a time.

    The scores of all heads and rows under way are added up over the lanes together: at each step a lane sends half of
    them to its neighbour and keeps the other half. So each lane ends with the score of one head, whose exponential is
    taken once, and all lanes fetch the weights from there.
    """

    comptime wide = wide_of[Self.dtype]
    comptime lanes = lanes_of(Self.head_dim, Self.vector)
    comptime per = ceildiv(ceildiv(Self.head_dim, Self.vector), Self.lanes)
    comptime rows = 32 // Self.lanes
    comptime step = Self.rows * AHEAD
    comptime scores = power_of_two(Self.heads) * AHEAD
    comptime lane_bits = bits_of(Self.lanes)
    comptime score_bits = bits_of(Self.scores)
    comptime own = max(Self.scores >> Self.lane_bits, 1)  # scores that a lane ends with
    comptime Some = SIMD[Self.wide, Self.vector]
    comptime Raw = SIMD[Self.dtype, Self.vector]
    comptime Tile = Array[Self.Raw, AHEAD * Self.per]

    var problem: Problem[Self.dtype, Self.index, Self.head_dim, Self.group]

    @always_inline
    def part(self, row: Grid[Self.dtype], at: Place[Self.dtype], lane: Int, k: Int) -> Self.Raw:
        """Returns the k-th vector of a lane, zeros beyond the row."""
        var first = (k * Self.lanes + lane) * Self.vector
        comptime if Self.lanes * Self.per * Self.vector != Self.head_dim:
            if first >= Self.head_dim:
                return 0
        comptime if Self.vector == 1:
            return Self.Raw(at[unsafe_offset=first * row.strides[3]])
        else:
            comptime aligned = Self.vector * size_of[Self.dtype]()
            return at.unsafe_load[width=Self.vector, alignment=aligned](first)

    @always_inline
    def tile(
        self, grid: Grid[Self.dtype], start: Place[Self.dtype], first: Int, end: Int, lane: Int
    ) -> Self.Tile:
        """Returns what a lane has of the rows from `first` on, zeros from `end` on."""
        var found = Self.Tile(fill=0)
        if first + (AHEAD - 1) * Self.rows < end:
            comptime for a in range(AHEAD):
                var at = start.unsafe_offset((first + a * Self.rows) * grid.strides[2])
                comptime for k in range(Self.per):
                    found[a * Self.per + k] = self.part(grid, at, lane, k)
        else:
            comptime for a in range(AHEAD):
                if first + a * Self.rows < end:
                    var at = start.unsafe_offset((first + a * Self.rows) * grid.strides[2])
                    comptime for k in range(Self.per):
                        found[a * Self.per + k] = self.part(grid, at, lane, k)
        return found^

    @always_inline
    def over_lanes[size: Int](self, mut held: Array[Scalar[Self.wide], size], lane: Int):
        """Adds up over the lanes; what a lane ends with stands first."""
        comptime for b in range(Self.lane_bits):
            comptime if size >> b > 1:
                comptime half = (size >> b) // 2
                var upper = (lane >> b) & 1 != 0
                comptime for i in range(half):
                    var kept = held[half + i] if upper else held[i]
                    var sent = held[i] if upper else held[half + i]
                    held[i] = kept + warp.shuffle_xor(sent, UInt32(1 << b))
            else:
                held[0] += warp.shuffle_xor(held[0], UInt32(1 << b))

    @staticmethod
    def holder(score: Int) -> Int:
        """Returns which lane ends with a score."""
        var found = 0
        for b in range(min(Self.lane_bits, Self.score_bits)):
            found |= ((score >> (Self.score_bits - 1 - b)) & 1) << b
        return found

    @staticmethod
    def shares_head(bit: Int) -> Bool:
        """Tells whether lanes that differ in a bit have scores of one head, of other rows."""
        if bit >= Self.lane_bits:
            return True
        return bit < Self.score_bits and Self.score_bits - 1 - bit < bits_of(AHEAD)

    def __call__(self) capturing:
        ref p = self.problem
        comptime wide = Self.wide
        comptime parts = ceildiv(Self.group, Self.heads)
        var kv_head = Int(block_idx.x) // parts
        var head = Int(block_idx.x) % parts * Self.heads
        var number = Int(block_idx.y)
        var sequence = Int(block_idx.z)
        var own_warp = Int(thread_idx.x) // 32
        var lane = Int(thread_idx.x) % Self.lanes
        var row = Int(thread_idx.x) % 32 // Self.lanes
        var query = Array[Self.Some, Self.heads * Self.per](fill=0)
        var total = Array[Self.Some, Self.heads * Self.per](fill=0)
        comptime for g in range(Self.heads):
            var from_ = p.query.at(sequence, kv_head, min(head + g, Self.group - 1))
            comptime for k in range(Self.per):
                comptime for i in range(Self.vector):
                    var feature = (k * Self.lanes + lane) * Self.vector + i
                    if feature < Self.head_dim:
                        query[g * Self.per + k][i] = (
                            from_[unsafe_offset=feature * p.query.strides[3]].cast[wide]() * p.scale
                        )
        var first_score = 0  # of those that this lane ends with
        comptime for b in range(min(Self.lane_bits, Self.score_bits)):
            first_score |= ((lane >> b) & 1) << (Self.score_bits - 1 - b)
        var own_row = row + first_score % AHEAD * Self.rows
        var most = Scalar[wide](-1e30)
        var sum = Scalar[wide](0)
        var positions = p.span(sequence, number)
        var end = positions[1]
        var first = positions[0] + own_warp * Self.step
        var keys_start = p.keys.at(sequence, kv_head, 0)
        var values_start = p.values.at(sequence, kv_head, 0)
        var keys = Self.Tile(fill=0)
        var values = Self.Tile(fill=0)
        if first < end:
            keys = self.tile(p.keys, keys_start, first + row, end, lane)
            values = self.tile(p.values, values_start, first + row, end, lane)
        while first < end:
            var held = Array[Scalar[wide], Self.scores](fill=0)
            comptime for a in range(AHEAD):
                comptime for k in range(Self.per):
                    var some = keys[a * Self.per + k].cast[wide]()
                    comptime for g in range(Self.heads):
                        comptime for v in range(Self.vector):
                            held[g * AHEAD + a] = some[v].fma(
                                query[g * Self.per + k][v], held[g * AHEAD + a]
                            )
            # what comes next is under way while this is worked on
            var next = first + WARPS * Self.step
            if next < end:
                keys = self.tile(p.keys, keys_start, next + row, end, lane)
            self.over_lanes(held, lane)
            var top = most
            comptime for r in range(Self.own):
                if first + own_row + r * Self.rows >= end:
                    held[r] = -1e30
                top = max(top, held[r])
            comptime for b in range(5):
                comptime if Self.shares_head(b):
                    top = max(top, warp.shuffle_xor(top, UInt32(1 << b)))
            var shrink = raised(most - top)
            most = top
            sum *= shrink
            comptime for r in range(Self.own):
                held[r] = raised(held[r] - top)
                if first + own_row + r * Self.rows >= end:
                    held[r] = 0
                sum += held[r]
            var base = row * Self.lanes
            comptime for g in range(Self.heads):
                comptime source = Self.holder(g * AHEAD)
                var factor = warp.shuffle_idx(shrink, UInt32(base + source))
                comptime for k in range(Self.per):
                    total[g * Self.per + k] *= factor
            comptime for a in range(AHEAD):
                comptime for k in range(Self.per):
                    var some = values[a * Self.per + k].cast[wide]()
                    comptime for g in range(Self.heads):
                        comptime source = Self.holder(g * AHEAD + a)
                        var weight = warp.shuffle_idx(held[a % Self.own], UInt32(base + source))
                        total[g * Self.per + k] = some.fma(
                            Self.Some(weight), total[g * Self.per + k]
                        )
            if next < end:
                values = self.tile(p.values, values_start, next + row, end, lane)
            first = next

        # the rows of a warp, then the warps
        comptime features = Self.lanes * Self.per * Self.vector
        var shared = unsafe_stack_allocation[
            WARPS * Self.heads * features, Scalar[wide], address_space=.SHARED
        ]()
        var figures = unsafe_stack_allocation[
            WARPS * Self.heads * 2, Scalar[wide], address_space=.SHARED
        ]()
        comptime for b in range(5):
            comptime if Self.shares_head(b):
                sum += warp.shuffle_xor(sum, UInt32(1 << b))
            comptime if b >= Self.lane_bits:
                comptime for i in range(Self.heads * Self.per):
                    comptime for v in range(Self.vector):
                        total[i][v] += warp.shuffle_xor(total[i][v], UInt32(1 << b))
        if row == 0:
            comptime for g in range(Self.heads):
                comptime for k in range(Self.per):
                    comptime for v in range(Self.vector):
                        var feature = (k * Self.lanes + lane) * Self.vector + v
                        shared[
                            unsafe_offset=(own_warp * Self.heads + g) * features + feature
                        ] = total[g * Self.per + k][v]
            var g = first_score // AHEAD
            if g < Self.heads:
                figures[unsafe_offset=2 * (own_warp * Self.heads + g)] = most
                figures[unsafe_offset=2 * (own_warp * Self.heads + g) + 1] = sum
        barrier()
        for g in range(min(Self.heads, Self.group - head)):
            var top = figures[unsafe_offset=2 * g]
            comptime for w in range(1, WARPS):
                top = max(top, figures[unsafe_offset=2 * (w * Self.heads + g)])
            var all = Scalar[wide](0)
            comptime for w in range(WARPS):
                var at = 2 * (w * Self.heads + g)
                all += figures[unsafe_offset=at + 1] * raised(figures[unsafe_offset=at] - top)
            var to = p.row(sequence, kv_head, head + g)
            for i in range(Int(thread_idx.x), Self.head_dim, WARPS * 32):
                var found = Scalar[wide](0)
                comptime for w in range(WARPS):
                    var at = w * Self.heads + g
                    found += shared[unsafe_offset=at * features + i] * raised(
                        figures[unsafe_offset=2 * at] - top
                    )
                if p.spans == 1:
                    found = found / all if all != 0 else Scalar[wide](0)
                    p.output[unsafe_offset=to * Self.head_dim + i] = found.cast[Self.dtype]()
                else:
                    p.partial[unsafe_offset=(to * p.spans + number) * Self.head_dim + i] = found
            if p.spans != 1 and Int(thread_idx.x) == 0:
                p.stats[unsafe_offset=2 * (to * p.spans + number)] = top
                p.stats[unsafe_offset=2 * (to * p.spans + number) + 1] = all


def lanes_of(head_dim: Int, vector: Int) -> Int:
    """Returns how many threads share a row of the cache."""
    return min(power_of_two(ceildiv(head_dim, vector)), 32)


@always_inline
def grid_of[
    dtype: DType
](data: Pointer[Scalar[dtype], _], a: Int, b: Int, c: Int, d: Int) -> Grid[dtype]:
    return {place_of(data), IndexList[4](a, b, c, d)}


@extensibility.register("decode_attention_forward")
struct DecodeAttention[head_dim: Int, group: Int]:
    """Softmax(query . keys * scale) . values over the first `lengths` positions of each sequence."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[rank=3, ...],
        partial: OutputTensor[rank=4, ...],
        stats: OutputTensor[rank=4, ...],
        query: InputTensor[dtype=output.dtype, rank=3, ...],
        key_cache: InputTensor[dtype=output.dtype, rank=4, ...],
        value_cache: InputTensor[dtype=output.dtype, rank=4, ...],
        lengths: InputTensor[rank=1, ...],
        scale: Float64,
        splits: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime wide = wide_of[output.dtype]
        var batch = query.dim_size(0)
        var kv_heads = key_cache.dim_size(1)
        var spans = max(Int(splits), 1)
        if batch * kv_heads == 0:
            return
        var k = key_cache
        var v = value_cache
        var step = query.stride_length(1)
        var problem = Problem[output.dtype, lengths.dtype, Self.head_dim, Self.group](
            grid_of[output.dtype](
                query.unsafe_ptr(),
                query.stride_length(0),
                step * Self.group,
                step,
                query.stride_length(2),
            ),
            grid_of[output.dtype](
                k.unsafe_ptr(),
                k.stride_length(0),
                k.stride_length(1),
                k.stride_length(2),
                k.stride_length(3),
            ),
            grid_of[output.dtype](
                v.unsafe_ptr(),
                v.stride_length(0),
                v.stride_length(1),
                v.stride_length(2),
                v.stride_length(3),
            ),
            place_of[lengths.dtype](lengths.unsafe_ptr()),
            lengths.stride_length(0),
            k.dim_size(2),
            place_of[output.dtype](output.unsafe_ptr()),
            place_of[wide](rebind[Pointer[Scalar[wide], MutAnyOrigin]](partial.unsafe_ptr())),
            place_of[wide](rebind[Pointer[Scalar[wide], MutAnyOrigin]](stats.unsafe_ptr())),
            batch,
            kv_heads,
            spans,
            scale.cast[wide](),
        )
        comptime if target == "cpu":
            var plain = k.stride_length(3) == 1 and v.stride_length(3) == 1

            def span(i: Int) {imm}:
                var pair = i // spans
                if plain:
                    comptime native = simd_width_of[wide]()
                    span_on_cpu[native](problem, pair // kv_heads, pair % kv_heads, i % spans)
                else:
                    span_on_cpu[1](problem, pair // kv_heads, pair % kv_heads, i % spans)

            sync_parallelize(span, batch * kv_heads * spans)
            if spans > 1:
                for row in range(batch * kv_heads * Self.group):
                    join(problem, row, 0, 1)
        else:
            comptime vector = 16 // size_of[output.dtype]()

            @always_inline
            def launch[vector: Int]() raises {imm}:
                comptime room = max(16384 // (WARPS * Self.head_dim * size_of[wide]()), 1)
                # a lane ends with the scores of one head
                comptime most = min(room, min(lanes_of(Self.head_dim, vector), 8))
                comptime heads = min(Self.group, most)
                comptime Kernel = SpanOnGpu[
                    output.dtype, lengths.dtype, Self.head_dim, Self.group, vector, heads
                ]
                ctx.enqueue_function(
                    Kernel(problem),
                    grid_dim=(kv_heads * ceildiv(Self.group, heads), spans, batch),
                    block_dim=WARPS * 32,
                )

            if (
                Self.head_dim % vector == 0
                and problem.keys.packed(vector)
                and (problem.values.packed(vector))
            ):
                launch[vector]()
            else:
                launch[1]()
            if spans > 1:
                ctx.enqueue_function(
                    JoinOnGpu(problem), grid_dim=batch * kv_heads * Self.group, block_dim=JOINING
                )
