"""Elementwise operators that return a new tensor or write their first argument, without torch's meta function.

torch makes these of three dispatches: a meta function, an allocation, and the `out` overload. For plain calls, contiguous
tensors of one dtype, the answer is known; all others go on to torch's own kernel, whose words the functor has.
"""

from std.memory import Pointer, stack_allocation

from torch import abi
from torch.cxx import PRIVATEUSE1, release_impl
from torch.host_boxed import Boxed, FUNCTOR_DATA, argument, arguments, return_argument, return_tensors
from torch.host_rows import (
    BOTH,
    BOUND,
    COUNT,
    FLAGS,
    MOST_RANK,
    ROW,
    TENSOR,
    TEST,
    FLOATS,
    BOOL,
    attempt,
    common_dtype,
    kind_of,
    take_arguments,
)
from torch.host_numbers import is_floating
from torch.host_tensors import new_strided
from torch.words import WordPtr, function_at, load, pointer, store

comptime INNER = FUNCTOR_DATA + 6  # torch's kernel: its functor, boxed and unboxed functions
comptime MIXED = 16  # flag: tensors of two dtypes become what torch.result_type says

comptime InnerNew = def(
    result: Int, functor: Int, keys: Int, a0: Int, a1: Int, a2: Int, a3: Int, a4: Int
) thin abi("C") -> Int
comptime InnerWritten = def(
    functor: Int, keys: Int, a0: Int, a1: Int, a2: Int, a3: Int, a4: Int, a5: Int
) thin abi("C") -> Int


@always_inline
def plain_dtype(functor: Int, given: WordPtr) -> Int:
    """Returns what a call is computed in; -1 for dtypes or bounds that torch should look at."""
    var dtype = -1
    var different = False
    var bounds = 0
    var bounded = False
    for i in range(load(functor, COUNT)):
        var kind = kind_of(functor, i)
        var value = given[unsafe_offset=i]
        if kind == BOUND:
            bounded = True
            bounds += load(value, 4) & 255
        if kind != TENSOR and kind != BOTH:
            continue
        var own = abi.dtype_of(value)
        different = different or (dtype >= 0 and own != dtype)
        dtype = own
    if bounded and bounds == 0:
        return -1
    if not different:
        return dtype
    return common_dtype(functor, Int(given)) if load(functor, FLAGS) & MIXED else -1


def make_plain(functor: Int, given: WordPtr, result: Int) -> Bool:
    """Makes the contiguous result of a plain call; returns False if a call is none."""
    var dtype = plain_dtype(functor, given)
    var flags = load(functor, FLAGS)
    if dtype < 0 or (flags & FLOATS and not is_floating(dtype)):
        return False
    var count = load(functor, COUNT)
    var rank = 0
    for i in range(count):
        if kind_of(functor, i) == TENSOR:
            rank = max(rank, abi.rank_of(given[unsafe_offset=i]))
    if rank > MOST_RANK:
        return False
    var sizes = stack_allocation[MOST_RANK, Int]()
    var strides = stack_allocation[MOST_RANK, Int]()
    for d in range(rank):
        sizes[unsafe_offset=d] = 1
    var device = -1
    for i in range(count):
        if kind_of(functor, i) != TENSOR:
            continue
        var t = given[unsafe_offset=i]
        var own = abi.rank_of(t)
        if abi.device_type_of(t) == PRIVATEUSE1:
            var index = abi.device_index_of(t)
            if device >= 0 and index != device:
                return False
            device = index
        elif own != 0:
            return False
        var own_sizes = abi.sizes_of(t)
        var own_strides = abi.strides_of(t)
        var step = 1
        for k in range(own):
            var d = own - 1 - k
            var size = load(own_sizes, d)
            if load(own_strides, d) != step:
                return False
            step *= max(size, 1)
            var to = rank - own + d
            if size != 1:
                var found = sizes[unsafe_offset=to]
                if found != 1 and found != size:
                    return False
                sizes[unsafe_offset=to] = size
    if device < 0:
        return False
    var step = 1
    for k in range(rank):
        var d = rank - 1 - k
        strides[unsafe_offset=d] = step
        step *= max(sizes[unsafe_offset=d], 1)
    new_strided(
        result,
        Int(sizes),
        rank,
        Int(strides),
        BOOL if flags & TEST else dtype,
        PRIVATEUSE1 | device << 8,
        True,
    )
    return True


def run_plain(functor: Int, given: WordPtr, result: WordPtr) -> Bool:
    """Runs a call that returns a new tensor, if it is plain; leaves the TensorImpl behind `result`."""
    if not make_plain(functor, given, Int(result)):
        return False
    if attempt(functor, given, Int(result), load(functor, ROW)):
        return True
    release_impl(result[unsafe_offset=0])
    return False


def plain_unboxed(
    result: Int, functor: Int, keys: Int, a0: Int, a1: Int, a2: Int, a3: Int, a4: Int
) abi("C") -> Int:
    var list = stack_allocation[5, Int]()
    list[unsafe_offset=0] = a0
    list[unsafe_offset=1] = a1
    list[unsafe_offset=2] = a2
    list[unsafe_offset=3] = a3
    list[unsafe_offset=4] = a4
    if run_plain(functor, pointer(Int(list)), pointer(result)):
        return result
    return function_at[InnerNew](load(functor, INNER + 2))(
        result, load(functor, INNER), keys, a0, a1, a2, a3, a4
    )


def plain_boxed(functor: Int, operator: Int, keys: Int, stack: Int) abi("C"):
    var count = load(functor, COUNT)
    var list = stack_allocation[8, Int]()
    var scalars = stack_allocation[64, Int]()
    var made = stack_allocation[1, Int]()
    take_arguments(functor, arguments(stack, count), Int(list), Int(scalars))
    if run_plain(functor, pointer(Int(list)), pointer(Int(made))):
        return_tensors(stack, count, Int(made), 1)
    else:
        function_at[Boxed](load(functor, INNER + 1))(load(functor, INNER), operator, keys, stack)


def run_written(functor: Int, given: WordPtr) -> Bool:
    """Runs a call that writes its first argument, if its dtypes are plain."""
    if plain_dtype(functor, given) < 0:
        return False
    return attempt(functor, given, given[unsafe_offset=0], load(functor, ROW))


def written_unboxed(
    functor: Int, keys: Int, a0: Int, a1: Int, a2: Int, a3: Int, a4: Int, a5: Int
) abi("C") -> Int:
    var list = stack_allocation[5, Int]()
    list[unsafe_offset=0] = a0
    list[unsafe_offset=1] = a1
    list[unsafe_offset=2] = a2
    list[unsafe_offset=3] = a3
    list[unsafe_offset=4] = a4
    if run_written(functor, pointer(Int(list))):
        return a0
    return function_at[InnerWritten](load(functor, INNER + 2))(
        load(functor, INNER), keys, a0, a1, a2, a3, a4, a5
    )


def written_boxed(functor: Int, operator: Int, keys: Int, stack: Int) abi("C"):
    var count = load(functor, COUNT)
    var list = stack_allocation[8, Int]()
    var scalars = stack_allocation[64, Int]()
    take_arguments(functor, arguments(stack, count), Int(list), Int(scalars))
    if run_written(functor, pointer(Int(list))):
        return_argument(stack, count, 0)
    else:
        function_at[Boxed](load(functor, INNER + 1))(load(functor, INNER), operator, keys, stack)
