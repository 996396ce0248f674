"""The private device's guard and hooks: current devices, streams, events, generators.

A host device has done what it was told when a call returns, so that streams are names and an event is a time.
"""

from std.ffi import external_call
from std.memory import Pointer, stack_allocation

from torch.cxx import Object, PRIVATEUSE1, address_of, device_word, index_of, low
from torch.host_memory import Two, is_pinned_data, refuse
from torch.host_state import (
    COUNT,
    GENERATORS,
    KEYSET,
    NEXT_STREAM,
    PINNED,
    host_state,
    thread,
)
from torch.words import load, pointer, store

comptime GENERATOR_DEVICE = 7  # words of a GeneratorImpl
comptime GENERATOR_KEYS = 8


def now() -> Int:
    """Returns nanoseconds of a clock that only goes on."""
    var time = stack_allocation[2, Int]()
    _ = external_call["clock_gettime", Int32](Int32(1), time)
    return load(Int(time), 0) * 1_000_000_000 + load(Int(time), 1)


@always_inline
def resolve(state: Int, device: Int) -> Int:
    """Returns the index of a c10::Device: the current one's if it has none."""
    var index = index_of(device)
    return load(thread(state), 0) if index < 0 else index


def device_type(this: Int) abi("C") -> Int:
    return PRIVATEUSE1


def get_device(this: Int) abi("C") -> Int:
    return device_word(load(thread(host_state()), 0))


def select(index: Int):
    """Makes a device the thread's current one."""
    var state = host_state()
    if index < 0 or index >= load(state, COUNT):
        refuse(String("mojo:", index, " does not exist; there are ", load(state, COUNT), " devices."))
    store(thread(state), 0, index)


def set_device(this: Int, device: Int) abi("C"):
    select(index_of(device))


def exchange_device(this: Int, device: Int) abi("C") -> Int:
    var before = get_device(this)
    var index = index_of(device)
    if index >= 0:
        select(index)
    return before


def stream_of(device: Int, id: Int) -> Two:
    return Two(device_word(device), id)


def get_stream(this: Int, device: Int) abi("C") -> Two:
    var state = host_state()
    var index = resolve(state, device)
    return stream_of(index, load(thread(state), 1 + index))


def default_stream(this: Int, device: Int) abi("C") -> Two:
    return stream_of(resolve(host_state(), device), 0)


def new_stream(this: Int, device: Int, priority: Int) abi("C") -> Two:
    var state = host_state()
    var id = load(state, NEXT_STREAM) + 1
    store(state, NEXT_STREAM, id)
    return stream_of(resolve(state, device), id)


def exchange_stream(this: Int, device: Int, id: Int) abi("C") -> Two:
    var state = host_state()
    var index = resolve(state, device)
    var mine = thread(state)
    var before = stream_of(index, load(mine, 1 + index))
    store(mine, 1 + index, id)
    return before


def native_handle(this: Int, device: Int, id: Int) abi("C") -> Int:
    return id


def destroy_event(this: Int, event: Int, device: Int) abi("C"):
    external_call["free", NoneType](event)


def record(this: Int, event: Int, stream: Int, device: Int, flag: Int) abi("C"):
    """Records an event: the time. `event` is the address of its address, 0 before the first."""
    if load(event, 0) == 0:
        store(event, 0, external_call["calloc", Int](1, 8))
    store(load(event, 0), 0, now())


def block(this: Int, event: Int, stream: Int) abi("C"):
    """Makes a stream wait for an event: it has come already."""
    pass


def yes(this: Int, what: Int) abi("C") -> Bool:
    return True


def no(this: Int, what: Int) abi("C") -> Bool:
    return False


def count(this: Int) abi("C") -> Int:
    return load(host_state(), COUNT)


def no_capability(result: Int, this: Int, device: Int) abi("C") -> Int:
    refuse("torch.accelerator.get_device_capability does not know what a mojo device can do.")
    return result


def wait(this: Int, what: Int) abi("C"):
    """Waits for a stream, an event or a device: all is done already."""
    pass


def record_data(this: Int, data: Int, stream: Int) abi("C"):
    """Keeps memory for a stream: what used it is done already."""
    pass


def elapsed(this: Int, first: Int, second: Int, device: Int) abi("C") -> Float64:
    """Returns the milliseconds between two events."""
    if first == 0 or second == 0:
        refuse("both events must be recorded before their distance in time is asked for.")
    return Float64(load(second, 0) - load(first, 0)) / 1e6


def make_guard(type_info: Int) -> Int:
    """Returns a c10::impl::DeviceGuardImplInterface."""
    comptime Get = def(this: Int) thin abi("C") -> Int
    comptime Set = def(this: Int, device: Int) thin abi("C") -> None
    comptime Exchange = def(this: Int, device: Int) thin abi("C") -> Int
    comptime StreamOf = def(this: Int, device: Int) thin abi("C") -> Two
    comptime StreamWith = def(this: Int, device: Int, id: Int) thin abi("C") -> Two
    comptime Ask = def(this: Int, what: Int) thin abi("C") -> Bool
    comptime On = def(this: Int, what: Int, stream: Int) thin abi("C") -> None
    var table = List[Int]()
    var f0: Get = device_type
    table.append(address_of(f0))
    var f1: Exchange = exchange_device
    table.append(address_of(f1))
    var f2: Get = get_device
    table.append(address_of(f2))
    var f3: Set = set_device
    table.append(address_of(f3))
    table.append(address_of(f3))
    var f5: StreamOf = get_stream
    table.append(address_of(f5))
    var f6: StreamOf = default_stream
    table.append(address_of(f6))
    var f7: StreamWith = new_stream
    table.append(address_of(f7))
    table.append(address_of(f7))
    var f9: StreamWith = exchange_stream
    table.append(address_of(f9))
    var f10: def(this: Int, device: Int, id: Int) thin abi("C") -> Int = native_handle
    table.append(address_of(f10))
    var f11: On = destroy_event
    table.append(address_of(f11))
    var f12: def(
        this: Int, event: Int, stream: Int, device: Int, flag: Int
    ) thin abi("C") -> None = record
    table.append(address_of(f12))
    var f13: On = block
    table.append(address_of(f13))
    var f14: Ask = yes
    table.append(address_of(f14))  # queryEvent
    var f15: Get = count
    table.append(address_of(f15))
    var f16: def(result: Int, this: Int, device: Int) thin abi("C") -> Int = no_capability
    table.append(address_of(f16))
    table.append(address_of(f14))  # queryStream
    var f18: Set = wait
    table.append(address_of(f18))  # synchronizeStream
    var f19: Ask = no
    table.append(address_of(f19))  # isStreamCapturing
    table.append(address_of(f18))  # synchronizeEvent
    table.append(address_of(f18))  # synchronizeDevice
    var f22: On = record_data
    table.append(address_of(f22))
    var f23: def(
        this: Int, first: Int, second: Int, device: Int
    ) thin abi("C") -> Float64 = elapsed
    table.append(address_of(f23))
    var f24: Set = wait
    table.append(address_of(f24))  # the destructors, which nobody calls
    table.append(address_of(f24))
    return Object.make(type_info, table, 1)


# hooks


def is_there(this: Int) abi("C") -> Bool:
    return True


def has_context(this: Int, device: Int) abi("C") -> Bool:
    return True


def init(this: Int) abi("C"):
    pass


def set_current(this: Int, device: Int) abi("C"):
    select(low(device))


def get_current(this: Int) abi("C") -> Int:
    return load(thread(host_state()), 0)


def exchange_current(this: Int, device: Int) abi("C") -> Int:
    var before = get_current(this)
    if low(device) >= 0:
        select(low(device))
    return before


def is_pinned(this: Int, data: Int) abi("C") -> Bool:
    """Tells whether this is the beginning of pinned memory."""
    return is_pinned_data(data)


def pinned_allocator(this: Int) abi("C") -> Int:
    return load(host_state(), PINNED)


def device_from_pointer(this: Int, data: Int) abi("C") -> Int:
    return device_word(load(thread(host_state()), 0))


def default_generator(this: Int, device: Int) abi("C") -> Int:
    """Returns the address of a device's Generator."""
    var state = host_state()
    var index = low(device)
    if index < 0:
        index = load(thread(state), 0)
    if index >= load(state, COUNT):
        refuse(String("mojo:", index, " does not exist."))
    return state + (GENERATORS + index) * 8


def make_generator(result: Int, index: Int):
    """Writes a new Generator of a device: torch's own for the CPU, under the device's name."""
    _ = external_call["_ZN2at6detail18createCPUGeneratorEm", Int](pointer(result), UInt64(67280421310721))
    var impl = load(result, 0)
    var keep = load(impl, GENERATOR_DEVICE) & ~0xFFFF
    store(impl, GENERATOR_DEVICE, keep | device_word(index))
    store(impl, GENERATOR_KEYS, load(host_state(), KEYSET))


def new_generator(result: Int, this: Int, device: Int) abi("C") -> Int:
    var index = low(device)
    if index < 0:
        index = load(thread(host_state()), 0)
    make_generator(result, index)
    return result


def resize_bytes(this: Int, storage: Int, size: Int) abi("C"):
    """Gives a storage another size, with what it held; `storage` is the address of a c10::Storage."""
    _ = external_call["_ZN2at6native16resize_bytes_cpuEPN3c1011StorageImplEm", Int](load(storage, 0), size)


def make_hooks(type_info: Int) -> Int:
    """Returns an at::PrivateUse1HooksInterface."""
    comptime Nothing = def(this: Int) thin abi("C") -> None
    comptime Is = def(this: Int) thin abi("C") -> Bool
    comptime Get = def(this: Int) thin abi("C") -> Int
    comptime Set = def(this: Int, device: Int) thin abi("C") -> None
    comptime Exchange = def(this: Int, device: Int) thin abi("C") -> Int
    comptime Ask = def(this: Int, what: Int) thin abi("C") -> Bool
    var table = List[Int]()
    var f0: Nothing = init
    table.append(address_of(f0))
    table.append(address_of(f0))
    var f2: Is = is_there
    table.append(address_of(f2))
    table.append(address_of(f2))
    var f4: Ask = has_context
    table.append(address_of(f4))
    table.append(address_of(f0))
    var f6: Get = count
    table.append(address_of(f6))
    var f7: Set = set_current
    table.append(address_of(f7))
    var f8: Get = get_current
    table.append(address_of(f8))
    var f9: Exchange = exchange_current
    table.append(address_of(f9))
    table.append(address_of(f9))
    var f11: Ask = is_pinned
    table.append(address_of(f11))
    var f12: Get = pinned_allocator
    table.append(address_of(f12))
    var f13: Exchange = device_from_pointer
    table.append(address_of(f13))
    var f14: Exchange = default_generator
    table.append(address_of(f14))
    var f15: def(result: Int, this: Int, device: Int) thin abi("C") -> Int = new_generator
    table.append(address_of(f15))
    var f16: def(this: Int, storage: Int, size: Int) thin abi("C") -> None = resize_bytes
    table.append(address_of(f16))
    return Object.make(type_info, table, 1)
