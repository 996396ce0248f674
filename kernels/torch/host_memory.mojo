"""The private device's allocator, on host memory: a c10::DeviceAllocator whose blocks are counted."""

from std.ffi import external_call
from std.memory import Pointer, stack_allocation

from torch.abi import throw
from torch.cxx import Object, address_of, device_word, index_of, low
from torch.host_state import (
    ALLOCATOR,
    BLOCKS,
    BYTES,
    BYTES_ALLOCATED,
    BYTES_FREED,
    BYTES_PEAK,
    LOCK,
    PINNED_LIST,
    count_down,
    count_up,
    host_state,
    memory_of,
    thread,
)
from torch.words import failure, function_at, load, pointer, store

comptime ALIGNMENT = 64
comptime HEAD = 64  # bytes before a block's data: its size and its device

comptime Deleter = def(context: Int) thin abi("C") -> None


def free_block(context: Int) abi("C"):
    """Frees a block; `context` is where it begins, before its data."""
    if context == 0:
        return
    var memory = memory_of(host_state(), load(context, 1))
    count_down(memory, BYTES, load(context, 0))
    count_down(memory, BLOCKS, 1)
    external_call["free", NoneType](context)


def refuse(text: String):
    throw(failure(text))  # the text stays: the exception leaves through this frame


@always_inline
def new_block(state: Int, size: Int, device: Int) -> Int:
    """Returns the address of a block's data, HEAD bytes behind where it begins, or 0."""
    var room = (size + HEAD + ALIGNMENT - 1) & ~(ALIGNMENT - 1)
    var at = external_call["aligned_alloc", Int](ALIGNMENT, room)
    if at == 0:
        return 0
    store(at, 0, size)
    store(at, 1, device)
    var memory = memory_of(state, device)
    count_up(memory, BYTES, size)
    count_up(memory, BLOCKS, 1)
    return at + HEAD


@always_inline
def data_pointer(result: Int, data: Int, context: Int, deleter: Int, device: Int) -> Int:
    """Writes a c10::DataPtr."""
    store(result, 0, data)
    store(result, 1, deleter)
    store(result, 2, context)
    store(result, 3, device)
    return result


def allocate(result: Int, this: Int, size: Int) abi("C") -> Int:
    """Returns memory of the thread's current device."""
    var state = host_state()
    var device = load(thread(state), 0)
    var f: Deleter = free_block
    if size == 0:
        return data_pointer(result, 0, 0, address_of(f), device_word(device))
    var data = new_block(state, size, device)
    if data == 0:
        refuse(
            String(
                "mojo:",
                device,
                " is out of memory: it has no ",
                size,
                " bytes more; ",
                load(memory_of(state, device), BYTES),
                " are in use.",
            )
        )
    return data_pointer(result, data, data - HEAD, address_of(f), device_word(device))


def raw_deleter(this: Int) abi("C") -> Int:
    """Returns 0: a block begins before its data, so that no data pointer can be freed by itself."""
    return 0


def copy_data(this: Int, to: Int, source: Int, count: Int) abi("C"):
    _ = external_call["memcpy", Int](to, source, count)


def nothing(this: Int) abi("C"):
    pass


def initialized(this: Int) abi("C") -> Bool:
    return True


def empty_cache(this: Int, first: Int, second: Int) abi("C"):
    """Does nothing: what is freed goes back to the system at once."""
    pass


def record_stream(this: Int, data: Int, device: Int, stream: Int) abi("C"):
    """Does nothing: a host device has done what it was told before a call returns."""
    pass


def no_stats(result: Int, this: Int, device: Int) abi("C") -> Int:
    refuse("torch.accelerator.memory_stats does not know this device; call torch.mojo.memory_stats.")
    return result


def reset_accumulated(this: Int, device: Int) abi("C"):
    reset(low(device), False)


def reset_peak(this: Int, device: Int) abi("C"):
    reset(low(device), True)


def reset(device: Int, peak: Bool):
    """Begins to count anew: the peaks, or all that came and went."""
    var memory = memory_of(host_state(), device)
    for which in range(2):
        var kind = BLOCKS if which else BYTES
        if peak:
            store(memory, kind + 1, load(memory, kind))
        else:
            store(memory, kind + 2, 0)
            store(memory, kind + 3, 0)


@fieldwise_init
struct Two(ImplicitlyCopyable, RegisterPassable):
    var first: Int
    var second: Int


def memory_info(this: Int, device: Int) abi("C") -> Two:
    """Returns free and total bytes of the host."""
    var page = external_call["sysconf", Int](Int32(30))
    return Two(
        external_call["sysconf", Int](Int32(86)) * page,
        external_call["sysconf", Int](Int32(85)) * page,
    )


def is_simple(this: Int, data: Int) abi("C") -> Bool:
    return False


# pinned memory: host memory that is known by its address


def forget_pinned(context: Int) abi("C"):
    """Frees pinned memory; before its data stand its neighbours in the list of all of it."""
    if context == 0:
        return
    var state = host_state()
    _ = external_call["pthread_mutex_lock", Int32](load(state, LOCK))
    var at = state + PINNED_LIST * 8
    while load(at, 0) != 0 and load(at, 0) != context:
        at = load(at, 0)
    if load(at, 0) == context:
        store(at, 0, load(context, 0))
    _ = external_call["pthread_mutex_unlock", Int32](load(state, LOCK))
    external_call["free", NoneType](context)


def allocate_pinned(result: Int, this: Int, size: Int) abi("C") -> Int:
    var f: Deleter = forget_pinned
    var room = (size + HEAD + ALIGNMENT - 1) & ~(ALIGNMENT - 1)
    var at = external_call["aligned_alloc", Int](ALIGNMENT, room)
    if at == 0:
        refuse(String("there are no ", size, " bytes of host memory more."))
    var state = host_state()
    _ = external_call["pthread_mutex_lock", Int32](load(state, LOCK))
    store(at, 0, load(state, PINNED_LIST))
    store(state, PINNED_LIST, at)
    _ = external_call["pthread_mutex_unlock", Int32](load(state, LOCK))
    return data_pointer(result, at + HEAD, at, address_of(f), 0xFF00)  # c10::Device(CPU)


def is_pinned_data(data: Int) -> Bool:
    """Tells whether pinned memory begins here."""
    var state = host_state()
    _ = external_call["pthread_mutex_lock", Int32](load(state, LOCK))
    var at = load(state, PINNED_LIST)
    while at != 0 and at + HEAD != data:
        at = load(at, 0)
    _ = external_call["pthread_mutex_unlock", Int32](load(state, LOCK))
    return at != 0


def make_pinned_allocator(type_info: Int) -> Int:
    """Returns a c10::Allocator."""
    var table = List[Int]()
    var f0: def(this: Int) thin abi("C") -> None = nothing
    table.append(address_of(f0))
    table.append(address_of(f0))
    var f1: def(result: Int, this: Int, size: Int) thin abi("C") -> Int = allocate_pinned
    table.append(address_of(f1))
    var f2: def(this: Int, data: Int) thin abi("C") -> Bool = is_simple
    table.append(address_of(f2))
    var f3: def(this: Int) thin abi("C") -> Int = raw_deleter
    table.append(address_of(f3))
    var f4: def(this: Int, to: Int, source: Int, count: Int) thin abi("C") -> None = copy_data
    table.append(address_of(f4))
    return Object.make(type_info, table, 1)


def make_allocator(type_info: Int) -> Int:
    """Returns a c10::DeviceAllocator."""
    comptime One = def(this: Int) thin abi("C") -> None
    var table = List[Int]()
    var f0: One = nothing
    table.append(address_of(f0))
    table.append(address_of(f0))
    var f1: def(result: Int, this: Int, size: Int) thin abi("C") -> Int = allocate
    table.append(address_of(f1))
    var f2: def(this: Int, data: Int) thin abi("C") -> Bool = is_simple
    table.append(address_of(f2))
    var f3: def(this: Int) thin abi("C") -> Int = raw_deleter
    table.append(address_of(f3))
    var f4: def(this: Int, to: Int, source: Int, count: Int) thin abi("C") -> None = copy_data
    table.append(address_of(f4))
    var f5: def(this: Int) thin abi("C") -> Bool = initialized
    table.append(address_of(f5))
    var f6: def(this: Int, first: Int, second: Int) thin abi("C") -> None = empty_cache
    table.append(address_of(f6))
    var f7: def(
        this: Int, data: Int, device: Int, stream: Int
    ) thin abi("C") -> None = record_stream
    table.append(address_of(f7))
    var f8: def(result: Int, this: Int, device: Int) thin abi("C") -> Int = no_stats
    table.append(address_of(f8))
    var f9: def(this: Int, device: Int) thin abi("C") -> None = reset_accumulated
    table.append(address_of(f9))
    var f10: def(this: Int, device: Int) thin abi("C") -> None = reset_peak
    table.append(address_of(f10))
    var f11: def(this: Int, device: Int) thin abi("C") -> Two = memory_info
    table.append(address_of(f11))
    return Object.make(type_info, table, 1)
