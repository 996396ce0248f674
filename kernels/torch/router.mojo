"""The router: what the dispatcher calls for every operator.

Each operator has a slot, and each slot two C functions: `kernel` for the backend keys and `gate` for the
autograd keys. A call makes a key of all that changes code, finds the specialization in the slot's table,
allocates the outputs and calls it (route.mojo). What is not in the table goes to Python once.

dispatch/router.py writes the slots and tables; the word numbers of route.mojo are shared with it.
"""

from std.ffi import _Global, external_call
from std.memory import Pointer

from torch import abi
from torch.device import accelerator_of, known_function, launch_on
from torch.device import new_accelerator, new_cpu_context, remember_function
from torch.route import (
    Autograd,
    Boxed,
    SLOT_WORDS,
    STATE_ACCELERATORS,
    STATE_AUTOGRAD,
    STATE_WORDS,
    can_skip,
    route,
    slot_at,
)
from torch.threads import get_attribute, run_range, threads
from torch.words import failure, function_at, load, pointer, store

comptime SLOTS = 512  # with functions here; more_slots.mojo has those of further ones
comptime MOST_SLOTS = 1 << 16


struct State(Movable):
    var address: Int

    def __init__(out self):
        self.address = external_call["calloc", Int](
            STATE_WORDS + MOST_SLOTS * SLOT_WORDS, 8
        )  # pages of it that nobody writes take no memory


def make_state() -> State:
    return State()


comptime STATE = _Global["torch_mojo.router", make_state]


@always_inline
def state() -> Int:
    try:
        return STATE.get_or_create_ptr()[].address
    except:
        return 0


@no_inline
def pass_gate(index: Int, stack: Int) -> Int:
    """Runs a call that came through the autograd key."""
    var base = state()
    if can_skip(base, slot_at(base, index), stack):
        return route(base, index, stack, True)
    return function_at[Autograd](load(base, STATE_AUTOGRAD))(index, pointer(stack))


@export
def tm_run_kernel(index: Int, stack: Int) abi("C"):
    """Runs a call of a slot that came through a backend's key."""
    var message = route(state(), index, stack, False)
    if message != 0:
        abi.throw(message)


@export
def tm_run_gate(index: Int, stack: Int) abi("C"):
    """Runs a call of a slot that came through the autograd key."""
    var message = pass_gate(index, stack)
    if message != 0:
        abi.throw(message)


def kernel[index: Int](stack: Int, nargs: UInt64, nouts: UInt64) abi("C"):
    tm_run_kernel(index, stack)


def gate[index: Int](stack: Int, nargs: UInt64, nouts: UInt64) abi("C"):
    tm_run_gate(index, stack)


@export
def tm_slot_function(index: Int, autograd: Int) abi("C") -> Int:
    """Returns the address of a slot's `kernel` or `gate`."""
    comptime for k in range(SLOTS):
        if index == k:
            var f: Boxed = kernel[k]
            var g: Boxed = gate[k]
            return Pointer(to=g if autograd != 0 else f).unsafe_bitcast[Int]()[]
    return 0


@export
def tm_state() abi("C") -> Int:
    """Returns the address of the state, which the slots follow."""
    return state()


@export
def tm_slots() abi("C") -> Int:
    """Returns how many slots have functions here."""
    return SLOTS


@export
def tm_most_slots() abi("C") -> Int:
    """Returns how many slots the state has."""
    return MOST_SLOTS


@export
def tm_cpu_context(message: Int) abi("C") -> Int:
    """Makes a host context; on failure returns 0 and stores a C string behind `message`."""
    try:
        return new_cpu_context()
    except e:
        store(message, 0, failure(String(e)))
        return 0


@export
def tm_accelerator(index: Int, driver: Int, message: Int) abi("C") -> Int:
    """Makes the context of one CUDA device; `driver` as for Fence.create, failures as for tm_cpu_context."""
    var base = state()
    try:
        var made = new_accelerator(index, driver, load(base, STATE_ACCELERATORS))
        store(base, STATE_ACCELERATORS, made)
        return made
    except e:
        store(message, 0, failure(String(e)))
        return 0


@export("__wrap_AsyncRT_DeviceContext_enqueueHostFunctionRange")
def wrap_range(context: Int, resume: Int, destroy: Int, handles: Int, count: Int) abi("C") -> Int:
    run_range(resume, destroy, handles, count)
    return 0


@export("__wrap_AsyncRT_DeviceContext_getAttribute")
def wrap_attribute(result: Int, context: Int, attribute: Int) abi("C") -> Int:
    return get_attribute(result, context, attribute)


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
    var stream = launch_on(load(state(), STATE_ACCELERATORS), context)
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
    return external_call["AsyncRT_DeviceContext_enqueueFunctionDirect", Int](
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
    var accelerator = accelerator_of(load(state(), STATE_ACCELERATORS), context)
    var entry = 0
    if accelerator != 0:
        entry = known_function(accelerator, name, code, shared)
    if entry == 0 or load(entry, 0) == 0:
        var failed = external_call["AsyncRT_DeviceContext_loadFunction", Int](
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
