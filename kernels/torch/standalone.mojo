"""What CPU kernels ask of Mojo's runtime, for a library that shall need none.

A CPU kernel uses the runtime for memory, for the text of errors and for a device context that only says `cpu` and
has threads. Profilers are off. ahead/library.py uses this when a library asks for nothing beyond these functions.
"""

from std.ffi import external_call
from std.memory import Pointer

from torch.threads import run_range, threads
from torch.words import store

comptime A_CONTEXT = 64  # nobody looks behind it


@export("AsyncRT_DeviceContext_enqueueHostFunctionRange")
def enqueue_range(
    context: Int, resume: Int, destroy: Int, handles: Int, count: Int
) abi("C") -> Int:
    run_range(resume, destroy, handles, count)
    return 0


@export("AsyncRT_DeviceContext_getAttribute")
def get_attribute(result: Int, context: Int, attribute: Int32) abi("C") -> Int:
    Pointer[Int32, MutAnyOrigin](unsafe_from_address=result)[] = Int32(threads())
    return 0


@export("KGEN_CompilerRT_AsyncRT_ParallelismLevel")
def parallelism() abi("C") -> UInt32:
    return UInt32(threads())


@export("AsyncRT_DeviceContext_create")
def create(result: Int, api: Int, index: Int32) abi("C") -> Int:
    store(result, 0, A_CONTEXT)
    return 0


@export("AsyncRT_DeviceContext_deviceApi")
def device_api(result: Int, context: Int) abi("C"):
    var name = StaticString("cpu")
    store(result, 0, Int(name.unsafe_ptr()))
    store(result, 1, name.byte_length())


@export("KGEN_CompilerRT_AlignedAlloc")
def aligned_alloc(alignment: Int, size: Int) abi("C") -> Int:
    var to = max(alignment, 16)
    return external_call["aligned_alloc", Int](to, (max(size, 1) + to - 1) // to * to)


@export("KGEN_CompilerRT_AlignedFree")
def aligned_free(address: Int) abi("C"):
    external_call["free", NoneType](address)


def to_bfloat16(bits: UInt32) -> UInt16:
    """Rounds a float32's bits to the nearest bfloat16, to even."""
    if bits & 0x7FFFFFFF > 0x7F800000:
        return UInt16((bits >> 16) | 64)
    return UInt16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)


@export("__truncsfbf2")
def from_float32(x: Float32) abi("C") -> BFloat16:
    var value = x
    var bits = to_bfloat16(Pointer(to=value).unsafe_bitcast[UInt32]()[])
    return Pointer(to=bits).unsafe_bitcast[BFloat16]()[]
