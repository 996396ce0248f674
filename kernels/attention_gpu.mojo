"""The passes of attention on a GPU, in shared memory and registers.

A block of 16 x 16 threads takes `side` rows: queries, or keys in the pass that sums over queries. A thread has rows
y, y + 16, ... and columns x, x + 16, ... of each product. `room` is how many features a tile has place for.
"""

from std.collections import Array
from std.math import ceildiv, log
from std.memory import Pointer, unsafe_stack_allocation
from std.sys import size_of
from std.utils.numerics import inf, neg_inf

from max.gpu import block_idx, thread_idx
from max.gpu.host import DeviceContext
from max.gpu.primitives import warp
from max.gpu.sync import barrier

from attention_mma import forward_on_tensor_cores, on_tensor_cores
from attention_mma_backward import backward_on_tensor_cores
from attention_tiles import Grid, Problem, raised, wide_of

comptime THREADS = 256


@always_inline
def fetch[
    dtype: DType, wide: DType, //, room: Int, side: Int
](
    into: Pointer[mut=True, Scalar[wide], _, address_space=.SHARED],
    rows: Grid[dtype],
    sequence: Int,
    head: Int,
    first: Int,
    count: Int,
    size: Int,
    factor: Scalar[wide],
):
    """Copies `count` rows to shared memory, zeros around them."""
    var data = rows.at(sequence, head, first)
    for i in range(Int(thread_idx.x), side * room, THREADS):
        var r, d = divmod(i, room)
        var value = Scalar[wide](0)
        if r < count and d < size:
            value = data[unsafe_offset=r * rows.strides[2] + d * rows.strides[3]].cast[wide]()
        into[unsafe_offset=r * (room + 1) + d] = value * factor


@always_inline
def dots[
    wide: DType, //, room: Int, side: Int
](
    a: Pointer[Scalar[wide], _, address_space=.SHARED],
    b: Pointer[Scalar[wide], _, address_space=.SHARED],
    size: Int,
) -> Array[Scalar[wide], (side // 16) * (side // 16)]:
    """Returns this thread's part of a . b^T."""
    comptime each = side // 16
    var y, x = divmod(Int(thread_idx.x), 16)
    var found = Array[Scalar[wide], each * each](fill=0)
    for d in range(size):
        comptime for i in range(each):
            var one = a[unsafe_offset=(y + 16 * i) * (room + 1) + d]
            comptime for j in range(each):
                var other = b[unsafe_offset=(x + 16 * j) * (room + 1) + d]
                found[i * each + j] = one.fma(other, found[i * each + j])
    return found^


@always_inline
def gather[
    wide: DType, //, room: Int, side: Int
](
    weights: Pointer[Scalar[wide], _, address_space=.SHARED],
    rows: Pointer[Scalar[wide], _, address_space=.SHARED],
    mut total: Array[Scalar[wide], (side // 16) * (room // 16)],
):
    """Adds this thread's part of weights . rows."""
    comptime parts = room // 16
    var y, x = divmod(Int(thread_idx.x), 16)
    for c in range(side):
        comptime for i in range(side // 16):
            var weight = weights[unsafe_offset=(y + 16 * i) * (side + 1) + c]
            comptime for k in range(parts):
                var one = rows[unsafe_offset=c * (room + 1) + x + 16 * k]
                total[i * parts + k] = weight.fma(one, total[i * parts + k])


@always_inline
def scatter[
    dtype: DType, wide: DType, //, room: Int, side: Int
](
    total: Array[Scalar[wide], (side // 16) * (room // 16)],
    rows: Grid[dtype],
    sequence: Int,
    head: Int,
    first: Int,
    count: Int,
    size: Int,
    factor: Scalar[wide],
):
    """Writes this thread's part of `count` rows."""
    comptime parts = room // 16
    var y, x = divmod(Int(thread_idx.x), 16)
    comptime for i in range(side // 16):
        if y + 16 * i < count:
            var to = rows.at(sequence, head, first + y + 16 * i)
            comptime for k in range(parts):
                var d = x + 16 * k
                if d < size:
                    var value = total[i * parts + k] * factor
                    to[unsafe_offset=d * rows.strides[3]] = value.cast[dtype]()


@always_inline
def of_row[wide: DType, //, largest: Bool](value: Scalar[wide]) -> Scalar[wide]:
    """Reduces over the 16 threads that share rows; all of them get the result."""
    var found = value
    comptime for i in range(4):
        var other = warp.shuffle_xor(found, UInt32(8 >> i))
        comptime if largest:
            found = max(found, other)
        else:
            found += other
    return found


@always_inline
def seen(
    p: Problem, score: Scalar[p.wide], sequence: Int, head: Int, q: Int, k: Int
) -> Scalar[p.wide]:
    """Returns a score under the mask and causality."""
    if q >= p.queries or k >= p.keys or (p.causal and k > q):
        return neg_inf[p.wide]()
    comptime if p.has_mask:
        var value = p.mask.at(sequence, head, q)[unsafe_offset=k * p.mask.strides[3]]
        comptime if p.mask_dtype.is_floating_point():
            return score + value.cast[p.wide]()
        else:
            if value == 0:
                return neg_inf[p.wide]()
    return score


@always_inline
def kept(p: Problem, sequence: Int, head: Int, q: Int, k: Int) -> Scalar[p.wide]:
    """Returns what dropout multiplies a weight with."""
    comptime if p.has_keep:
        if q < p.queries and k < p.keys:
            var value = p.keep.at(sequence, head, q)[unsafe_offset=k * p.keep.strides[3]]
            return value.cast[p.wide]() * p.keep_scale
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
    side: Int,
](ImplicitlyCopyable, RegisterPassable, def() -> None):
    comptime wide = wide_of[Self.dtype]

    var problem: Problem[Self.dtype, Self.mask_dtype, Self.has_mask, Self.keep_dtype, Self.has_keep]
    var output: Grid[Self.dtype]
    var logsumexp: Grid[Self.wide]

    def __call__(self) capturing:
        comptime wide = Self.wide
        comptime each = Self.side // 16
        comptime parts = Self.room // 16
        var p = self.problem
        var query = unsafe_stack_allocation[
            Self.side * (Self.room + 1), Scalar[wide], address_space=.SHARED
        ]()
        var other = unsafe_stack_allocation[
            Self.side * (Self.room + 1), Scalar[wide], address_space=.SHARED
        ]()
        var weights = unsafe_stack_allocation[
            Self.side * (Self.side + 1), Scalar[wide], address_space=.SHARED
        ]()
        var first = Int(block_idx.x) * Self.side
        var head = Int(block_idx.y)
        var sequence = Int(block_idx.z)
        var kv_head = head // p.group
        var y, x = divmod(Int(thread_idx.x), 16)
        var count = min(Self.side, p.queries - first)
        var total = Array[Scalar[wide], each * parts](fill=0)
        var most = Array[Scalar[wide], each](fill=neg_inf[wide]())
        var sums = Array[Scalar[wide], each](fill=0)
        fetch[Self.room, Self.side](query, p.query, sequence, head, first, count, p.size, p.scale)
        var end = min(p.keys, first + count) if p.causal else p.keys
        for begin in range(0, end, Self.side):
            var rows = min(Self.side, p.keys - begin)
            barrier()
            fetch[Self.room, Self.side](
                other, p.key, sequence, kv_head, begin, rows, p.size, Scalar[wide](1)
            )
            barrier()
            var scores = dots[Self.room, Self.side](query, other, p.size)
            comptime for i in range(each):
                var q = first + y + 16 * i
                var top = most[i]
                comptime for j in range(each):
                    var score = seen(p, scores[i * each + j], sequence, head, q, begin + x + 16 * j)
                    scores[i * each + j] = score
                    top = max(top, score)
                top = of_row[True](top)
                var base = Scalar[wide](0) if top == neg_inf[wide]() else top
                var shrink = raised(most[i] - base)
                most[i] = top
                sums[i] *= shrink
                comptime for k in range(parts):
                    total[i * parts + k] *= shrink
                comptime for j in range(each):
                    var weight = raised(scores[i * each + j] - base)
                    sums[i] += weight
                    var at = (y + 16 * i) * (Self.side + 1) + x + 16 * j
                    var share = kept(p, sequence, head, q, begin + x + 16 * j)
                    weights[unsafe_offset=at] = weight * share
            barrier()
            fetch[Self.room, Self.side](
                other, p.value, sequence, kv_head, begin, rows, p.value_size, Scalar[wide](1)
            )
            barrier()
            gather[Self.room, Self.side](weights, other, total)
        comptime for i in range(each):
            var sum = of_row[False](sums[i])
            comptime for k in range(parts):
                total[i * parts + k] = total[i * parts + k] / sum if sum != 0 else Scalar[wide](0)
            if x == 0 and y + 16 * i < count:
                var level = inf[wide]() if sum == 0 else most[i] + logarithm(sum)
                self.logsumexp.at(sequence, head, first + y + 16 * i)[] = level
        scatter[Self.room, Self.side](
            total, self.output, sequence, head, first, count, p.value_size, Scalar[wide](1)
        )


@always_inline
def logarithm[dtype: DType](x: Scalar[dtype]) -> Scalar[dtype]:
    comptime assert dtype.is_floating_point()
    return log(x)


@fieldwise_init
struct BackwardQuery[
    dtype: DType,
    mask_dtype: DType,
    has_mask: Bool,
    keep_dtype: DType,
    has_keep: Bool,
    //,
    room: Int,
    side: Int,
](ImplicitlyCopyable, RegisterPassable, def() -> None):
    comptime wide = wide_of[Self.dtype]

    var problem: Problem[Self.dtype, Self.mask_dtype, Self.has_mask, Self.keep_dtype, Self.has_keep]
    var grad: Grid[Self.dtype]
    var output: Grid[Self.dtype]
    var logsumexp: Grid[Self.wide]
    var grad_query: Grid[Self.dtype]
    var delta: Grid[Self.wide]

    def __call__(self) capturing:
        comptime wide = Self.wide
        comptime each = Self.side // 16
        comptime parts = Self.room // 16
        var p = self.problem
        var query = unsafe_stack_allocation[
            Self.side * (Self.room + 1), Scalar[wide], address_space=.SHARED
        ]()
        var incoming = unsafe_stack_allocation[
            Self.side * (Self.room + 1), Scalar[wide], address_space=.SHARED
        ]()
        var other = unsafe_stack_allocation[
            Self.side * (Self.room + 1), Scalar[wide], address_space=.SHARED
        ]()
        var weights = unsafe_stack_allocation[
            Self.side * (Self.side + 1), Scalar[wide], address_space=.SHARED
        ]()
        var first = Int(block_idx.x) * Self.side
        var head = Int(block_idx.y)
        var sequence = Int(block_idx.z)
        var kv_head = head // p.group
        var y, x = divmod(Int(thread_idx.x), 16)
        var count = min(Self.side, p.queries - first)
        var total = Array[Scalar[wide], each * parts](fill=0)
        var levels = Array[Scalar[wide], each](fill=0)
        var deltas = Array[Scalar[wide], each](fill=0)
        var one = Scalar[wide](1)
        fetch[Self.room, Self.side](query, p.query, sequence, head, first, count, p.size, p.scale)
        fetch[Self.room, Self.side](
            incoming, self.grad, sequence, head, first, count, p.value_size, one
        )
        barrier()
        comptime for i in range(each):
            var r = y + 16 * i
            var sum = Scalar[wide](0)
            if r < count:
                levels[i] = self.logsumexp.at(sequence, head, first + r)[]
                var made = self.output.at(sequence, head, first + r)
                for d in range(x, p.value_size, 16):
                    sum += incoming[unsafe_offset=r * (Self.room + 1) + d] * (
                        made[unsafe_offset=d * self.output.strides[3]].cast[wide]()
                    )
            deltas[i] = of_row[False](sum)
            if r < count and x == 0:
                self.delta.at(sequence, head, first + r)[] = deltas[i]
        var end = min(p.keys, first + count) if p.causal else p.keys
        for begin in range(0, end, Self.side):
            var rows = min(Self.side, p.keys - begin)
            barrier()
            fetch[Self.room, Self.side](
                other, p.value, sequence, kv_head, begin, rows, p.value_size, one
            )
            barrier()
            var slopes = dots[Self.room, Self.side](incoming, other, p.value_size)
            barrier()
            fetch[Self.room, Self.side](other, p.key, sequence, kv_head, begin, rows, p.size, one)
            barrier()
            var scores = dots[Self.room, Self.side](query, other, p.size)
            comptime for i in range(each):
                comptime for j in range(each):
                    var q = first + y + 16 * i
                    var k = begin + x + 16 * j
                    var score = seen(p, scores[i * each + j], sequence, head, q, k)
                    var weight = raised(score - levels[i])
                    var slope = slopes[i * each + j] * kept(p, sequence, head, q, k)
                    weights[unsafe_offset=(y + 16 * i) * (Self.side + 1) + x + 16 * j] = weight * (
                        slope - deltas[i]
                    )
            barrier()
            gather[Self.room, Self.side](weights, other, total)
        scatter[Self.room, Self.side](
            total, self.grad_query, sequence, head, first, count, p.size, p.scale
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
    side: Int,
](ImplicitlyCopyable, RegisterPassable, def() -> None):
    comptime wide = wide_of[Self.dtype]

    var problem: Problem[Self.dtype, Self.mask_dtype, Self.has_mask, Self.keep_dtype, Self.has_keep]
    var grad: Grid[Self.dtype]
    var logsumexp: Grid[Self.wide]
    var delta: Grid[Self.wide]
    var grad_key: Grid[Self.dtype]
    var grad_value: Grid[Self.dtype]

    def __call__(self) capturing:
        comptime wide = Self.wide
        comptime each = Self.side // 16
        comptime parts = Self.room // 16
        comptime tile = Self.side * (Self.room + 1)
        var p = self.problem
        var key = unsafe_stack_allocation[tile, Scalar[wide], address_space=.SHARED]()
        var value = unsafe_stack_allocation[tile, Scalar[wide], address_space=.SHARED]()
        var query = unsafe_stack_allocation[tile, Scalar[wide], address_space=.SHARED]()
        var incoming = unsafe_stack_allocation[tile, Scalar[wide], address_space=.SHARED]()
        var weights = unsafe_stack_allocation[
            Self.side * (Self.side + 1), Scalar[wide], address_space=.SHARED
        ]()
        var slopes = unsafe_stack_allocation[
            Self.side * (Self.side + 1), Scalar[wide], address_space=.SHARED
        ]()
        var first = Int(block_idx.x) * Self.side
        var kv_head = Int(block_idx.y)
        var sequence = Int(block_idx.z)
        var y, x = divmod(Int(thread_idx.x), 16)
        var count = min(Self.side, p.keys - first)
        var key_total = Array[Scalar[wide], each * parts](fill=0)
        var value_total = Array[Scalar[wide], each * parts](fill=0)
        var one = Scalar[wide](1)
        fetch[Self.room, Self.side](key, p.key, sequence, kv_head, first, count, p.size, p.scale)
        fetch[Self.room, Self.side](
            value, p.value, sequence, kv_head, first, count, p.value_size, one
        )
        for head in range(kv_head * p.group, (kv_head + 1) * p.group):
            for begin in range(first if p.causal else 0, p.queries, Self.side):
                var rows = min(Self.side, p.queries - begin)
                barrier()
                fetch[Self.room, Self.side](
                    query, p.query, sequence, head, begin, rows, p.size, one
                )
                fetch[Self.room, Self.side](
                    incoming, self.grad, sequence, head, begin, rows, p.value_size, one
                )
                barrier()
                var scores = dots[Self.room, Self.side](key, query, p.size)
                var found = dots[Self.room, Self.side](value, incoming, p.value_size)
                comptime for j in range(each):
                    var q = begin + x + 16 * j
                    var level = Scalar[wide](0)
                    var delta = Scalar[wide](0)
                    if q < p.queries:
                        level = self.logsumexp.at(sequence, head, q)[]
                        delta = self.delta.at(sequence, head, q)[]
                    comptime for i in range(each):
                        var k = first + y + 16 * i
                        var score = seen(p, scores[i * each + j], sequence, head, q, k)
                        var weight = raised(score - level)
                        var share = kept(p, sequence, head, q, k)
                        var at = (y + 16 * i) * (Self.side + 1) + x + 16 * j
                        weights[unsafe_offset=at] = weight * share
                        slopes[unsafe_offset=at] = weight * (found[i * each + j] * share - delta)
                barrier()
                gather[Self.room, Self.side](weights, incoming, value_total)
                gather[Self.room, Self.side](slopes, query, key_total)
        scatter[Self.room, Self.side](
            key_total, self.grad_key, sequence, kv_head, first, count, p.size, p.scale
        )
        scatter[Self.room, Self.side](
            value_total, self.grad_value, sequence, kv_head, first, count, p.value_size, one
        )


def forward_on_gpu[
    room: Int
](p: Problem, output: Grid[p.dtype], logsumexp: Grid[p.wide], ctx: DeviceContext) raises:
    comptime side = 32 if size_of[Scalar[p.wide]]() == 4 else 16
    if p.batch * p.heads * p.queries == 0:
        return
    comptime if on_tensor_cores[p.dtype]():
        forward_on_tensor_cores[room](p, output, rebind[Grid[DType.float32]](logsumexp), ctx)
        return
    ctx.enqueue_function(
        Forward[room, side](p, output, logsumexp),
        grid_dim=(ceildiv(p.queries, side), p.heads, p.batch),
        block_dim=THREADS,
    )


def backward_on_gpu[
    room: Int
](
    p: Problem,
    grad: Grid[p.dtype],
    output: Grid[p.dtype],
    logsumexp: Grid[p.wide],
    grad_query: Grid[p.dtype],
    grad_key: Grid[p.dtype],
    grad_value: Grid[p.dtype],
    delta: Grid[p.wide],
    ctx: DeviceContext,
) raises:
    comptime side = 32 if size_of[Scalar[p.wide]]() * room <= 256 else 16
    comptime if on_tensor_cores[p.dtype]():
        backward_on_tensor_cores[room](
            p,
            grad,
            output,
            rebind[Grid[DType.float32]](logsumexp),
            grad_query,
            grad_key,
            grad_value,
            rebind[Grid[DType.float32]](delta),
            ctx,
        )
        return
    if p.batch * p.heads * p.queries != 0:
        ctx.enqueue_function(
            BackwardQuery[room, side](p, grad, output, logsumexp, grad_query, delta),
            grid_dim=(ceildiv(p.queries, side), p.heads, p.batch),
            block_dim=THREADS,
        )
    if p.batch * p.heads * p.keys != 0:
        ctx.enqueue_function(
            BackwardKeyValue[room, side](p, grad, logsumexp, delta, grad_key, grad_value),
            grid_dim=(ceildiv(p.keys, side), p.heads // p.group, p.batch),
            block_dim=THREADS,
        )
