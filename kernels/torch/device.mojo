"""Device contexts for kernels that ask for one, on torch's streams.

A DeviceContext launches on a stream of its own. Specializations are linked so that their launches come to
`launch` instead, which puts them on torch's current stream. A kernel that asks the context for more than a
launch (memory, copies, a wait) is fenced: two events make the context's stream wait for torch's and torch's
wait for it, so side streams, the caching allocator and graph capture stay right and nothing waits on the host.
"""

from std.ffi import external_call
from std.memory import Pointer, stack_allocation

from max.gpu.host import DeviceContext, DeviceStream

from torch.words import WordPtr, function_at, load, pointer, store

comptime MUTEX_BYTES = 64
comptime OWN = -1
comptime DISABLE_TIMING = 2
comptime FUNCTIONS = 4096  # of one device, a power of two; what is beyond is loaded at each launch
comptime FUNCTION_WORDS = 4

# CUDA's driver itself: the runtime's events cost four more locks and context switches a call
comptime EventCreate = def(event: WordPtr, flags: UInt32) thin abi("C") -> Int32
comptime EventRecord = def(event: Int, stream: Int) thin abi("C") -> Int32
comptime StreamWaitEvent = def(stream: Int, event: Int, flags: UInt32) thin abi("C") -> Int32


@fieldwise_init
struct Fence(ImplicitlyCopyable, Movable):
    """One event, and the driver's functions for it."""

    var event: Int
    var record: Int
    var wait: Int

    @staticmethod
    def create(driver: Int) raises -> Self:
        """Makes an event; `driver` is the address of three functions: create, record, wait."""
        var made = stack_allocation[1, Int]()
        check(function_at[EventCreate](load(driver, 0))(pointer(Int(made)), DISABLE_TIMING))
        return {load(Int(made), 0), load(driver, 1), load(driver, 2)}

    def order(self, first: Int, then: Int) raises:
        """Makes what comes next on the stream `then` wait for what is now on `first`."""
        check(function_at[EventRecord](self.record)(self.event, first))
        check(function_at[StreamWaitEvent](self.wait)(then, self.event, 0))


def check(code: Int32) raises:
    if code != 0:
        raise Error("CUDA's driver returned error ", code, " while ordering two streams")


def raw_stream(stream: DeviceStream) raises -> Int:
    """Returns the CUstream of the runtime's stream."""
    var found = stack_allocation[1, Int]()
    store(Int(found), 0, 0)
    var failed = external_call["AsyncRT_DeviceStream_cuda_stream", Int](
        pointer(Int(found)), load(Int(Pointer(to=stream)), 0)
    )
    if failed != 0:
        raise Error("the runtime does not tell its CUDA stream")
    return load(Int(found), 0)


struct Accelerator(Movable):
    """One CUDA device: MAX's context and stream, two fences, and torch's streams as MAX knows them.

    `current` is the position of the stream that takes the launches of the call in progress; OWN is the context's.
    """

    var context: DeviceContext
    var own: DeviceStream
    var raw: Int
    var before: Fence
    var after: Fence
    var known: List[Int]
    var streams: List[DeviceStream]
    var current: Int
    var mutex: Int
    var functions: Int
    var next: Int

    def __init__(out self, index: Int, driver: Int, next: Int) raises:
        self.context = DeviceContext(index, api="cuda")
        self.own = self.context.stream()
        self.raw = raw_stream(self.own)
        self.before = Fence.create(driver)
        self.after = Fence.create(driver)
        self.known = List[Int]()
        self.streams = List[DeviceStream]()
        self.current = OWN
        self.mutex = external_call["calloc", Int](1, MUTEX_BYTES)
        _ = external_call["pthread_mutex_init", Int32](self.mutex, 0)
        self.functions = external_call["calloc", Int](FUNCTIONS * FUNCTION_WORDS, 8)
        self.next = next

    def position(mut self, stream: Int) raises -> Int:
        """Returns where torch's stream, a cudaStream_t, stands among the known ones."""
        for i in range(len(self.known)):
            if self.known[i] == stream:
                return i
        if stream == 0:
            self.streams.append(
                self.context.create_external_stream(Optional[Pointer[NoneType, MutAnyOrigin]](None))
            )
        else:
            self.streams.append(
                self.context.create_external_stream(
                    Optional(Pointer[NoneType, MutAnyOrigin](unsafe_from_address=stream))
                )
            )
        self.known.append(stream)
        return len(self.known) - 1

    def stream(self) -> Int:
        """Returns the address of the current DeviceStream."""
        if self.current == OWN:
            return Int(Pointer(to=self.own))
        return Int(Pointer(to=self.streams[self.current]))

    def enter(mut self, i: Int, fenced: Bool) raises:
        """Chooses the stream of a call: the one at position `i`, or the context's, which then waits for it."""
        self.current = i
        if fenced:
            self.before.order(self.known[i], self.raw)
            self.current = OWN

    def leave(mut self, i: Int, fenced: Bool) raises:
        """Makes the stream at position `i` wait for what the kernel put on the context's."""
        if fenced:
            self.after.order(self.raw, self.known[i])

    def lock(self):
        """All threads share the events and the current stream: a call keeps them to itself."""
        _ = external_call["pthread_mutex_lock", Int32](self.mutex)

    def unlock(self):
        _ = external_call["pthread_mutex_unlock", Int32](self.mutex)


comptime AcceleratorPtr = Pointer[Accelerator, MutAnyOrigin]
comptime ContextPtr = Pointer[DeviceContext, MutAnyOrigin]


def new_cpu_context() raises -> Int:
    """Returns the address of a host DeviceContext that lives as long as the process."""
    var address = external_call["malloc", Int](256)
    ContextPtr(unsafe_from_address=address).unsafe_write(DeviceContext(api="cpu"))
    return address


def new_accelerator(index: Int, driver: Int, next: Int) raises -> Int:
    """Returns the address of an Accelerator that lives as long as the process.

    The device must be torch's current one: events belong to it.
    """
    var address = external_call["malloc", Int](4096)
    AcceleratorPtr(unsafe_from_address=address).unsafe_write(Accelerator(index, driver, next))
    return address


def accelerator_of(first: Int, context: Int) -> Int:
    """Returns the address of the Accelerator of a context, or 0 for a context of the kernel's own.

    `first` is the address of an Accelerator; each has the address of the next. The runtime's handle is the only
    field of a DeviceContext and of a DeviceStream.
    """
    var at = first
    while at != 0:
        ref accelerator = AcceleratorPtr(unsafe_from_address=at)[]
        if load(Int(Pointer(to=accelerator.context)), 0) == context:
            return at
        at = accelerator.next
    return 0


def launch_on(first: Int, context: Int) -> Int:
    """Returns the handle of the stream that takes what this context launches, or 0, as accelerator_of."""
    var at = accelerator_of(first, context)
    return 0 if at == 0 else load(AcceleratorPtr(unsafe_from_address=at)[].stream(), 0)


def known_function(accelerator: Int, name: Int, code: Int, shared: Int32) -> Int:
    """Returns the address of the entry for a GPU function, empty if it was not loaded yet, or 0 if there is no room.

    The runtime hashes the whole code at every launch, up to 90 us. Names and code are constants of
    libraries that stay open, so their addresses tell them apart.
    """
    var table = AcceleratorPtr(unsafe_from_address=accelerator)[].functions
    var at = ((code >> 4) ^ (name << 3)) & (FUNCTIONS - 1)
    for _ in range(FUNCTIONS):
        var entry = table + at * FUNCTION_WORDS * 8
        if load(entry, 0) == 0:
            return entry
        if load(entry, 0) == code and load(entry, 1) == name and load(entry, 2) == Int(shared):
            return entry
        at = (at + 1) & (FUNCTIONS - 1)
    return 0


def remember_function(entry: Int, name: Int, code: Int, shared: Int32, handle: Int):
    """Fills an entry; the code comes last, since it tells that the entry is full."""
    store(entry, 1, name)
    store(entry, 2, Int(shared))
    store(entry, 3, handle)
    store(entry, 0, code)
