"""Attention on tensor cores: what its passes share, and the forward pass.

A block of `warps` warps takes 16 * `tiles` rows for each of them and meets the rows on the other side `side` at a time;
while it computes with some, the next ones are on their way to the other half of shared memory. A product is made by
m16n8k16 instructions, in whose layout a thread has two neighbouring columns of rows y and y + 8 for each 16 x 8 scores.

Shared memory holds rows in panels of 64 features, 128 bytes, in which the 16-byte parts of row r are permuted by r % 8:
eight rows of one column meet all banks, whichever way a matrix is read.
"""

from std.collections import Array
from std.math import ceildiv, exp2, log2
from std.memory import Pointer
from std.utils.numerics import inf, neg_inf

from max.gpu import block_idx, grid_dim, thread_idx
from max.gpu.compute.mma import ld_matrix, mma
from max.gpu.host import DeviceContext, FuncAttribute
from max.gpu.memory import (
    AddressSpace,
    async_copy,
    async_copy_commit_group,
    async_copy_wait_all,
    external_memory,
)
from max.gpu.primitives import warp
from max.gpu.sync import barrier

from attention_tiles import Grid, Problem

comptime LOG2E = Float32(1.4426950408889634)
comptime PANEL = 64  # features side by side in shared memory
comptime PART = 8  # features that are copied at once

comptime Shared[dtype: DType] = Pointer[
    Scalar[dtype], MutUntrackedOrigin, address_space=AddressSpace.SHARED
]
comptime Scores[tiles: Int, side: Int] = Array[SIMD[.float32, 4], tiles * (side // 8)]


@always_inline
def lane() -> Int:
    return Int(thread_idx.x) % 32


@always_inline
def quick(rows: Grid) -> Bool:
    """Tells whether rows can be copied 16 bytes at a time."""
    var s = rows.strides
    return s[3] == 1 and ((s[0] | s[1] | s[2]) % PART == 0) and Int(rows.data) % 16 == 0


@always_inline
def fetch[
    dtype: DType, //, room: Int, side: Int, threads: Int
](
    into: Shared[dtype],
    rows: Grid[dtype],
    fast: Bool,
    sequence: Int,
    head: Int,
    first: Int,
    count: Int,
    size: Int,
):
    """Begins to copy `count` rows to shared memory, with zeros around them."""
    comptime parts = room // PART
    comptime step = threads // parts
    comptime assert step % 8 == 0 and side % step == 0
    var y, x = divmod(Int(thread_idx.x), parts)
    var d = x * PART
    var data = rows.at(sequence, head, first + y)
    var to = into.unsafe_offset(place[side](y, x))
    if fast:
        var bytes = 2 * min(max(size - d, 0), PART)
        var source = data.unsafe_offset(d).unsafe_address_space_cast[AddressSpace.GLOBAL]()
        comptime for i in range(0, side, step):
            async_copy[16, fill=Scalar[dtype](0)](
                source.unsafe_offset(i * rows.strides[2]),
                to.unsafe_offset(i * PANEL),
                Int32(bytes if y + i < count else 0),
            )
    else:
        # a loop that is not unrolled, lest its addresses take the registers of what surrounds it
        var end = min(size, d + PART)
        for i in range(0, side, step):
            to.unsafe_store[alignment=16](i * PANEL, SIMD[dtype, PART](0))
            if y + i < count:
                for e in range(d, end):
                    to[unsafe_offset=i * PANEL + e - d] = data[
                        unsafe_offset=i * rows.strides[2] + e * rows.strides[3]
                    ]


@always_inline
def place[side: Int](row: Int, part: Int) -> Int:
    """Returns where a part of a row lies among `side` rows in shared memory."""
    var panel, p = divmod(part, PANEL // PART)
    return (panel * side + row) * PANEL + ((p ^ row) % 8) * PART


@always_inline
def across() -> Int:
    """Returns where this thread's row begins for the four matrices of a first factor, or a transposed second."""
    return place[0](lane() % 16, lane() // 16)


@always_inline
def along() -> Int:
    """Returns where this thread's row begins for the four matrices of two second factors."""
    return place[0](lane() // 16 * 8 + lane() % 8, lane() // 8 % 2)


@always_inline
def multiply[
    dtype: DType, //, half: Int
](mut total: SIMD[.float32, 4], a: SIMD[dtype, 8], b: SIMD[dtype, 8]):
    """Adds a product with the first or second half of b."""
    mma(total, a, b.slice[4, offset=4 * half](), total)


@always_inline
def dots[
    dtype: DType, //, room: Int, tiles: Int, rows: Int, side: Int
](a: Shared[dtype], b: Shared[dtype]) -> Scores[tiles, side]:
    """Returns this warp's part of a . b^T.

    Parameters:
        rows: of the block, among which `a` points to the warp's own.
    """
    var found = Scores[tiles, side](fill=0)
    var mine = across()
    var other = along()
    comptime for k in range(room // 16):
        comptime panel, step = divmod(k, 4)
        var second = b.unsafe_offset(panel * side * PANEL + (other ^ (step * 16)))
        var first = a.unsafe_offset(panel * rows * PANEL + (mine ^ (step * 16)))
        var ones = Array[SIMD[dtype, 8], tiles](fill=0)
        comptime for i in range(tiles):
            ones[i] = ld_matrix[8](first.unsafe_offset(i * 16 * PANEL))
        comptime for j in range(side // 16):
            var two = ld_matrix[8](second.unsafe_offset(j * 16 * PANEL))
            comptime for i in range(tiles):
                comptime at = i * (side // 8) + 2 * j
                multiply[0](found[at], ones[i], two)
                multiply[1](found[at + 1], ones[i], two)
    return found^


@always_inline
def gather[
    dtype: DType, //, room: Int, tiles: Int, side: Int
](weights: Scores[tiles, side], b: Shared[dtype], mut total: Scores[tiles, room]):
    """Adds this warp's part of weights . b, the weights rounded to b's dtype."""
    var other = across()
    comptime for k in range(side // 16):
        var ones = Array[SIMD[dtype, 8], tiles](fill=0)
        comptime for i in range(tiles):
            comptime at = i * (side // 8) + 2 * k
            ones[i] = weights[at].join(weights[at + 1]).cast[dtype]()
        comptime for j in range(room // 16):
            comptime panel, step = divmod(j, 4)
            comptime start = (panel * side + k * 16) * PANEL
            var second = b.unsafe_offset(start + (other ^ (step * 16)))
            var two = ld_matrix[8, transpose=True](second)
            comptime for i in range(tiles):
                comptime at = i * (room // 8) + 2 * j
                multiply[0](total[at], ones[i], two)
                multiply[1](total[at + 1], ones[i], two)


@always_inline
def put[
    dtype: DType, //, room: Int, tiles: Int, rows: Int
](into: Shared[dtype], total: Scores[tiles, room]):
    """Writes this warp's rows to shared memory."""
    var y, x = divmod(lane(), 4)
    comptime for i in range(tiles):
        comptime for n in range(room // 8):
            var both = total[i * (room // 8) + n].cast[dtype]().split()
            comptime for h in range(2):
                var to = place[rows](i * 16 + h * 8 + y, n) + 2 * x
                into.unsafe_store[alignment=4](to, both[h])


@always_inline
def scatter[
    dtype: DType, //, room: Int, side: Int, threads: Int
](
    source: Shared[dtype],
    rows: Grid[dtype],
    fast: Bool,
    sequence: Int,
    head: Int,
    first: Int,
    count: Int,
    size: Int,
):
    """Copies `count` rows out of shared memory."""
    comptime parts = room // PART
    comptime step = threads // parts
    var y, x = divmod(Int(thread_idx.x), parts)
    var d = x * PART
    var data = rows.at(sequence, head, first + y)
    comptime for i in range(0, side, step):
        if y + i < count:
            var found = source.unsafe_load[width=PART, alignment=16](place[side](y + i, x))
            var row = data.unsafe_offset(i * rows.strides[2])
            if fast and d + PART <= size:
                row.unsafe_store[alignment=16](d, found)
            else:
                comptime for e in range(PART):
                    if d + e < size:
                        row[unsafe_offset=(d + e) * rows.strides[3]] = found[e]


@always_inline
def of_row[largest: Bool](value: Float32) -> Float32:
    """Reduces over the 4 threads that share rows; all of them get the result."""
    var found = value
    comptime for i in range(2):
        var other = warp.shuffle_xor(found, UInt32(2 >> i))
        comptime if largest:
            found = max(found, other)
        else:
            found += other
    return found


@always_inline
def factor_of(p: Problem) -> Float32:
    """Returns what settled scores are still to be multiplied with; greater than 0."""
    comptime if p.has_mask:
        return 1
    var scale = p.scale.cast[DType.float32]()
    return scale * LOG2E if scale > 0 else 1


@always_inline
def settle[
    tiles: Int, side: Int, //, keys_first: Bool
](
    p: Problem,
    mut scores: Scores[tiles, side],
    sequence: Int,
    head: Int,
    first_row: Int,
    first_column: Int,
):
    """Turns products into logarithms to base 2, but for `factor_of`, under the mask and causality.

    Parameters:
        keys_first: whether rows are keys, not queries.
    """
    var scale = p.scale.cast[DType.float32]()
    var y, x = divmod(lane(), 4)
    var first_query = first_column if keys_first else first_row
    var first_key = first_row if keys_first else first_column
    comptime queries = side if keys_first else tiles * 16
    comptime keys = tiles * 16 if keys_first else side
    var whole = first_query + queries <= p.queries and first_key + keys <= p.keys
    if p.causal:
        whole = whole and first_key + keys - 1 <= first_query
    comptime if not p.has_mask:
        if scale <= 0:
            comptime for n in range(tiles * (side // 8)):
                scores[n] *= scale * LOG2E
        if whole:
            return
    comptime for i in range(tiles):
        comptime for j in range(side // 8):
            comptime for e in range(4):
                comptime at = i * (side // 8) + j
                var row = first_row + i * 16 + e // 2 * 8 + y
                var column = first_column + j * 8 + 2 * x + e % 2
                var q = column if keys_first else row
                var k = row if keys_first else column
                comptime if p.has_mask:
                    scores[at][e] *= scale * LOG2E
                if q >= p.queries or k >= p.keys or (p.causal and k > q):
                    scores[at][e] = neg_inf[DType.float32]()
                else:
                    comptime if p.has_mask:
                        var row = p.mask.at(sequence, head, q)
                        var value = row[unsafe_offset=k * p.mask.strides[3]]
                        comptime if p.mask_dtype.is_floating_point():
                            scores[at][e] += value.cast[DType.float32]() * LOG2E
                        else:
                            if value == 0:
                                scores[at][e] = neg_inf[DType.float32]()


@always_inline
def kept(p: Problem, sequence: Int, head: Int, q: Int, k: Int) -> Float32:
    """Returns what dropout multiplies a weight with."""
    comptime if p.has_keep:
        if q < p.queries and k < p.keys:
            var value = p.keep.at(sequence, head, q)[unsafe_offset=k * p.keep.strides[3]]
            return value.cast[DType.float32]() * p.keep_scale.cast[DType.float32]()
    return 1


@fieldwise_init
struct Forward[
    dtype: DType,
    mask_dtype: DType,
    has_mask: Bool,
    keep_dtype: DType,
    has_keep: Bool,
    //,
    room: Int,
    warps: Int,
    tiles: Int,
    side: Int,
](ImplicitlyCopyable, RegisterPassable, def() -> None):
    comptime threads = 32 * Self.warps
    comptime rows = 16 * Self.tiles * Self.warps
    comptime bytes = 2 * Self.room * (Self.rows + 4 * Self.side)

    var problem: Problem[Self.dtype, Self.mask_dtype, Self.has_mask, Self.keep_dtype, Self.has_keep]
    var output: Grid[Self.dtype]
    var logsumexp: Grid[DType.float32]

    def __call__(self) capturing:
        var p = self.problem
        var query = external_memory[
            Scalar[Self.dtype], address_space=AddressSpace.SHARED, alignment=1024
        ]()
        var keys = query.unsafe_offset(Self.rows * Self.room)
        var values = keys.unsafe_offset(2 * Self.side * Self.room)
        # the blocks with the most keys begin first
        var first = (Int(grid_dim.x) - 1 - Int(block_idx.x)) * Self.rows
        var head = Int(block_idx.y)
        var sequence = Int(block_idx.z)
        var kv_head = head // p.group
        var count = min(Self.rows, p.queries - first)
        var end = min(p.keys, first + count) if p.causal else p.keys
        var own = Int(thread_idx.x) // 32 * 16 * Self.tiles
        var y, x = divmod(lane(), 4)
        var fast_key = quick(p.key)
        var fast_value = quick(p.value)
        var factor = factor_of(p)
        var total = Scores[Self.tiles, Self.room](fill=0)
        var most = Array[Float32, 2 * Self.tiles](fill=neg_inf[DType.float32]())
        var sums = Array[Float32, 2 * Self.tiles](fill=0)

        @always_inline
        def begin_tile(begin: Int, at: Int) {imm}:
            var left = p.keys - begin
            fetch[Self.room, Self.side, Self.threads](
                keys.unsafe_offset(at), p.key, fast_key, sequence, kv_head, begin, left, p.size
            )
            fetch[Self.room, Self.side, Self.threads](
                values.unsafe_offset(at),
                p.value,
                fast_value,
                sequence,
                kv_head,
                begin,
                left,
                p.value_size,
            )
            async_copy_commit_group()

        fetch[Self.room, Self.rows, Self.threads](
            query, p.query, quick(p.query), sequence, head, first, count, p.size
        )
        begin_tile(0, 0)
        var at = 0
        for begin in range(0, end, Self.side):
            async_copy_wait_all()
            barrier()
            var now = at
            at = Self.side * Self.room - at
            if begin + Self.side < end:
                begin_tile(begin + Self.side, at)
            # all of the tile is above this warp's part of the diagonal
            if p.causal and begin >= first + own + 16 * Self.tiles:
                continue
            var scores = dots[Self.room, Self.tiles, Self.rows, Self.side](
                query.unsafe_offset(own * PANEL), keys.unsafe_offset(now)
            )
            settle[False](p, scores, sequence, head, first + own, begin)
            comptime for i in range(Self.tiles):
                comptime for h in range(2):
                    var top = most[2 * i + h]
                    comptime for j in range(Self.side // 8):
                        var two = scores[i * (Self.side // 8) + j]
                        top = max(top, max(two[2 * h], two[2 * h + 1]))
                    top = of_row[True](top)
                    var base = Float32(0) if top == neg_inf[DType.float32]() else top * factor
                    var shrink = exp2(most[2 * i + h].fma(factor, -base))
                    most[2 * i + h] = top
                    var sum = sums[2 * i + h] * shrink
                    comptime for n in range(Self.room // 8):
                        comptime for e in range(2):
                            total[i * (Self.room // 8) + n][2 * h + e] *= shrink
                    comptime for j in range(Self.side // 8):
                        comptime for e in range(2):
                            comptime to = i * (Self.side // 8) + j
                            var weight = exp2(scores[to][2 * h + e].fma(factor, -base))
                            sum += weight
                            comptime if p.has_keep:
                                weight *= kept(
                                    p,
                                    sequence,
                                    head,
                                    first + own + i * 16 + h * 8 + y,
                                    begin + j * 8 + 2 * x + e,
                                )
                            scores[to][2 * h + e] = weight
                    sums[2 * i + h] = sum
            gather[Self.room, Self.tiles, Self.side](scores, values.unsafe_offset(now), total)
        async_copy_wait_all()
        barrier()
        comptime for i in range(Self.tiles):
            comptime for h in range(2):
                var sum = of_row[False](sums[2 * i + h])
                var share = Float32(0) if sum == 0 else 1 / sum
                comptime for n in range(Self.room // 8):
                    comptime for e in range(2):
                        total[i * (Self.room // 8) + n][2 * h + e] *= share
                var r = own + i * 16 + h * 8 + y
                if x == 0 and r < count:
                    var level = inf[DType.float32]()
                    if sum != 0:
                        level = (most[2 * i + h] * factor + log2(sum)) / LOG2E
                    self.logsumexp.at(sequence, head, first + r)[] = level
        put[Self.room, Self.tiles, Self.rows](query.unsafe_offset(own * PANEL), total)
        barrier()
        scatter[Self.room, Self.rows, Self.threads](
            query, self.output, quick(self.output), sequence, head, first, count, p.value_size
        )


@fieldwise_init
struct Shape(ImplicitlyCopyable, RegisterPassable):
    """How many warps a block has, tiles of 16 rows a warp, and rows on the other side at a time."""

    var warps: Int
    var tiles: Int
    var side: Int


comptime FORWARD[room: Int] = Shape(4, 2, 64)


def on_tensor_cores[dtype: DType]() -> Bool:
    """Tells whether the accelerator has the instructions that these passes are made of."""
    comptime info = DeviceContext.default_device_info
    return dtype.is_half_float() and info.api == "cuda" and info.compute >= 8.0


def forward_on_tensor_cores[
    room: Int
](p: Problem, output: Grid[p.dtype], logsumexp: Grid[DType.float32], ctx: DeviceContext) raises:
    comptime shape = FORWARD[room]
    comptime Pass = Forward[
        dtype=p.dtype,
        mask_dtype=p.mask_dtype,
        has_mask=p.has_mask,
        keep_dtype=p.keep_dtype,
        has_keep=p.has_keep,
        room=room,
        warps=shape.warps,
        tiles=shape.tiles,
        side=shape.side,
    ]
    ctx.enqueue_function(
        Pass(p, output, logsumexp),
        grid_dim=(ceildiv(p.queries, Pass.rows), p.heads, p.batch),
        block_dim=Pass.threads,
        shared_mem_bytes=Pass.bytes,
        func_attribute=FuncAttribute.MAX_DYNAMIC_SHARED_SIZE_BYTES(UInt32(Pass.bytes)),
    )
