"""The gradients of attention on tensor cores: one pass over queries, one over keys, so that no sum depends on an order."""

from std.collections import Array
from std.math import ceildiv, exp2

from max.gpu import block_idx, grid_dim, thread_idx
from max.gpu.host import DeviceContext, FuncAttribute
from max.gpu.memory import (
    AddressSpace,
    async_copy,
    async_copy_commit_group,
    async_copy_wait_all,
    external_memory,
)
from max.gpu.sync import barrier

from attention_mma import (
    LOG2E,
    PANEL,
    PART,
    Scores,
    Shape,
    Shared,
    dots,
    factor_of,
    fetch,
    gather,
    kept,
    lane,
    of_row,
    place,
    put,
    quick,
    scatter,
    settle,
)
from attention_tiles import Grid, Problem


@always_inline
def row_sum[
    dtype: DType, //, room: Int, side: Int
](
    incoming: Shared[dtype],
    output: Grid[dtype],
    fast: Bool,
    sequence: Int,
    head: Int,
    first: Int,
    row: Int,
    size: Int,
) -> Float32:
    """Returns the sum of gradient * output over a row, to the 4 threads that share it."""
    var x = lane() % 4
    var made = output.at(sequence, head, first + row)
    var sum = Float32(0)
    comptime for n in range(room // PART // 4):
        var part = 4 * n + x
        var slopes = incoming.unsafe_load[width=PART, alignment=16](place[side](row, part))
        var found = SIMD[dtype, PART](0)
        if fast and (part + 1) * PART <= size:
            found = made.unsafe_load[width=PART, alignment=16](part * PART)
        else:
            comptime for e in range(PART):
                if part * PART + e < size:
                    found[e] = made[unsafe_offset=(part * PART + e) * output.strides[3]]
        comptime wide = DType.float32
        sum += (slopes.cast[wide]() * found.cast[wide]()).reduce_add()
    return of_row[False](sum)


@fieldwise_init
struct BackwardQuery[
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
    comptime bytes = 2 * Self.room * (2 * Self.rows + 4 * Self.side)

    var problem: Problem[Self.dtype, Self.mask_dtype, Self.has_mask, Self.keep_dtype, Self.has_keep]
    var grad: Grid[Self.dtype]
    var output: Grid[Self.dtype]
    var logsumexp: Grid[DType.float32]
    var grad_query: Grid[Self.dtype]
    var delta: Grid[DType.float32]

    def __call__(self) capturing:
        var p = self.problem
        var query = external_memory[
            Scalar[Self.dtype], address_space=AddressSpace.SHARED, alignment=1024
        ]()
        var incoming = query.unsafe_offset(Self.rows * Self.room)
        var keys = incoming.unsafe_offset(Self.rows * Self.room)
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
        fetch[Self.room, Self.rows, Self.threads](
            incoming, self.grad, quick(self.grad), sequence, head, first, count, p.value_size
        )
        begin_tile(0, 0)
        async_copy_wait_all()
        barrier()
        var levels = Array[Float32, 2 * Self.tiles](fill=0)
        var deltas = Array[Float32, 2 * Self.tiles](fill=0)
        var fast_output = quick(self.output)
        comptime for i in range(2 * Self.tiles):
            var r = own + i * 8 + y
            # a row too many has the sum 0: its gradient is not there
            var row = min(r, count - 1)
            deltas[i] = row_sum[Self.room, Self.rows](
                incoming, self.output, fast_output, sequence, head, first, row, p.value_size
            )
            levels[i] = self.logsumexp.at(sequence, head, first + row)[] * LOG2E
            if r < count and x == 0:
                self.delta.at(sequence, head, first + r)[] = deltas[i]
        var total = Scores[Self.tiles, Self.room](fill=0)
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
            comptime for n in range(Self.tiles * (Self.side // 8)):
                comptime i = n // (Self.side // 8) * 2
                comptime for e in range(4):
                    var power = scores[n][e].fma(factor, -levels[i + e // 2])
                    scores[n][e] = exp2(power)
            var slopes = dots[Self.room, Self.tiles, Self.rows, Self.side](
                incoming.unsafe_offset(own * PANEL), values.unsafe_offset(now)
            )
            comptime for n in range(Self.tiles * (Self.side // 8)):
                comptime i, j = divmod(n, Self.side // 8)
                comptime for e in range(4):
                    var slope = slopes[n][e]
                    comptime if p.has_keep:
                        var q = first + own + i * 16 + e // 2 * 8 + y
                        slope *= kept(p, sequence, head, q, begin + j * 8 + 2 * x + e % 2)
                    scores[n][e] *= slope - deltas[2 * i + e // 2]
            gather[Self.room, Self.tiles, Self.side](scores, keys.unsafe_offset(now), total)
        async_copy_wait_all()
        barrier()
        comptime for n in range(Self.tiles * (Self.room // 8)):
            total[n] *= p.scale.cast[DType.float32]()
        put[Self.room, Self.tiles, Self.rows](query.unsafe_offset(own * PANEL), total)
        barrier()
        scatter[Self.room, Self.rows, Self.threads](
            query, self.grad_query, quick(self.grad_query), sequence, head, first, count, p.size
        )


@fieldwise_init
struct BackwardKeyValue[
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
    """Has keys along the rows of its products, so that the weights are first factors as they come."""

    comptime threads = 32 * Self.warps
    comptime rows = 16 * Self.tiles * Self.warps
    comptime bytes = 2 * Self.room * (2 * Self.rows + 4 * Self.side) + 4 * 4 * Self.side

    var problem: Problem[Self.dtype, Self.mask_dtype, Self.has_mask, Self.keep_dtype, Self.has_keep]
    var grad: Grid[Self.dtype]
    var logsumexp: Grid[DType.float32]
    var delta: Grid[DType.float32]
    var grad_key: Grid[Self.dtype]
    var grad_value: Grid[Self.dtype]

    def __call__(self) capturing:
        comptime tile = Self.side * Self.room
        comptime assert 2 * Self.side <= Self.threads
        var p = self.problem
        var key = external_memory[
            Scalar[Self.dtype], address_space=AddressSpace.SHARED, alignment=1024
        ]()
        var value = key.unsafe_offset(Self.rows * Self.room)
        var queries = value.unsafe_offset(Self.rows * Self.room)
        var incoming = queries.unsafe_offset(2 * tile)
        # logarithms of sums and the sums over gradients, of two tiles
        var sums = incoming.unsafe_offset(2 * tile).unsafe_bitcast[Float32]()
        var first = Int(block_idx.x) * Self.rows
        var kv_head = Int(block_idx.y)
        var sequence = Int(block_idx.z)
        var count = min(Self.rows, p.keys - first)
        var own = Int(thread_idx.x) // 32 * 16 * Self.tiles
        var y, x = divmod(lane(), 4)
        var fast_query = quick(p.query)
        var fast_grad = quick(self.grad)
        var factor = factor_of(p)
        var start = first if p.causal else 0
        var each = max(ceildiv(p.queries - start, Self.side), 0)

        @always_inline
        def begin_tile(step: Int, half: Int) {imm}:
            var nth, begin = divmod(step, each)
            var head = kv_head * p.group + nth
            begin = start + begin * Self.side
            var left = p.queries - begin
            fetch[Self.room, Self.side, Self.threads](
                queries.unsafe_offset(half * tile),
                p.query,
                fast_query,
                sequence,
                head,
                begin,
                left,
                p.size,
            )
            fetch[Self.room, Self.side, Self.threads](
                incoming.unsafe_offset(half * tile),
                self.grad,
                fast_grad,
                sequence,
                head,
                begin,
                left,
                p.value_size,
            )
            var which, q = divmod(Int(thread_idx.x), Self.side)
            if which < 2:
                var row = self.logsumexp.at(sequence, head, begin + q)
                if which == 1:
                    row = self.delta.at(sequence, head, begin + q)
                async_copy[4, fill=Float32(0)](
                    row.unsafe_address_space_cast[AddressSpace.GLOBAL](),
                    sums.unsafe_offset((2 * half + which) * Self.side + q),
                    Int32(4 if q < left else 0),
                )
            async_copy_commit_group()

        fetch[Self.room, Self.rows, Self.threads](
            key, p.key, quick(p.key), sequence, kv_head, first, count, p.size
        )
        fetch[Self.room, Self.rows, Self.threads](
            value, p.value, quick(p.value), sequence, kv_head, first, count, p.value_size
        )
        if each > 0:
            begin_tile(0, 0)
        var key_total = Scores[Self.tiles, Self.room](fill=0)
        var value_total = Scores[Self.tiles, Self.room](fill=0)
        var steps = each * p.group
        for step in range(steps):
            async_copy_wait_all()
            barrier()
            var half = step % 2
            if step + 1 < steps:
                begin_tile(step + 1, 1 - half)
            var nth, begin = divmod(step, each)
            var head = kv_head * p.group + nth
            begin = start + begin * Self.side
            # all of the tile is above this warp's part of the diagonal
            if p.causal and begin + Self.side <= first + own:
                continue
            var scores = dots[Self.room, Self.tiles, Self.rows, Self.side](
                key.unsafe_offset(own * PANEL), queries.unsafe_offset(half * tile)
            )
            settle[True](p, scores, sequence, head, first + own, begin)
            var row = sums.unsafe_offset(2 * half * Self.side + 2 * x)
            comptime for n in range(Self.tiles * (Self.side // 8)):
                comptime j = n % (Self.side // 8)
                var levels = row.unsafe_load[width=2, alignment=8](j * 8) * LOG2E
                comptime for e in range(4):
                    scores[n][e] = exp2(scores[n][e].fma(factor, -levels[e % 2]))
            comptime if p.has_keep:
                var weights = scores.copy()
                comptime for n in range(Self.tiles * (Self.side // 8)):
                    comptime i, j = divmod(n, Self.side // 8)
                    comptime for e in range(4):
                        var k = first + own + i * 16 + e // 2 * 8 + y
                        var q = begin + j * 8 + 2 * x + e % 2
                        weights[n][e] *= kept(p, sequence, head, q, k)
                gather[Self.room, Self.tiles, Self.side](
                    weights, incoming.unsafe_offset(half * tile), value_total
                )
            else:
                gather[Self.room, Self.tiles, Self.side](
                    scores, incoming.unsafe_offset(half * tile), value_total
                )
            var slopes = dots[Self.room, Self.tiles, Self.rows, Self.side](
                value.unsafe_offset(own * PANEL), incoming.unsafe_offset(half * tile)
            )
            comptime for n in range(Self.tiles * (Self.side // 8)):
                comptime i, j = divmod(n, Self.side // 8)
                var deltas = row.unsafe_load[width=2, alignment=8](Self.side + j * 8)
                comptime for e in range(4):
                    var slope = slopes[n][e]
                    comptime if p.has_keep:
                        var k = first + own + i * 16 + e // 2 * 8 + y
                        slope *= kept(p, sequence, head, begin + j * 8 + 2 * x + e % 2, k)
                    scores[n][e] *= slope - deltas[e % 2]
            gather[Self.room, Self.tiles, Self.side](
                scores, queries.unsafe_offset(half * tile), key_total
            )
        async_copy_wait_all()
        barrier()
        comptime for n in range(Self.tiles * (Self.room // 8)):
            key_total[n] *= p.scale.cast[DType.float32]()
        put[Self.room, Self.tiles, Self.rows](key.unsafe_offset(own * PANEL), key_total)
        put[Self.room, Self.tiles, Self.rows](value.unsafe_offset(own * PANEL), value_total)
        barrier()
        scatter[Self.room, Self.rows, Self.threads](
            key, self.grad_key, quick(self.grad_key), sequence, kv_head, first, count, p.size
        )
        scatter[Self.room, Self.rows, Self.threads](
            value,
            self.grad_value,
            quick(self.grad_value),
            sequence,
            kv_head,
            first,
            count,
            p.value_size,
        )


comptime QUERY[room: Int] = Shape(4, 2, 32)
comptime KEY_VALUE[room: Int] = Shape(4, 1, 64)


def backward_on_tensor_cores[
    room: Int
](
    p: Problem,
    grad: Grid[p.dtype],
    output: Grid[p.dtype],
    logsumexp: Grid[DType.float32],
    grad_query: Grid[p.dtype],
    grad_key: Grid[p.dtype],
    grad_value: Grid[p.dtype],
    delta: Grid[DType.float32],
    ctx: DeviceContext,
) raises:
    comptime query = QUERY[room]
    comptime Query = BackwardQuery[
        dtype=p.dtype,
        mask_dtype=p.mask_dtype,
        has_mask=p.has_mask,
        keep_dtype=p.keep_dtype,
        has_keep=p.has_keep,
        room=room,
        warps=query.warps,
        tiles=query.tiles,
        side=query.side,
    ]
    comptime key = KEY_VALUE[room]
    comptime KeyValue = BackwardKeyValue[
        dtype=p.dtype,
        mask_dtype=p.mask_dtype,
        has_mask=p.has_mask,
        keep_dtype=p.keep_dtype,
        has_keep=p.has_keep,
        room=room,
        warps=key.warps,
        tiles=key.tiles,
        side=key.side,
    ]
    if p.batch * p.heads * p.queries != 0:
        ctx.enqueue_function(
            Query(p, grad, output, logsumexp, grad_query, delta),
            grid_dim=(ceildiv(p.queries, Query.rows), p.heads, p.batch),
            block_dim=Query.threads,
            shared_mem_bytes=Query.bytes,
            func_attribute=FuncAttribute.MAX_DYNAMIC_SHARED_SIZE_BYTES(UInt32(Query.bytes)),
        )
    if p.batch * p.heads * p.keys != 0:
        ctx.enqueue_function(
            KeyValue(p, grad, logsumexp, delta, grad_key, grad_value),
            grid_dim=(ceildiv(p.keys, KeyValue.rows), p.heads // p.group, p.batch),
            block_dim=KeyValue.threads,
            shared_mem_bytes=KeyValue.bytes,
            func_attribute=FuncAttribute.MAX_DYNAMIC_SHARED_SIZE_BYTES(UInt32(KeyValue.bytes)),
        )
