"""Elementwise operators of the device: finds the row of the table for a call's dtype and runs it over all elements.

What a row cannot do (another dtype, a size that does not fit, memory that overlaps) goes to Python, `slow`.
"""

from std.ffi import external_call
from std.memory import Pointer, stack_allocation

from torch import abi
from torch.cxx import IMPL_KEYS, OPTIONAL_SCALAR_BYTES, PRIVATEUSE1, SCALAR_BOOL, SCALAR_COMPLEX, SCALAR_DOUBLE
from torch.cxx import SCALAR_INT
from torch.cxx import TAG_BOOL, TAG_DOUBLE, TAG_INT, TAG_NONE, release_impl, storage_of
from torch.host_boxed import FUNCTOR_DATA, argument, arguments, return_argument, return_tensors, tag_of
from torch.host_convert import conversion
from torch.host_numbers import convert, is_floating, is_integral, number_of
from torch.host_state import LAZY, MISS, SLOW, TABLES, host_state
from torch.host_tensors import new_strided
from torch.layout import DENSE, layout_class
from torch.words import WordPtr, function_at, load, pointer, store

# words of a functor
comptime OPERATOR = FUNCTOR_DATA
comptime COUNT = FUNCTOR_DATA + 1
comptime KINDS = FUNCTOR_DATA + 2
comptime FLAGS = FUNCTOR_DATA + 3
comptime ROW = FUNCTOR_DATA + 4
comptime OTHER_ROW = FUNCTOR_DATA + 5

# kinds of an argument, four bits each
comptime TENSOR = 1
comptime NUMBER = 2
comptime OUT = 3
comptime IGNORED = 4  # a bool, by value
comptime BOTH = 5  # written, and an input
comptime BOUND = 6  # an optional number: the first bounds from below, the second from above

# flags
comptime FLOATS = 1
comptime TEST = 2
comptime MASKED = 4
comptime ANYWHERE = 8  # all memory is the host's: copies

comptime BOOL = 11  # c10::ScalarType
comptime FILLS = 32  # its number is the result
comptime MOST_RANK = 16
comptime GRAIN = 32768
comptime UNSUPPORTED = 1

comptime RowFunction = def(
    addresses: WordPtr, steps: WordPtr, count: Int, params: WordPtr
) thin abi("C") -> None
comptime Miss = def(dtype: Int) thin abi("C") -> Int
comptime Slow = def(functor: WordPtr, arguments: WordPtr, result: WordPtr) thin abi("C") -> Int
comptime OnRange = def(begin: Int64, end: Int64, piece: WordPtr) thin abi("C") -> None

# words of a piece of work
comptime W_FUNCTION = 0
comptime W_PARAMS = 1
comptime W_RANK = 2
comptime W_OPERANDS = 3
comptime W_ADDRESSES = 4  # 4 of them
comptime W_SIZES = 8  # MOST_RANK
comptime W_STEPS = W_SIZES + MOST_RANK  # MOST_RANK for each operand, in elements
comptime W_BYTES = W_STEPS + 4 * MOST_RANK  # of an element of each operand
comptime W_WORDS = W_BYTES + 4


@always_inline
def kind_of(functor: Int, i: Int) -> Int:
    return load(functor, KINDS) >> (4 * i) & 15


def run_piece(begin: Int64, end: Int64, piece: WordPtr) abi("C"):
    """Runs elements begin to end, counted along the sorted dimensions; the last one is the row."""
    var work = Int(piece)
    var rank = load(work, W_RANK)
    var operands = load(work, W_OPERANDS)
    var last = rank - 1
    var length = load(work + W_SIZES * 8, last)
    var steps = Int(stack_allocation[4, Int]())
    var places = Int(stack_allocation[4, Int]())
    for k in range(4):
        store(steps, k, load(work + (W_STEPS + k * MOST_RANK) * 8, last) if k < operands else 0)
        store(places, k, 64)
    var at = Int(begin)
    while at < Int(end):
        var within = at % length
        var rest = at // length
        for k in range(operands):
            store(places, k, within * load(steps, k))
        for i in range(last):
            var d = last - 1 - i
            var size = load(work + W_SIZES * 8, d)
            var index = rest % size
            rest //= size
            for k in range(operands):
                var step = load(work + (W_STEPS + k * MOST_RANK) * 8, d)
                store(places, k, load(places, k) + index * step)
        for k in range(operands):
            var bytes = load(work + W_BYTES * 8, k)
            store(places, k, load(work + W_ADDRESSES * 8, k) + load(places, k) * bytes)
        var count = min(length - within, Int(end) - at)
        function_at[RowFunction](load(work, W_FUNCTION))(
            pointer(places), pointer(steps), count, pointer(load(work, W_PARAMS))
        )
        at += count


@always_inline
def sort_dimensions(work: Int, rank: Int, operands: Int) -> Int:
    """Puts dimensions in the order of the output's memory and joins those that follow each other; returns how many."""
    var sizes = work + W_SIZES * 8
    var steps = work + W_STEPS * 8
    for i in range(1, rank):
        var j = i
        while j > 0 and load(steps, j - 1) < load(steps, j):
            var size = load(sizes, j)
            store(sizes, j, load(sizes, j - 1))
            store(sizes, j - 1, size)
            for k in range(operands):
                var own = steps + k * MOST_RANK * 8
                var step = load(own, j)
                store(own, j, load(own, j - 1))
                store(own, j - 1, step)
            j -= 1
    var kept = 0
    for i in range(1, rank):
        var joined = True
        for k in range(operands):
            var own = steps + k * MOST_RANK * 8
            if load(own, kept) != load(own, i) * load(sizes, i):
                joined = False
                break
        if joined:
            store(sizes, kept, load(sizes, kept) * load(sizes, i))
        else:
            kept += 1
            store(sizes, kept, load(sizes, i))
        for k in range(operands):
            var own = steps + k * MOST_RANK * 8
            store(own, kept, load(own, i))
    return kept + 1


@always_inline
def common_dtype(functor: Int, arguments: Int) -> Int:
    """Returns what torch computes the inputs in, or -1."""
    var first = 0
    var second = 0
    var count = load(functor, COUNT)
    var skip = load(functor, FLAGS) & MASKED
    var dtype = -1
    for i in range(count):
        var kind = kind_of(functor, i)
        if kind != TENSOR and kind != BOTH:
            continue
        if skip != 0:
            skip = 0
            continue
        var tensor = load(arguments, i)
        var own = abi.dtype_of(tensor)
        if dtype < 0:
            dtype = own
            first = tensor
        elif own != dtype:
            if second != 0:
                return -1
            second = tensor
    if second != 0:
        return Int(
            external_call["_ZN2at6native11result_typeERKNS_6TensorES3_", Int8](first, second)
        )
    return dtype


@always_inline
def row_for(functor: Int, row: Int, dtype: Int) -> Int:
    """Returns the row's function for a dtype, built now if it is new, or 0 if there is none."""
    var state = host_state()
    var tables = load(state, TABLES)
    if dtype < 0 or dtype >= 32:
        return 0
    var table = load(tables, dtype)
    if table == 0:
        table = function_at[Miss](load(state, MISS))(dtype)
        if table & 1 != 0 and table != UNSUPPORTED:
            abi.throw(table - 1)
    return 0 if table == UNSUPPORTED else load(table, row)


@always_inline
def fits(number: Int, dtype: Int, real: Bool) -> Bool:
    """Tells whether a tensor can be filled with a number as it is; torch refuses one that overflows."""
    var whole = load(number, 1)
    var bits = load(number, 0)
    var value = Pointer(to=bits).unsafe_bitcast[Float64]()[]
    if is_floating(dtype):
        var most = 60000.0 if width_of(dtype) == 2 else Float64(Float32.MAX_FINITE)
        return width_of(dtype) > 4 or not (abs(value) > most and abs(value) < Float64.MAX)
    if real and Float64(whole) != value:
        return False
    var bytes = width_of(dtype)
    return bytes == 8 or (whole >= 0 and whole >> (8 * bytes - 1) == 0)


def attempt(functor: Int, given_arguments: WordPtr, goal: Int, row: Int) -> Bool:
    """Runs a call; returns False if it is none for a row.

    Memory on the stack goes from function to function as pointers: the compiler takes an Int for a number.
    """
    var arguments = Int(given_arguments)
    var count = load(functor, COUNT)
    var flags = load(functor, FLAGS)
    var out_dtype = abi.dtype_of(goal)
    var dtype = common_dtype(functor, arguments)
    if dtype < 0:
        dtype = out_dtype
    if flags & FLOATS and not is_floating(dtype):
        if not is_floating(out_dtype):
            return False
        dtype = out_dtype
    var function = 0
    if flags & ANYWHERE:
        function = conversion(dtype, out_dtype)
    elif out_dtype != (BOOL if flags & TEST else dtype):
        return False
    else:
        function = row_for(functor, row, dtype)
    if function == 0 or (
        abi.device_type_of(goal) != PRIVATEUSE1 and flags & ANYWHERE == 0
    ):
        return False
    var rank = abi.rank_of(goal)
    if rank > MOST_RANK:
        return False
    var work = Int(stack_allocation[W_WORDS, Int]())
    var params = Int(stack_allocation[16, Int]())
    var values = Int(stack_allocation[8, Int]())
    var sizes = abi.sizes_of(goal)
    var strides = abi.strides_of(goal)
    var device = abi.device_index_of(goal)
    var used = 0
    var total = 1
    for d in range(rank):
        var size = load(sizes, d)
        total *= size
        if size != 1:
            if load(strides, d) == 0 and size > 1:
                return False
            store(work, W_SIZES + used, size)
            store(work, W_STEPS + used, load(strides, d))
            used += 1
    store(work, W_ADDRESSES, abi.data_of(goal, True))
    store(work, W_BYTES, width_of(out_dtype))
    var storage = storage_of(abi.tensor_impl(goal))
    var operands = 1
    var numbers = 0
    store(params, 0, 0)
    store(params, 1, 0)
    var anywhere = flags & ANYWHERE != 0
    var reached = 0  # a bit for each of the output's dimensions that an input has
    var masked = flags & MASKED != 0
    var inputs = False
    for i in range(count):
        var kind = kind_of(functor, i)
        var given = load(arguments, i)
        if kind == NUMBER:
            if not number_of(given, params + numbers * 16):
                return False
            var real = load(given, 0) & 0xFFFFFFFF == SCALAR_DOUBLE
            if flags & FILLS != 0:
                if not fits(params + numbers * 16, dtype, real):
                    return False
            elif real and not is_floating(dtype):
                return False
            numbers += 1
            continue
        if kind == BOUND:
            if not is_floating(dtype) and load(given, 4) & 255 == 0:
                return False
            var infinite = Float64.MAX if numbers > 0 else Float64.MIN
            store(params, 2 * numbers, Pointer(to=infinite).unsafe_bitcast[Int]()[])
            if load(given, 4) & 255 != 0:
                if not number_of(given, params + numbers * 16):
                    return False
                if load(given, 0) & 0xFFFFFFFF == SCALAR_DOUBLE and not is_floating(dtype):
                    return False
            numbers += 1
            continue
        if kind == OUT or kind == IGNORED:
            continue
        inputs = True
        var own = abi.dtype_of(given)
        var own_rank = abi.rank_of(given)
        var own_sizes = abi.sizes_of(given)
        var own_strides = abi.strides_of(given)
        if own_rank > rank:
            return False
        var address = abi.data_of(given, False)
        if anywhere:
            pass
        elif abi.device_type_of(given) == PRIVATEUSE1:
            if abi.device_index_of(given) != device:
                return False
        elif abi.device_type_of(given) != 0 or own_rank != 0:
            return False
        var wanted = BOOL if masked else dtype
        if own != wanted:
            if own_rank != 0 or masked or not convert(own, address, dtype, values + operands * 8):
                return False
            address = values + operands * 8
            own = dtype
        masked = False
        var slot = W_STEPS + operands * MOST_RANK
        var j = 0
        var same = address == load(work, W_ADDRESSES)
        for d in range(rank):
            var size = load(sizes, d)
            var mine = d - (rank - own_rank)
            var mine_size = load(own_sizes, mine) if mine >= 0 else 1
            if mine_size == size:
                reached |= 1 << d
            elif mine_size != 1:
                return False
            if size == 1:
                continue
            var step = load(own_strides, mine) if mine_size != 1 else 0
            if step != load(work, W_STEPS + j):
                same = False
            store(work, slot + j, step)
            j += 1
        if own_rank > 0 and not same and storage_of(abi.tensor_impl(given)) == storage:
            return False
        store(work, W_ADDRESSES + operands, address)
        store(work, W_BYTES + operands, width_of(own))
        operands += 1
    if inputs and reached != (1 << rank) - 1:
        return False
    if total == 0:
        return True
    store(work, W_FUNCTION, function)
    store(work, W_PARAMS, params)
    store(work, W_OPERANDS, operands)
    if used == 0:
        used = 1
        store(work, W_SIZES, 1)
        for k in range(operands):
            store(work, W_STEPS + k * MOST_RANK, 1)
    elif used > 1:
        used = sort_dimensions(work, used, operands)
    store(work, W_RANK, used)
    if total < GRAIN:
        run_piece(0, Int64(total), pointer(work))
    else:
        var f: OnRange = run_piece
        _ = external_call["torch_parallel_for", Int32](
            Int64(0), Int64(total), Int64(GRAIN), Pointer(to=f).unsafe_bitcast[Int]()[], pointer(work)
        )
    return True


@always_inline
def width_of(dtype: Int) -> Int:
    """Returns the bytes of an element."""
    return load(load(host_state(), TABLES), 64 + dtype)


@always_inline
def go_slow(functor: Int, arguments: Int, result: Int):
    """Lets Python run a call; a new result's handle comes behind `result`, which else is the row."""
    var message = function_at[Slow](load(host_state(), SLOW))(
        pointer(functor), pointer(arguments), pointer(result)
    )
    if message != 0:
        abi.throw(message)


@always_inline
def written(functor: Int, arguments: Int) -> Int:
    """Returns the tensor that a call writes."""
    for i in range(load(functor, COUNT)):
        if kind_of(functor, i) == OUT or kind_of(functor, i) == BOTH:
            return load(arguments, i)
    return 0


@always_inline
def run_out(functor: Int, arguments: Int, row: Int) -> Int:
    """Runs a call that writes one of its arguments, and returns that."""
    var goal = written(functor, arguments)
    if not attempt(functor, pointer(arguments), goal, row):
        go_slow(functor, arguments, row)
    return goal


@always_inline
def run_new(functor: Int, arguments: Int, row: Int, result: Int):
    """Runs a call that returns a new tensor; leaves its TensorImpl behind `result`."""
    if make_result(functor, arguments, result):
        if attempt(functor, pointer(arguments), result, row):
            return
        release_impl(load(result, 0))
    var made = Int(stack_allocation[1, Int]())
    store(made, 0, 0)
    go_slow(functor, arguments, made)
    store(result, 0, load(load(made, 0), 0))
    external_call["_ZdlPv", NoneType](load(made, 0))


@always_inline
def make_result(functor: Int, arguments: Int, result: Int) -> Bool:
    """Makes the tensor for a call: of the inputs' common size, in memory like the first input of that size."""
    var dtype = common_dtype(functor, arguments)
    var flags = load(functor, FLAGS)
    if dtype < 0 or (flags & FLOATS and not is_floating(dtype)):
        return False
    if flags & TEST:
        dtype = BOOL
    var rank = 0
    for i in range(load(functor, COUNT)):
        if kind_of(functor, i) == TENSOR:
            rank = max(rank, abi.rank_of(load(arguments, i)))
    if rank > MOST_RANK:
        return False
    var sizes = Int(stack_allocation[MOST_RANK, Int]())
    var strides = Int(stack_allocation[MOST_RANK, Int]())
    for d in range(rank):
        store(sizes, d, 1)
    var device = -1
    for i in range(load(functor, COUNT)):
        if kind_of(functor, i) != TENSOR:
            continue
        var t = load(arguments, i)
        if abi.device_type_of(t) == PRIVATEUSE1:
            device = abi.device_index_of(t)
        var own = abi.rank_of(t)
        for d in range(own):
            var size = load(abi.sizes_of(t), d)
            var to = rank - own + d
            if size != 1:
                if load(sizes, to) != 1 and load(sizes, to) != size:
                    return False
                store(sizes, to, size)
    if device < 0:
        return False
    var like = 0
    for i in range(load(functor, COUNT)):
        var t = load(arguments, i)
        if like != 0 or kind_of(functor, i) != TENSOR or abi.rank_of(t) != rank:
            continue
        var same = True
        for d in range(rank):
            same = same and load(abi.sizes_of(t), d) == load(sizes, d)
        if same:
            like = t
    var step = 1
    if (
        like != 0
        and not abi.is_contiguous(like)
        and layout_class(rank, abi.sizes_of(like), abi.strides_of(like)) == DENSE
    ):
        for d in range(rank):
            store(strides, d, load(abi.strides_of(like), d))
    else:
        for i in range(rank):
            store(strides, rank - 1 - i, step)
            step *= max(load(sizes, rank - 1 - i), 1)
    new_strided(result, sizes, rank, strides, dtype, PRIVATEUSE1 | device << 8, True)
    return True


# as the dispatcher calls them


def out_unboxed(
    functor: Int, keys: Int, a0: Int, a1: Int, a2: Int, a3: Int, a4: Int, a5: Int
) abi("C") -> Int:
    """Takes up to six addresses; those that the operator has not are anything."""
    var list = Int(stack_allocation[6, Int]())
    store(list, 0, a0)
    store(list, 1, a1)
    store(list, 2, a2)
    store(list, 3, a3)
    store(list, 4, a4)
    store(list, 5, a5)
    return run_out(functor, list, load(functor, ROW))


def new_unboxed(
    result: Int, functor: Int, keys: Int, a0: Int, a1: Int, a2: Int, a3: Int, a4: Int
) abi("C") -> Int:
    var list = Int(stack_allocation[5, Int]())
    store(list, 0, a0)
    store(list, 1, a1)
    store(list, 2, a2)
    store(list, 3, a3)
    store(list, 4, a4)
    run_new(functor, list, load(functor, ROW), result)
    return result


@always_inline
def take_arguments(functor: Int, first: Int, list: Int, scalars: Int):
    """Makes addresses of tensors and Scalars out of IValues."""
    for i in range(load(functor, COUNT)):
        var value = argument(first, i)
        var kind = kind_of(functor, i)
        if kind != NUMBER and kind != BOUND:
            store(list, i, load(value, 0) if kind == IGNORED else value)
            continue
        var scalar = scalars + i * OPTIONAL_SCALAR_BYTES
        store(list, i, scalar)
        var tag = tag_of(value)
        store(scalar, 4, Int(tag != TAG_NONE))
        if tag == TAG_NONE:
            store(scalar, 0, SCALAR_INT)
            continue
        store(scalar, 2, load(value, 0))
        store(scalar, 3, 0)
        if tag == TAG_DOUBLE:
            store(scalar, 0, SCALAR_DOUBLE)
        elif tag == TAG_INT:
            store(scalar, 0, SCALAR_INT)
        elif tag == TAG_BOOL:
            store(scalar, 0, SCALAR_BOOL)
        else:
            store(scalar, 0, SCALAR_COMPLEX)
            store(scalar, 2, load(load(value, 0), 2))
            store(scalar, 3, load(load(value, 0), 3))


def out_boxed(functor: Int, operator: Int, keys: Int, stack: Int) abi("C"):
    var count = load(functor, COUNT)
    var list = Int(stack_allocation[8, Int]())
    var scalars = Int(stack_allocation[64, Int]())
    var first = arguments(stack, count)
    take_arguments(functor, first, list, scalars)
    _ = run_out(functor, list, load(functor, ROW))
    for i in range(count):
        if kind_of(functor, i) == OUT or kind_of(functor, i) == BOTH:
            return_argument(stack, count, i)
            return


def new_boxed(functor: Int, operator: Int, keys: Int, stack: Int) abi("C"):
    var count = load(functor, COUNT)
    var list = Int(stack_allocation[8, Int]())
    var scalars = Int(stack_allocation[64, Int]())
    var made = Int(stack_allocation[1, Int]())
    take_arguments(functor, arguments(stack, count), list, scalars)
    run_new(functor, list, load(functor, ROW), made)
    return_tensors(stack, count, made, 1)


@always_inline
def run_copy(functor: Int, list: Int):
    """Copies; what is conjugated or negated only when it is read goes to Python."""
    var keys = load(abi.tensor_impl(load(list, 0)), IMPL_KEYS)
    keys |= load(abi.tensor_impl(load(list, 1)), IMPL_KEYS)
    if keys & load(host_state(), LAZY) != 0:
        go_slow(functor, list, 0)
    else:
        _ = run_out(functor, list, load(functor, ROW))


def copy_unboxed(result: Int, functor: Int, keys: Int, source: Int, to: Int, later: Int) abi("C") -> Int:
    """_copy_from(self, dst, non_blocking), which returns dst."""
    var list = Int(stack_allocation[2, Int]())
    store(list, 0, source)
    store(list, 1, to)
    run_copy(functor, list)
    var handle = Int(stack_allocation[1, Int]())
    _ = external_call["aoti_torch_new_tensor_handle", Int32](to, pointer(handle))
    store(result, 0, load(load(handle, 0), 0))
    external_call["_ZdlPv", NoneType](load(handle, 0))
    return result


def copy_boxed(functor: Int, operator: Int, keys: Int, stack: Int) abi("C"):
    var list = Int(stack_allocation[2, Int]())
    var first = arguments(stack, 3)
    store(list, 0, first)
    store(list, 1, argument(first, 1))
    run_copy(functor, list)
    return_argument(stack, 3, 1)
