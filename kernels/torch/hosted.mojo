"""What stands between the kernels of a library built ahead of time and Mojo's real runtime, as in router.mojo."""

from std.ffi import external_call
from std.memory import Pointer

from torch.device import accelerator_of, known_function, launch_on, remember_function
from torch.route import STATE_ACCELERATORS
from torch.threads import CPU_PARALLELISM, run_range, threads
from torch.words import load, pointer, store


def accelerators() -> Int:
    return load(external_call["tm_state", Int](), STATE_ACCELERATORS)


@export("__wrap_AsyncRT_DeviceContext_enqueueHostFunctionRange")
def wrap_range(context: Int, resume: Int, destroy: Int, handles: Int, count: Int) abi("C") -> Int:
    run_range(resume, destroy, handles, count)
    return 0


@export("__wrap_AsyncRT_DeviceContext_getAttribute")
def wrap_attribute(result: Int, context: Int, attribute: Int) abi("C") -> Int:
    if attribute & 0xFFFFFFFF == CPU_PARALLELISM:
        Pointer[Int32, MutAnyOrigin](unsafe_from_address=result)[] = Int32(threads())
        return 0
    return external_call["__real_AsyncRT_DeviceContext_getAttribute", Int](
        pointer(result), context, attribute
    )


@export("__wrap_KGEN_CompilerRT_AsyncRT_ParallelismLevel")
def wrap_parallelism() abi("C") -> UInt32:
    return UInt32(threads())


@export("__wrap_AsyncRT_DeviceContext_enqueueFunctionDirect")
def wrap_launch(
    context: Int,
    function: Int,
    grid_x: UInt32,
    grid_y: UInt32,
    grid_z: UInt32,
    block_x: UInt32,
    block_y: UInt32,
    block_z: UInt32,
    shared_bytes: UInt32,
    attributes: Int,
    attribute_count: UInt32,
    arguments: Int,
    argument_count: UInt32,
    argument_sizes: Int,
) abi("C") -> Int:
    """Launches on the stream of the call in progress, whose accelerator is locked."""
    var stream = launch_on(accelerators(), context)
    if stream != 0:
        return external_call["AsyncRT_DeviceStream_enqueueFunctionDirect", Int](
            stream,
            function,
            grid_x,
            grid_y,
            grid_z,
            block_x,
            block_y,
            block_z,
            shared_bytes,
            attributes,
            attribute_count,
            arguments,
            argument_count,
            argument_sizes,
        )
    return external_call["__real_AsyncRT_DeviceContext_enqueueFunctionDirect", Int](
        context,
        function,
        grid_x,
        grid_y,
        grid_z,
        block_x,
        block_y,
        block_z,
        shared_bytes,
        attributes,
        attribute_count,
        arguments,
        argument_count,
        argument_sizes,
    )


@export("__wrap_AsyncRT_DeviceContext_loadFunction")
def wrap_load_function(
    result: Int,
    context: Int,
    module: Int,
    name: Int,
    code: Int,
    length: Int,
    shared: Int32,
    debug: Int,
    level: Int32,
) abi("C") -> Int:
    """Loads a GPU function once; its accelerator is locked."""
    var accelerator = accelerator_of(accelerators(), context)
    var entry = 0
    if accelerator != 0:
        entry = known_function(accelerator, name, code, shared)
    if entry == 0 or load(entry, 0) == 0:
        var failed = external_call["__real_AsyncRT_DeviceContext_loadFunction", Int](
            pointer(result), context, module, name, code, length, shared, debug, level
        )
        if failed != 0 or entry == 0:
            return failed
        remember_function(entry, name, code, shared, load(result, 0))
    else:
        store(result, 0, load(entry, 3))
    # the caller releases what it got; the table keeps its own
    external_call["AsyncRT_DeviceFunction_retain", NoneType](load(result, 0))
    return 0
