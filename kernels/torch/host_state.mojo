"""What the private device keeps: how many there are, each thread's current device and streams, memory counts."""

from std.atomic import Atomic
from std.ffi import _Global, external_call
from std.memory import Pointer, stack_allocation

from torch.cxx import allocate
from torch.words import load, pointer, store

comptime MOST_DEVICES = 16

# words of the state
comptime COUNT = 0
comptime THREAD_KEY = 1
comptime ALLOCATOR = 2
comptime GUARD = 3
comptime HOOKS = 4
comptime NEXT_STREAM = 5
comptime KEYSET = 6  # of the device's tensors
comptime PINNED = 7  # the allocator of pinned memory
comptime PINNED_LIST = 8  # the first block of pinned memory
comptime LOCK = 9  # of that list
comptime TABLES = 10  # of rows, by dtype; then the bytes of each dtype
comptime MISS = 11  # makes the table of a dtype
comptime SLOW = 12  # runs what no row can
comptime LAZY = 13  # dispatch keys of tensors that are conjugated or negated when they are read
comptime GENERATORS = 16  # one word a device: a GeneratorImpl
comptime MEMORY = 32  # MEMORY_WORDS a device
comptime MEMORY_WORDS = 8
comptime STATE_WORDS = MEMORY + MOST_DEVICES * MEMORY_WORDS

# words of a device's memory
comptime BYTES = 0
comptime BYTES_PEAK = 1
comptime BYTES_ALLOCATED = 2
comptime BYTES_FREED = 3
comptime BLOCKS = 4
comptime BLOCKS_PEAK = 5
comptime BLOCKS_ALLOCATED = 6
comptime BLOCKS_FREED = 7

# words of a thread: the current device, then the current stream of each
comptime THREAD_WORDS = 1 + MOST_DEVICES


struct HostState(Movable):
    var address: Int

    def __init__(out self):
        self.address = allocate(STATE_WORDS)
        var key = stack_allocation[1, Int]()
        store(Int(key), 0, 0)
        _ = external_call["pthread_key_create", Int32](key, Int(0))
        store(self.address, THREAD_KEY, load(Int(key), 0) & 0xFFFFFFFF)
        var mutex = allocate(8)
        _ = external_call["pthread_mutex_init", Int32](mutex, Int(0))
        store(self.address, LOCK, mutex)


def make_state() -> HostState:
    return HostState()


comptime HOST = _Global["torch_mojo.host_device", make_state]


@always_inline
def host_state() -> Int:
    try:
        return HOST.get_or_create_ptr()[].address
    except:
        return 0


@always_inline
def thread(state: Int) -> Int:
    """Returns the address of this thread's words."""
    var key = UInt32(load(state, THREAD_KEY))
    var found = external_call["pthread_getspecific", Int](key)
    if found == 0:
        found = allocate(THREAD_WORDS)
        _ = external_call["pthread_setspecific", Int32](key, found)
    return found


@always_inline
def memory_of(state: Int, device: Int) -> Int:
    return state + (MEMORY + device * MEMORY_WORDS) * 8


@always_inline
def count_up(address: Int, current: Int, amount: Int):
    """Adds to a count, its peak and its sum, which stand one behind another."""
    var cell = Pointer[Int64, MutUntrackedOrigin](unsafe_from_address=address + current * 8)
    var now = Atomic.fetch_add(cell, Int64(amount)) + Int64(amount)
    Atomic.max(cell.unsafe_offset(1), now)
    _ = Atomic.fetch_add(cell.unsafe_offset(2), Int64(amount))


@always_inline
def count_down(address: Int, current: Int, amount: Int):
    var cell = Pointer[Int64, MutUntrackedOrigin](unsafe_from_address=address + current * 8)
    _ = Atomic.fetch_add(cell, Int64(-amount))
    _ = Atomic.fetch_add(cell.unsafe_offset(3), Int64(amount))
