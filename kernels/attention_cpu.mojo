"""The passes of attention on the CPU: forward and the gradient of query go over queries, that of key and value over keys.

Each task has columns of its own and sums in one order, so that the result does not depend on the number of threads.
"""

from std.math import align_up, ceildiv, log
from std.sys import simd_width_of
from std.utils.numerics import inf, neg_inf

from max.algorithm.functional import sync_parallelize
from max.runtime.asyncrt import parallelism_level

from attention_tiles import (
    Grid,
    LANES,
    Place,
    Problem,
    ROWS,
    clear,
    lines,
    pack,
    product,
    raised,
    unpack,
)


def run[F: def(Int, Int) -> None, //, wide: DType](f: F, tasks: Int, scratch: Int):
    """Calls f(task, address) for all tasks; at the address is memory for `scratch` numbers, of one thread at a time."""
    var workers = min(tasks, parallelism_level(None))

    def work(worker: Int) {imm}:
        var memory = List[Scalar[wide]](unsafe_uninit_length=scratch + 16)
        var address = align_up(Int(memory.unsafe_ptr()), 64)
        for task in range(worker, tasks, workers):
            f(task, address)
        _ = memory^

    if workers <= 1:
        for i in range(workers):
            work(i)
    else:
        sync_parallelize(work, workers)


@always_inline
def used[wide: DType](lanes: Int) -> Int:
    """Returns how many columns are worked on: whole steps of `product`."""
    return align_up(lanes, 2 * simd_width_of[wide]())


def forward(p: Problem, output: Grid[p.dtype], logsumexp: Grid[p.wide]):
    """Computes the output and, for each row of scores, the logarithm of the sum of their exponentials."""
    comptime wide = p.wide
    comptime native = simd_width_of[wide]()
    var blocks = ceildiv(p.queries, LANES)
    var spare = ROWS * max(p.size, p.value_size)
    var needed = LANES * (p.size + p.value_size + ROWS + 2) + spare

    def task(number: Int, address: Int) {imm}:
        var sequence = number // blocks // p.heads
        var head = number // blocks % p.heads
        var kv_head = head // p.group
        var first = number % blocks * LANES
        var count = min(LANES, p.queries - first)
        var width = used[wide](count)
        var query = Place[wide](unsafe_from_address=address)
        var total = query.unsafe_offset(LANES * p.size)
        var scores = total.unsafe_offset(LANES * p.value_size)
        var most = scores.unsafe_offset(LANES * ROWS)
        var sums = most.unsafe_offset(LANES)
        var converted = sums.unsafe_offset(LANES)
        pack(p.query, p.query.at(sequence, head, first), count, width, p.size, p.scale, query)
        for i in range(LANES):
            most[unsafe_offset=i] = neg_inf[wide]()
            sums[unsafe_offset=i] = 0
        clear(total, p.value_size, width)
        var end = min(p.keys, first + count) if p.causal else p.keys
        for begin in range(0, end, ROWS):
            var rows = min(ROWS, end - begin)
            var pitch = 0
            var key = lines(p.key, sequence, kv_head, begin, rows, p.size, converted, pitch)
            product[False](key, pitch, query, scores, rows, p.size, width, True)
            p.hide[True](scores, sequence, head, begin, rows, first, count)
            for i in range(0, width, native):
                var old = most.unsafe_load[width=native](i)
                var top = old
                for r in range(rows):
                    top = max(top, scores.unsafe_load[width=native](r * LANES + i))
                var base = top.eq(neg_inf[wide]()).select(SIMD[wide, native](0), top)
                var sum = SIMD[wide, native](0)
                for r in range(rows):
                    var weight = raised(scores.unsafe_load[width=native](r * LANES + i) - base)
                    scores.unsafe_store(r * LANES + i, weight)
                    sum += weight
                var shrink = raised(old - base)
                most.unsafe_store(i, top)
                sums.unsafe_store(i, sums.unsafe_load[width=native](i).fma(shrink, sum))
                if begin != 0:
                    for d in range(p.value_size):
                        var at = d * LANES + i
                        total.unsafe_store(at, total.unsafe_load[width=native](at) * shrink)
            p.drop[True](scores, sequence, head, begin, rows, first, count)
            var value = lines(
                p.value, sequence, kv_head, begin, rows, p.value_size, converted, pitch
            )
            product[True](value, pitch, scores, total, p.value_size, rows, width, False)
        for i in range(0, width, native):
            var sum = sums.unsafe_load[width=native](i)
            var share = sum.eq(0).select(SIMD[wide, native](0), 1 / sum)
            for d in range(p.value_size):
                var at = d * LANES + i
                total.unsafe_store(at, total.unsafe_load[width=native](at) * share)
        var to = output.at(sequence, head, first)
        unpack(total, output, to, count, p.value_size, Scalar[wide](1))
        for i in range(count):
            var sum = sums[unsafe_offset=i]
            logsumexp.at(sequence, head, first + i)[] = inf[wide]() if sum == 0 else (
                most[unsafe_offset=i] + logarithm(sum)
            )

    run[wide](task, p.batch * p.heads * blocks, needed)


@always_inline
def logarithm[dtype: DType](x: Scalar[dtype]) -> Scalar[dtype]:
    comptime assert dtype.is_floating_point()
    return log(x)


def backward_query(
    p: Problem,
    grad: Grid[p.dtype],
    output: Grid[p.dtype],
    logsumexp: Grid[p.wide],
    grad_query: Grid[p.dtype],
    delta: Grid[p.wide],
):
    """Computes the gradient of query, and `delta`: what the normalization takes from each row of scores."""
    comptime wide = p.wide
    comptime native = simd_width_of[wide]()
    var blocks = ceildiv(p.queries, LANES)
    var spare = ROWS * max(p.size, p.value_size)
    var needed = LANES * (2 * p.size + p.value_size + 2 * ROWS + 2) + spare

    def task(number: Int, address: Int) {imm}:
        var sequence = number // blocks // p.heads
        var head = number // blocks % p.heads
        var kv_head = head // p.group
        var first = number % blocks * LANES
        var count = min(LANES, p.queries - first)
        var width = used[wide](count)
        var query = Place[wide](unsafe_from_address=address)
        var total = query.unsafe_offset(LANES * p.size)
        var incoming = total.unsafe_offset(LANES * p.size)
        var scores = incoming.unsafe_offset(LANES * p.value_size)
        var slopes = scores.unsafe_offset(LANES * ROWS)
        var levels = slopes.unsafe_offset(LANES * ROWS)
        var deltas = levels.unsafe_offset(LANES)
        var converted = deltas.unsafe_offset(LANES)
        pack(p.query, p.query.at(sequence, head, first), count, width, p.size, p.scale, query)
        var one = Scalar[wide](1)
        pack(grad, grad.at(sequence, head, first), count, width, p.value_size, one, incoming)
        for i in range(LANES):
            levels[unsafe_offset=i] = 0
            deltas[unsafe_offset=i] = 0
        for i in range(count):
            var out = output.at(sequence, head, first + i)
            var sum = Scalar[wide](0)
            for d in range(p.value_size):
                var made = out[unsafe_offset=d * output.strides[3]].cast[wide]()
                sum += made * incoming[unsafe_offset=d * LANES + i]
            deltas[unsafe_offset=i] = sum
            delta.at(sequence, head, first + i)[] = sum
            levels[unsafe_offset=i] = logsumexp.at(sequence, head, first + i)[]
        clear(total, p.size, width)
        var end = min(p.keys, first + count) if p.causal else p.keys
        for begin in range(0, end, ROWS):
            var rows = min(ROWS, end - begin)
            var pitch = 0
            var value = lines(
                p.value, sequence, kv_head, begin, rows, p.value_size, converted, pitch
            )
            product[False](value, pitch, incoming, slopes, rows, p.value_size, width, True)
            p.drop[True](slopes, sequence, head, begin, rows, first, count)
            var key = lines(p.key, sequence, kv_head, begin, rows, p.size, converted, pitch)
            product[False](key, pitch, query, scores, rows, p.size, width, True)
            p.hide[True](scores, sequence, head, begin, rows, first, count)
            for i in range(0, width, native):
                var level = levels.unsafe_load[width=native](i)
                var low = deltas.unsafe_load[width=native](i)
                for r in range(rows):
                    var at = r * LANES + i
                    var weight = raised(scores.unsafe_load[width=native](at) - level)
                    scores.unsafe_store(at, weight * (slopes.unsafe_load[width=native](at) - low))
            product[True](key, pitch, scores, total, p.size, rows, width, False)
        unpack(total, grad_query, grad_query.at(sequence, head, first), count, p.size, p.scale)

    run[wide](task, p.batch * p.heads * blocks, needed)


def backward_key_value(
    p: Problem,
    grad: Grid[p.dtype],
    logsumexp: Grid[p.wide],
    delta: Grid[p.wide],
    grad_key: Grid[p.dtype],
    grad_value: Grid[p.dtype],
):
    """Computes the gradients of key and value, summed over the heads of a group."""
    comptime wide = p.wide
    comptime native = simd_width_of[wide]()
    var blocks = ceildiv(p.keys, LANES)
    var kv_heads = p.heads // p.group
    var spare = ROWS * (p.size + p.value_size)
    var needed = LANES * (2 * p.size + 2 * p.value_size + 2 * ROWS) + spare

    def task(number: Int, address: Int) {imm}:
        var sequence = number // blocks // kv_heads
        var kv_head = number // blocks % kv_heads
        var first = number % blocks * LANES
        var count = min(LANES, p.keys - first)
        var width = used[wide](count)
        var key = Place[wide](unsafe_from_address=address)
        var value = key.unsafe_offset(LANES * p.size)
        var key_total = value.unsafe_offset(LANES * p.value_size)
        var value_total = key_total.unsafe_offset(LANES * p.size)
        var weights = value_total.unsafe_offset(LANES * p.value_size)
        var slopes = weights.unsafe_offset(LANES * ROWS)
        var converted = slopes.unsafe_offset(LANES * ROWS)
        pack(p.key, p.key.at(sequence, kv_head, first), count, width, p.size, p.scale, key)
        var one = Scalar[wide](1)
        pack(p.value, p.value.at(sequence, kv_head, first), count, width, p.value_size, one, value)
        clear(key_total, p.size + p.value_size, width)
        for head in range(kv_head * p.group, (kv_head + 1) * p.group):
            for begin in range(first if p.causal else 0, p.queries, ROWS):
                var rows = min(ROWS, p.queries - begin)
                var pitch = 0
                var grad_pitch = 0
                var query = lines(p.query, sequence, head, begin, rows, p.size, converted, pitch)
                var incoming = lines(
                    grad,
                    sequence,
                    head,
                    begin,
                    rows,
                    p.value_size,
                    converted.unsafe_offset(ROWS * p.size),
                    grad_pitch,
                )
                product[False](query, pitch, key, weights, rows, p.size, width, True)
                p.hide[False](weights, sequence, head, begin, rows, first, count)
                product[False](incoming, grad_pitch, value, slopes, rows, p.value_size, width, True)
                p.drop[False](slopes, sequence, head, begin, rows, first, count)
                for r in range(rows):
                    var level = SIMD[wide, native](logsumexp.at(sequence, head, begin + r)[])
                    var low = SIMD[wide, native](delta.at(sequence, head, begin + r)[])
                    for i in range(0, width, native):
                        var at = r * LANES + i
                        var weight = raised(weights.unsafe_load[width=native](at) - level)
                        weights.unsafe_store(at, weight)
                        var slope = slopes.unsafe_load[width=native](at)
                        slopes.unsafe_store(at, weight * (slope - low))
                p.drop[False](weights, sequence, head, begin, rows, first, count)
                product[True](
                    incoming, grad_pitch, weights, value_total, p.value_size, rows, width, False
                )
                product[True](query, pitch, slopes, key_total, p.size, rows, width, False)
        unpack(key_total, grad_key, grad_key.at(sequence, kv_head, first), count, p.size, p.scale)
        var to = grad_value.at(sequence, kv_head, first)
        unpack(value_total, grad_value, to, count, p.value_size, one)

    run[wide](task, p.batch * kv_heads * blocks, needed)
