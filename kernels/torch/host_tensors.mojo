"""New tensors of the private device, and tensors that share memory with another device's."""

from std.ffi import external_call
from std.memory import Pointer, stack_allocation

from torch import abi
from torch.cxx import PRIVATEUSE1, STORAGE_ALLOCATOR, STORAGE_BYTES, STORAGE_DATA
from torch.cxx import STORAGE_RESIZABLE, TAG_NONE, address_of, device_word, storage_of
from torch.host_boxed import argument, arguments, return_tensors, tag_of
from torch.host_memory import refuse
from torch.host_state import ALLOCATOR, BLOCKS, BYTES, COUNT, KEYSET
from torch.host_state import count_down, count_up, host_state, memory_of, thread
from torch.words import load, pointer, store

comptime CHANNELS_LAST = 2
comptime ENGAGED = 256  # of an optional whose value is one byte


@always_inline
def enter(state: Int, device: Int, given: Bool) -> Int:
    """Makes the device of a new tensor the thread's current one; returns the one before."""
    var mine = thread(state)
    var before = load(mine, 0)
    if given:
        var index = Int(Int8((device >> 8) & 127)) - ((device >> 8) & 128)
        if index >= load(state, COUNT):
            refuse(
                String("mojo:", index, " does not exist; there are ", load(state, COUNT), " devices.")
            )
        if index >= 0:
            store(mine, 0, index)
    return before


@always_inline
def leave(state: Int, before: Int):
    store(thread(state), 0, before)


@always_inline
def default_dtype() -> Int:
    """Returns torch's default dtype: what a new tensor without one has."""
    var found = external_call["_ZN3c1031get_default_dtype_as_scalartypeEv", Int8]()
    return Int(found)


def check_options(dtype: Int, layout: Int, pinned: Int):
    if layout & ENGAGED and layout & 255 != 0:
        refuse("the mojo device has strided tensors only.\nConvert with to_dense() first.")
    if pinned & ENGAGED and pinned & 255 != 0:
        refuse("only tensors of the CPU can be pinned.")


@always_inline
def new_empty(
    result: Int, sizes: Int, rank: Int, dtype: Int, device: Int, given: Bool, format: Int
):
    var state = host_state()
    var before = enter(state, device, given)
    _ = external_call[
        "_ZN2at6detail13empty_genericEN3c108ArrayRefIlEEPNS1_9AllocatorENS1_14DispatchKeySetENS1_10ScalarTypeESt8optionalINS1_12MemoryFormatEE",
        Int,
    ](
        pointer(result),
        pointer(sizes),
        rank,
        load(state, ALLOCATOR),
        load(state, KEYSET),
        dtype,
        format,
    )
    leave(state, before)


@always_inline
def new_strided(
    result: Int, sizes: Int, rank: Int, strides: Int, dtype: Int, device: Int, given: Bool
):
    var state = host_state()
    var before = enter(state, device, given)
    _ = external_call[
        "_ZN2at6detail21empty_strided_genericEN3c108ArrayRefIlEES3_PNS1_9AllocatorENS1_14DispatchKeySetENS1_10ScalarTypeE",
        Int,
    ](
        pointer(result),
        pointer(sizes),
        rank,
        pointer(strides),
        rank,
        load(state, ALLOCATOR),
        load(state, KEYSET),
        dtype,
    )
    leave(state, before)


def empty_unboxed(
    result: Int,
    functor: Int,
    keys: Int,
    sizes: Int,
    rank: Int,
    dtype: Int,
    layout: Int,
    device: Int,
    pinned: Int,
    format: Int,
) abi("C") -> Int:
    """empty.memory_format, as C++ calls it."""
    check_options(dtype, layout, pinned)
    new_empty(
        result,
        sizes,
        rank,
        dtype & 255 if dtype & ENGAGED else default_dtype(),
        device,
        device >> 16 & 255 != 0,
        format,
    )
    return result


def strided_unboxed(
    result: Int,
    functor: Int,
    keys: Int,
    sizes: Int,
    rank: Int,
    dtype: Int,
    strides: Int,
    count: Int,
    layout: Int,
    device: Int,
    pinned: Int,
) abi("C") -> Int:
    """empty_strided, as C++ calls it: the strides, two words, no longer fit the registers, but the dtype does."""
    check_options(dtype, layout, pinned)
    new_strided(
        result,
        sizes,
        rank,
        strides,
        dtype & 255 if dtype & ENGAGED else default_dtype(),
        device,
        device >> 16 & 255 != 0,
    )
    return result


@always_inline
def ints_of(value: Int, into: Int) -> Int:
    """Copies a list of ints out of an IValue; returns how many."""
    var items = load(load(value, 0), 2)
    var count = (load(load(value, 0), 3) - items) // 16
    if count > 64:
        refuse("a tensor has at most 64 dimensions.")
    for i in range(count):
        if tag_of(items + i * 16) != 5:
            refuse("a size is symbolic, and memory is needed for a number of elements.")
        store(into, i, load(items + i * 16, 0))
    return count


@always_inline
def optional_of(value: Int) -> Int:
    """Returns an IValue as an optional of one byte."""
    return 0 if tag_of(value) == TAG_NONE else (load(value, 0) & 255) | ENGAGED


def empty_boxed(functor: Int, operator: Int, keys: Int, stack: Int) abi("C"):
    """empty.memory_format(size, dtype, layout, device, pin_memory, memory_format)."""
    var first = arguments(stack, 6)
    var sizes = Int(stack_allocation[64, Int]())
    var rank = ints_of(first, sizes)
    var made = Int(stack_allocation[1, Int]())
    var dtype = optional_of(argument(first, 1))
    var device = argument(first, 3)
    check_options(dtype, optional_of(argument(first, 2)), optional_of(argument(first, 4)))
    new_empty(
        made,
        sizes,
        rank,
        dtype & 255 if dtype & ENGAGED else default_dtype(),
        load(device, 0),
        tag_of(device) != TAG_NONE,
        optional_of(argument(first, 5)),
    )
    return_tensors(stack, 6, made, 1)


def strided_boxed(functor: Int, operator: Int, keys: Int, stack: Int) abi("C"):
    """empty_strided(size, stride, dtype, layout, device, pin_memory)."""
    var first = arguments(stack, 6)
    var sizes = Int(stack_allocation[64, Int]())
    var strides = Int(stack_allocation[64, Int]())
    var rank = ints_of(first, sizes)
    _ = ints_of(argument(first, 1), strides)
    var made = Int(stack_allocation[1, Int]())
    var dtype = optional_of(argument(first, 2))
    var device = argument(first, 4)
    check_options(dtype, optional_of(argument(first, 3)), optional_of(argument(first, 5)))
    new_strided(
        made,
        sizes,
        rank,
        strides,
        dtype & 255 if dtype & ENGAGED else default_dtype(),
        load(device, 0),
        tag_of(device) != TAG_NONE,
    )
    return_tensors(stack, 6, made, 1)


# shared memory


def drop_owner(data: Int, block: Int) abi("C"):
    """Frees the tensor whose memory another one borrowed, and what was counted for it."""
    abi.free_tensor(load(block, 0))
    if load(block, 1) >= 0:
        var memory = memory_of(host_state(), load(block, 1))
        count_down(memory, BYTES, load(block, 2))
        count_down(memory, BLOCKS, 1)
    external_call["free", NoneType](block)


def share(tensor: Int, device_type: Int, index: Int) -> Int:
    """Returns a tensor of another device on the same memory, or 0; it keeps the first one alive."""
    comptime Drop = def(data: Int, block: Int) thin abi("C") -> None
    var storage = storage_of(abi.tensor_impl(tensor))
    var block = external_call["malloc", Int](24)
    var made = Int(stack_allocation[1, Int]())
    var offset = Int(stack_allocation[1, Int]())
    _ = external_call["aoti_torch_new_tensor_handle", Int32](tensor, pointer(block))
    _ = external_call["aoti_torch_get_storage_offset", Int32](tensor, pointer(offset))
    store(block, 1, -1)
    var drop: Drop = drop_owner
    var state = host_state()
    var before = enter(state, device_word(index), device_type != 0)  # torch asks where memory is
    var failed = external_call["torch_from_blob", Int32](
        load(storage, STORAGE_DATA),
        Int64(abi.rank_of(tensor)),
        pointer(abi.sizes_of(tensor)),
        pointer(abi.strides_of(tensor)),
        Int64(load(offset, 0)),
        Int32(abi.dtype_of(tensor)),
        Int32(device_type),
        Int32(index if device_type != 0 else -1),
        pointer(made),
        Int32(0),
        Int(0),
        Int64(0),
        address_of(drop),
        block,
    )
    leave(state, before)
    if failed != 0:
        return 0
    if load(storage, STORAGE_DATA) == 0:  # then it is a new tensor
        drop_owner(0, block)
        return load(made, 0)
    return load(made, 0) if device_type == 0 else counted(load(made, 0), block, index)


def counted(tensor: Int, block: Int, index: Int) -> Int:
    """Counts the memory of a tensor that was taken over, and lets it grow with the device's allocator."""
    var state = host_state()
    var storage = storage_of(abi.tensor_impl(tensor))
    store(block, 1, index)
    store(block, 2, load(storage, STORAGE_BYTES))
    var memory = memory_of(state, index)
    count_up(memory, BYTES, load(block, 2))
    count_up(memory, BLOCKS, 1)
    Pointer[UInt8, MutAnyOrigin](unsafe_from_address=storage)[unsafe_offset=STORAGE_RESIZABLE] = 1
    store(storage, STORAGE_ALLOCATOR, load(state, ALLOCATOR))
    return tensor


def as_cpu(stack: Int, nargs: UInt64, nouts: UInt64) abi("C"):
    """as_cpu(Tensor) -> Tensor: a tensor of the CPU on the memory of the device's."""
    var tensor = load(stack, 0)
    var made = share(tensor, 0, 0)
    abi.free_tensor(tensor)
    if made == 0:
        refuse("a tensor of the mojo device could not be read by the CPU.")
    store(stack, 0, made)


def as_mojo(stack: Int, nargs: UInt64, nouts: UInt64) abi("C"):
    """as_mojo(Tensor, int) -> Tensor: a tensor of the device on the memory of the CPU's."""
    var tensor = load(stack, 0)
    var made = share(tensor, PRIVATEUSE1, load(stack, 1))
    abi.free_tensor(tensor)
    if made == 0:
        refuse("a tensor of the CPU could not be taken over by the mojo device.")
    store(stack, 0, made)
