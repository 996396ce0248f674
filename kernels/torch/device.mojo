"""Device contexts for kernels that ask for one, and the fences that order MAX's stream with torch's.

MAX runs what a DeviceContext launches on a stream of its own. Two events make that stream wait for torch's
current stream and torch's stream wait for it, so side streams, the caching allocator and graph capture stay
right and nothing waits on the host.
"""

from std.ffi import external_call
from std.memory import OpaquePointer, Pointer

from max.gpu.host import DeviceContext, DeviceEvent, DeviceStream

comptime MUTEX_BYTES = 64


struct Accelerator(Movable):
    """One CUDA device: MAX's context and stream, two events, and torch's streams as MAX knows them."""

    var context: DeviceContext
    var own: DeviceStream
    var before: DeviceEvent
    var after: DeviceEvent
    var known: List[Int]
    var streams: List[DeviceStream]
    var mutex: Int

    def __init__(out self, index: Int) raises:
        self.context = DeviceContext(index, api="cuda")
        self.own = self.context.stream()
        self.before = self.context.create_event()
        self.after = self.context.create_event()
        self.known = List[Int]()
        self.streams = List[DeviceStream]()
        self.mutex = external_call["calloc", Int](1, MUTEX_BYTES)
        _ = external_call["pthread_mutex_init", Int32](self.mutex, 0)

    def position(mut self, stream: Int) raises -> Int:
        """Returns where torch's stream, a cudaStream_t, stands among the known ones."""
        for i in range(len(self.known)):
            if self.known[i] == stream:
                return i
        if stream == 0:
            self.streams.append(
                self.context.create_external_stream(
                    Optional[Pointer[NoneType, MutAnyOrigin]](None)
                )
            )
        else:
            self.streams.append(
                self.context.create_external_stream(
                    Optional(Pointer[NoneType, MutAnyOrigin](unsafe_from_address=stream))
                )
            )
        self.known.append(stream)
        return len(self.known) - 1

    def enter(mut self, i: Int) raises:
        """Makes MAX's stream wait for what the stream at position `i` holds."""
        self.streams[i].record_event(self.before)
        self.own.enqueue_wait_for(self.before)

    def leave(mut self, i: Int) raises:
        """Makes the stream at position `i` wait for what the kernel put on MAX's."""
        self.own.record_event(self.after)
        self.streams[i].enqueue_wait_for(self.after)

    def lock(self):
        """Events are shared by all threads: record and wait must stay together."""
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


def new_accelerator(index: Int) raises -> Int:
    """Returns the address of an Accelerator that lives as long as the process."""
    var address = external_call["malloc", Int](4096)
    AcceleratorPtr(unsafe_from_address=address).unsafe_write(Accelerator(index))
    return address
