"""Reductions of the device over any dimensions: goes through the kept and the reduced ones in the order of memory."""

from std.ffi import external_call
from std.memory import Pointer, stack_allocation

from torch import abi
from torch.cxx import PRIVATEUSE1, TAG_INT, TAG_NONE
from torch.host_boxed import FUNCTOR_DATA, argument, arguments, return_argument, tag_of
from torch.host_numbers import convert, is_floating
from torch.host_rows import BOOL, GRAIN, MOST_RANK, OnRange, Slow, UNSUPPORTED, go_slow, width_of
from torch.host_state import MISS, SLOW, TABLES, host_state
from torch.reductions import ALL, ANY, MAX, MIN, OPERATIONS, PROD, SUM
from torch.words import WordPtr, function_at, load, pointer, store

# words of a functor
comptime COUNT = FUNCTOR_DATA + 1
comptime OPERATION = FUNCTOR_DATA + 2  # BEST and BEST + 1 are argmax and argmin
comptime MEAN = FUNCTOR_DATA + 3
comptime DIM_LAST = FUNCTOR_DATA + 4

comptime BEST = OPERATIONS
comptime TABLE_AT = 32  # of the tables of reductions, in the words of STATE's tables
comptime CHUNK = 256  # outputs that are accumulated side by side
comptime LONG = 4

comptime StepFunction = def(source: Int, count: Int, step: Int, acc: WordPtr) thin abi("C") -> None
comptime Miss = def(dtype: Int) thin abi("C") -> Int

# words of a piece of work
comptime W_FUNCTION = 0
comptime W_SOURCE = 1
comptime W_GOAL = 2
comptime W_KEPT = 3  # how many dimensions are kept
comptime W_REDUCED = 4
comptime W_FIRST = 5  # the accumulator's first value
comptime W_ACC = 6  # its dtype
comptime W_OUT = 7  # the output's dtype
comptime W_DIVISOR = 8
comptime W_BYTES = 9
comptime W_OUT_BYTES = 10
comptime W_PARTS = 11
comptime W_SIZES = 16  # kept, then reduced: MOST_RANK each
comptime W_STEPS = W_SIZES + 2 * MOST_RANK
comptime W_GOAL_STEPS = W_STEPS + 2 * MOST_RANK
comptime W_WORDS = W_GOAL_STEPS + MOST_RANK


@always_inline
def finish(work: Int, cell: Int, to: Int):
    """Stores an accumulator in the output."""
    if load(work, W_DIVISOR) >= 0:
        var at = Pointer[Float64, MutAnyOrigin](unsafe_from_address=cell)
        at[] = at[] / Float64(load(work, W_DIVISOR))
    _ = convert(load(work, W_ACC), cell, load(work, W_OUT), to)


@always_inline
def offset_of(work: Int, first: Int, rank: Int, steps: Int, index: Int) -> Int:
    """Returns the elements before the one with this number among `rank` dimensions."""
    var rest = index
    var found = 0
    for i in range(rank):
        var d = rank - 1 - i
        var size = load(work, W_SIZES + first + d)
        found += rest % size * load(work, steps + d)
        rest //= size
    return found


@always_inline
def count_of(work: Int, first: Int, rank: Int) -> Int:
    var found = 1
    for d in range(rank):
        found *= load(work, W_SIZES + first + d)
    return found


def run_inner(begin: Int64, end: Int64, piece: WordPtr) abi("C"):
    """Reduces to outputs begin to end, each for itself."""
    var work = Int(piece)
    var kept = load(work, W_KEPT)
    var reduced = load(work, W_REDUCED)
    var length = load(work, W_SIZES + MOST_RANK + reduced - 1)
    var step = load(work, W_STEPS + MOST_RANK + reduced - 1)
    var rows = count_of(work, MOST_RANK, reduced - 1)
    var cell = Int(stack_allocation[1, Int]())
    for i in range(Int(begin), Int(end)):
        var base = load(work, W_SOURCE) + offset_of(work, 0, kept, W_STEPS, i) * load(work, W_BYTES)
        store(cell, 0, load(work, W_FIRST))
        for r in range(rows):
            var at = offset_of(work, MOST_RANK, reduced - 1, W_STEPS + MOST_RANK, r)
            function_at[StepFunction](load(work, W_FUNCTION))(
                base + at * load(work, W_BYTES), length, step, pointer(cell)
            )
        var to = offset_of(work, 0, kept, W_GOAL_STEPS, i) * load(work, W_OUT_BYTES)
        finish(work, cell, load(work, W_GOAL) + to)


def run_outer(begin: Int64, end: Int64, piece: WordPtr) abi("C"):
    """Reduces to outputs side by side; a piece is CHUNK of the last kept dimension."""
    var work = Int(piece)
    var kept = load(work, W_KEPT)
    var reduced = load(work, W_REDUCED)
    var length = load(work, W_SIZES + kept - 1)
    var step = load(work, W_STEPS + kept - 1)
    var goal_step = load(work, W_GOAL_STEPS + kept - 1)
    var chunks = (length + CHUNK - 1) // CHUNK
    var rows = count_of(work, MOST_RANK, reduced)
    var cells = Int(stack_allocation[CHUNK, Int]())
    for i in range(Int(begin), Int(end)):
        var from_ = i % chunks * CHUNK
        var count = min(CHUNK, length - from_)
        var base = offset_of(work, 0, kept - 1, W_STEPS, i // chunks) + from_ * step
        for j in range(count):
            store(cells, j, load(work, W_FIRST))
        for r in range(rows):
            var at = base + offset_of(work, MOST_RANK, reduced, W_STEPS + MOST_RANK, r)
            function_at[StepFunction](load(work, W_FUNCTION))(
                load(work, W_SOURCE) + at * load(work, W_BYTES), count, step, pointer(cells)
            )
        var goal = offset_of(work, 0, kept - 1, W_GOAL_STEPS, i // chunks) + from_ * goal_step
        for j in range(count):
            var to = (goal + j * goal_step) * load(work, W_OUT_BYTES)
            finish(work, cells + j * 8, load(work, W_GOAL) + to)


def run_parts(begin: Int64, end: Int64, piece: WordPtr) abi("C"):
    """Reduces parts of one row, each into an accumulator of its own."""
    var work = Int(piece)
    var step = load(work, W_STEPS + MOST_RANK)
    for i in range(Int(begin), Int(end)):
        var from_ = i * GRAIN
        var count = min(GRAIN, load(work, W_SIZES + MOST_RANK) - from_)
        function_at[StepFunction](load(work, W_FUNCTION))(
            load(work, W_SOURCE) + from_ * step * load(work, W_BYTES),
            count,
            step,
            pointer(load(work, W_PARTS) + i * 8),
        )


@always_inline
def parallel(f: OnRange, count: Int, grain: Int, work: Int):
    if count * LONG <= grain or count == 1:
        f(0, Int64(count), pointer(work))
        return
    var function = f
    _ = external_call["torch_parallel_for", Int32](
        Int64(0),
        Int64(count),
        Int64(max(grain, 1)),
        Pointer(to=function).unsafe_bitcast[Int]()[],
        pointer(work),
    )


@always_inline
def put(work: Int, first: Int, count: Int, size: Int, step: Int, goal_step: Int):
    """Inserts a dimension where its step belongs: the largest first."""
    var at = count
    while at > 0 and load(work, W_STEPS + first + at - 1) < step:
        store(work, W_SIZES + first + at, load(work, W_SIZES + first + at - 1))
        store(work, W_STEPS + first + at, load(work, W_STEPS + first + at - 1))
        if first == 0:
            store(work, W_GOAL_STEPS + at, load(work, W_GOAL_STEPS + at - 1))
        at -= 1
    store(work, W_SIZES + first + at, size)
    store(work, W_STEPS + first + at, step)
    if first == 0:
        store(work, W_GOAL_STEPS + at, goal_step)


@always_inline
def join(work: Int, first: Int, count: Int) -> Int:
    """Joins dimensions that follow each other; returns how many are left."""
    var kept = 0
    for i in range(1, count):
        var size = load(work, W_SIZES + first + i)
        var joined = load(work, W_STEPS + first + kept) == load(work, W_STEPS + first + i) * size
        if first == 0:
            joined = (
                joined
                and load(work, W_GOAL_STEPS + kept) == load(work, W_GOAL_STEPS + i) * size
            )
        if joined:
            store(work, W_SIZES + first + kept, load(work, W_SIZES + first + kept) * size)
        else:
            kept += 1
            store(work, W_SIZES + first + kept, size)
        store(work, W_STEPS + first + kept, load(work, W_STEPS + first + i))
        if first == 0:
            store(work, W_GOAL_STEPS + kept, load(work, W_GOAL_STEPS + i))
    return min(count, kept + 1)


@always_inline
def first_value(op: Int, floating: Bool) -> Int:
    """Returns the bits of the accumulator that changes nothing."""
    var real = Float64(0)
    var whole = 0
    if op == PROD or op == ALL:
        real, whole = Float64(1), 1
    elif op == MAX:
        real, whole = Float64.MIN, Int.MIN
    elif op == MIN:
        real, whole = Float64.MAX, Int.MAX
    return Pointer(to=real).unsafe_bitcast[Int]()[] if floating else whole


def reduce(functor: Int, source: Int, goal: Int, dim_words: WordPtr, dims: Int, keep: Bool) -> Bool:
    """Reduces over `dims` dimensions (-1: all); returns False if it is no call for this."""
    var rank = abi.rank_of(source)
    var dtype = abi.dtype_of(source)
    var out_dtype = abi.dtype_of(goal)
    var op = load(functor, OPERATION)
    if rank > MOST_RANK or abi.device_type_of(source) != PRIVATEUSE1:
        return False
    if abi.device_type_of(goal) != PRIVATEUSE1 or dtype >= TABLE_AT:
        return False
    if abi.device_index_of(goal) != abi.device_index_of(source):
        return False
    var floating = is_floating(dtype)
    if op <= PROD and floating and not is_floating(out_dtype) and out_dtype != BOOL:
        return False
    if load(functor, MEAN) != 0 and not floating:
        return False
    if (op == MAX or op == MIN) and out_dtype != dtype:
        return False
    var mask = 0
    for i in range(dims):
        var d = load(Int(dim_words), i)
        d = d + max(rank, 1) if d < 0 else d
        if d < 0 or d >= max(rank, 1) or mask >> d & 1 != 0:
            return False
        mask |= 1 << d
    if dims < 0 or (dims == 0 and op < BEST):
        mask = (1 << rank) - 1
    var work = Int(stack_allocation[W_WORDS, Int]())
    var kept = 0
    var reduced = 0
    var at = 0
    var total = 1
    var each = 1
    var goal_rank = abi.rank_of(goal)
    if goal_rank != (rank if keep else rank - pop_count(mask, rank)):
        return False
    for d in range(rank):
        var size = load(abi.sizes_of(source), d)
        var step = load(abi.strides_of(source), d)
        total *= size
        if mask >> d & 1 != 0:
            each *= size
            if keep:
                if load(abi.sizes_of(goal), at) != 1:
                    return False
                at += 1
            if size != 1:
                put(work, MOST_RANK, reduced, size, step, 0)
                reduced += 1
            continue
        if load(abi.sizes_of(goal), at) != size:
            return False
        if size != 1:
            put(work, 0, kept, size, step, load(abi.strides_of(goal), at))
            kept += 1
        at += 1
    if total == 0 and (op >= MAX or each != 0):
        return each != 0
    if op >= BEST and reduced > 1 and (kept > 0 or not abi.is_contiguous(source)):
        return False  # the number of an element counts its dimensions as they are
    kept = join(work, 0, kept)
    reduced = join(work, MOST_RANK, reduced)
    if reduced == 0:
        reduced = 1
        store(work, W_SIZES + MOST_RANK, 1)
        store(work, W_STEPS + MOST_RANK, 1)
    var tables = load(host_state(), TABLES)
    var table = load(tables, TABLE_AT + dtype)
    if table == 0:
        table = function_at[Miss](load(host_state(), MISS))(TABLE_AT + dtype)
        if table & 1 != 0 and table != UNSUPPORTED:
            abi.throw(table - 1)
    if table == UNSUPPORTED:
        return False
    var side_by_side = (
        kept > 0
        and op < BEST
        and load(work, W_STEPS + kept - 1) < load(work, W_STEPS + MOST_RANK + reduced - 1)
        and load(work, W_SIZES + kept - 1) >= 4
    )
    store(work, W_SOURCE, abi.data_of(source, False))
    store(work, W_GOAL, abi.data_of(goal, True))
    store(work, W_KEPT, kept)
    store(work, W_REDUCED, reduced)
    store(work, W_FIRST, first_value(op, floating))
    store(work, W_ACC, 7 if floating and op < BEST else 4)
    store(work, W_OUT, out_dtype)
    store(work, W_DIVISOR, each if load(functor, MEAN) != 0 else -1)
    store(work, W_BYTES, width_of(dtype))
    store(work, W_OUT_BYTES, width_of(out_dtype))
    var outputs = count_of(work, 0, kept)
    if op >= BEST:
        store(work, W_FUNCTION, load(table, 2 * OPERATIONS + op - BEST))
        parallel(run_inner, outputs, GRAIN // max(each, 1), work)
    elif side_by_side:
        store(work, W_FUNCTION, load(table, 2 * op + 1))
        var length = load(work, W_SIZES + kept - 1)
        var pieces = outputs // length * ((length + CHUNK - 1) // CHUNK)
        parallel(run_outer, pieces, GRAIN // max(each * min(length, CHUNK), 1), work)
    elif kept == 0 and reduced == 1 and each > 2 * GRAIN:
        store(work, W_FUNCTION, load(table, 2 * op))
        var parts = (each + GRAIN - 1) // GRAIN
        var cells = external_call["malloc", Int](parts * 8)
        for i in range(parts):
            store(cells, i, load(work, W_FIRST))
        store(work, W_PARTS, cells)
        parallel(run_parts, parts, 1, work)
        # float64 and int64 have tables of their own: the same step over the accumulators
        var wide = load(tables, TABLE_AT + load(work, W_ACC))
        if wide == 0:
            wide = function_at[Miss](load(host_state(), MISS))(TABLE_AT + load(work, W_ACC))
            if wide & 1 != 0:
                abi.throw(wide - 1)
        var cell = Int(stack_allocation[1, Int]())
        store(cell, 0, load(work, W_FIRST))
        function_at[StepFunction](load(wide, 2 * op))(cells, parts, 1, pointer(cell))
        external_call["free", NoneType](cells)
        finish(work, cell, load(work, W_GOAL))
    else:
        store(work, W_FUNCTION, load(table, 2 * op))
        parallel(run_inner, outputs, GRAIN // max(each, 1), work)
    return True


@always_inline
def pop_count(mask: Int, rank: Int) -> Int:
    var found = 0
    for d in range(rank):
        found += mask >> d & 1
    return found


@always_inline
def run_reduction(
    functor: Int, source: Int, goal: Int, dim_words: Int, dims: Int, keep: Int, dtype: Int
):
    """Runs a reduction, or hands Python its arguments: self, out, dimensions, their number, keepdim and dtype."""
    if reduce(functor, source, goal, pointer(dim_words), dims, keep & 255 != 0):
        return
    var list = Int(stack_allocation[6, Int]())
    store(list, 0, source)
    store(list, 1, goal)
    store(list, 2, dim_words)
    store(list, 3, dims)
    store(list, 4, keep & 255)
    store(list, 5, dtype & 0xFFFF)
    go_slow(functor, list, 0)


def sum_unboxed(
    functor: Int,
    keys: Int,
    source: Int,
    keep: Int,
    dtype: Int,
    goal: Int,
    dim_words: Int,
    dims: Int,
    given: Int,
) abi("C") -> Int:
    """(self, int[]? dim, keepdim, dtype, out): the optional list is three words on the stack."""
    run_reduction(
        functor, source, goal, dim_words, dims if given & 255 != 0 else -1, keep, dtype
    )
    return goal


def amax_unboxed(
    functor: Int, keys: Int, source: Int, dim_words: Int, dims: Int, keep: Int, goal: Int
) abi("C") -> Int:
    """(self, int[] dim, keepdim, out)."""
    run_reduction(functor, source, goal, dim_words, dims, keep, 0)
    return goal


def argmax_unboxed(
    functor: Int, keys: Int, source: Int, dim: Int, given: Int, keep: Int, goal: Int
) abi("C") -> Int:
    """(self, int? dim, keepdim, out)."""
    var cell = Int(stack_allocation[1, Int]())
    store(cell, 0, dim)
    run_reduction(functor, source, goal, cell, 1 if given & 255 != 0 else -1, keep, 0)
    return goal


def any_unboxed(
    functor: Int, keys: Int, source: Int, dim: Int, keep: Int, goal: Int
) abi("C") -> Int:
    """(self, int dim, keepdim, out)."""
    var cell = Int(stack_allocation[1, Int]())
    store(cell, 0, dim)
    run_reduction(functor, source, goal, cell, 1, keep, 0)
    return goal


def prod_unboxed(
    functor: Int, keys: Int, source: Int, dim: Int, keep: Int, dtype: Int, goal: Int
) abi("C") -> Int:
    """(self, int dim, keepdim, dtype, out)."""
    var cell = Int(stack_allocation[1, Int]())
    store(cell, 0, dim)
    run_reduction(functor, source, goal, cell, 1, keep, dtype)
    return goal


def any_all_unboxed(functor: Int, keys: Int, source: Int, goal: Int) abi("C") -> Int:
    """(self, out)."""
    run_reduction(functor, source, goal, 0, -1, 0, 0)
    return goal


def reduce_boxed(functor: Int, operator: Int, keys: Int, stack: Int) abi("C"):
    """All of them: self, then dimensions and keepdim if there are any, then a dtype, the output last."""
    var count = load(functor, COUNT)
    var first = arguments(stack, count)
    var words = Int(stack_allocation[64, Int]())
    var dims = -1
    if count > 2:
        var value = argument(first, 1)
        if tag_of(value) == TAG_INT:
            store(words, 0, load(value, 0))
            dims = 1
        elif tag_of(value) != TAG_NONE:
            var items = load(load(value, 0), 2)
            dims = (load(load(value, 0), 3) - items) // 16
            for i in range(dims):
                store(words, i, load(items + i * 16, 0))
    var keep = load(argument(first, 2), 0) if count > 3 else 0
    var dtype = 0
    if count > 4 and tag_of(argument(first, 3)) != TAG_NONE:
        dtype = load(argument(first, 3), 0) & 255 | 256
    run_reduction(functor, first, argument(first, count - 1), words, dims, keep, dtype)
    return_argument(stack, count, count - 1)
