"""A library of operators that was built ahead of time: it tells torch of them when it is opened.

ahead/tables.py writes an object with the tables of built.mojo (`tm_data`), and one C function for each
operator's `kernel` and `gate`, which load the operator's number and jump to `tm_kernel` or `tm_gate`. An
operator's table of specializations is empty at first: a miss looks for what was built.

While the variable TORCH_MOJO_HOLD is set, nothing is registered: Python is about to do it, with tags and gradients.
"""

from std.ffi import external_call
from std.memory import Pointer, stack_allocation

from torch import abi
from torch.built import *
from torch.device import new_accelerator, new_cpu_context
from torch.plan import Plan, allocate, guards_hold
from torch.route import *
from torch.words import failure, function_at, load, pointer, store

comptime RTLD_NOW = 2
comptime RTLD_NOLOAD = 4
comptime MAX_DEVICES = 64
comptime COMPUTE_MAJOR = 75
comptime COMPUTE_MINOR = 76

comptime CudaGuard = def(index: Int32, guard: WordPtr) thin abi("C") -> Int32
comptime DeleteGuard = def(guard: Int) thin abi("C") -> Int32
comptime Attribute = def(value: WordPtr, attribute: Int32, device: Int32) thin abi("C") -> Int32


def cpu_level() -> Int:
    """Returns which x86-64 level this CPU has, 1 to 4; 0 on another architecture."""
    var words = Int(stack_allocation[2, Int]())
    var first = leaf(words, 0, 0)
    if first[0] == 0:
        return 0
    var one = leaf(words, 1, 0)
    var seven = leaf(words, 7, 0) if first[0] >= 7 else IndexList4(0, 0, 0, 0)
    var extended = leaf(words, 0x80000001, 0)
    comptime SSE = 1 | 1 << 9 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 23
    comptime AVX = 1 << 12 | 1 << 22 | 1 << 27 | 1 << 28 | 1 << 29
    comptime AVX2 = 1 << 3 | 1 << 5 | 1 << 8
    comptime AVX512 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31
    if one[2] & SSE != SSE or extended[2] & 1 == 0:
        return 1
    if one[2] & AVX != AVX or seven[1] & AVX2 != AVX2 or extended[2] & 32 == 0:
        return 2
    var enabled = external_call["tm_xgetbv", Int]()
    if enabled & 6 != 6:
        return 2
    if seven[1] & AVX512 != AVX512 or enabled & 0xE6 != 0xE6:
        return 3
    return 4


@fieldwise_init
struct IndexList4(ImplicitlyCopyable, Movable):
    """What the CPU says of itself in four registers: eax, ebx, ecx, edx."""

    var a: Int
    var b: Int
    var c: Int
    var d: Int

    def __getitem__(self, i: Int) -> Int:
        return self.a if i == 0 else self.b if i == 1 else self.c if i == 2 else self.d


def leaf(words: Int, number: Int, sub: Int) -> IndexList4:
    external_call["tm_cpuid", NoneType](number, sub, pointer(words))
    var low = load(words, 0)
    var high = load(words, 1)
    comptime HALF = 0xFFFFFFFF
    return {low & HALF, (low >> 32) & HALF, high & HALF, (high >> 32) & HALF}


def same_word(word: Int, want: Int, flag: Int) -> Bool:
    """Tells whether what was built for `want` serves `word`."""
    if flag == 0 or word == 0 or want == 0:
        return word == want
    if (word ^ want) & (DTYPE_AND_RANK | DEVICE_TYPE) != 0:
        return False
    if want & ALIGNED != 0 and word & ALIGNED == 0:
        return False
    var layout = (word >> 16) & 15
    if (want >> 16) & 15 == 0:
        return layout == 0
    return layout != REPEATED_LAYOUT or flag == 1  # built for any strides


def matches(built: Int, key: Int, count: Int, returns: Int) -> Bool:
    """Tells whether a specialization was built for this key, with or without outputs."""
    var own = load(built, BUILT_COUNT)
    if count != own and count != own + 1 + returns:
        return False
    for i in range(own):
        var flag = load(load(built, BUILT_FLAGS), i)
        if not same_word(load(key, i), load(load(built, BUILT_KEY), i), flag):
            return False
    if count > own:
        if load(key, own) != SECOND_STAGE:
            return False
        for r in range(returns):
            if not same_word(load(key, own + 1 + r), load(load(built, BUILT_OUTPUTS), r), 2):
                return False
    return True


def driver_function(name: StaticString) -> Int:
    """Returns the address of a function of CUDA's driver, or 0."""
    var library = external_call["dlopen", Int](
        StaticString("libcuda.so.1\0").unsafe_ptr(), Int32(RTLD_NOW)
    )
    return external_call["dlsym", Int](library, name.unsafe_ptr()) if library != 0 else 0


def torch_cuda_function(name: StaticString) -> Int:
    """Returns the address of a function of libtorch_cuda, which is open if there is a CUDA tensor, or 0."""
    var library = external_call["dlopen", Int](
        StaticString("libtorch_cuda.so\0").unsafe_ptr(), Int32(RTLD_NOW | RTLD_NOLOAD)
    )
    return external_call["dlsym", Int](library, name.unsafe_ptr()) if library != 0 else 0


def compute_capability(index: Int) -> Int:
    """Returns 90 for a device of compute capability 9.0, or 0."""
    var function = driver_function("cuDeviceGetAttribute\0")
    if function == 0:
        return 0
    var answer = Int(stack_allocation[2, Int]())
    store(answer, 0, 0)
    store(answer, 1, 0)
    var ask = function_at[Attribute](function)
    _ = ask(pointer(answer), COMPUTE_MAJOR, Int32(index))
    _ = ask(pointer(answer + 8), COMPUTE_MINOR, Int32(index))
    return load(answer, 0) * 10 + load(answer, 1)


def runs_on(built: Int, level: Int) -> Bool:
    """Tells whether code for a specialization's target runs on a CPU level or GPU architecture."""
    if load(built, BUILT_EXACT) != 0:
        return load(built, BUILT_LEVEL) == level
    return load(built, BUILT_LEVEL) <= level


def accelerator_at(index: Int, operator: Int) raises -> Int:
    """Returns the address of one CUDA device's context and fences, which an operator needs."""
    comptime if CPU_ONLY:
        raise Error(name_of(operator), "has no code for a GPU")
    var devices = load(data(), DATA_DEVICES)
    if index >= MAX_DEVICES:
        raise Error(
            name_of(operator), "was called on cuda:", index, "; ", MAX_DEVICES, " devices are supported"
        )
    if load(devices, index) == 0:
        var driver = external_call["calloc", Int](3, 8)
        store(driver, 0, driver_function("cuEventCreate\0"))
        store(driver, 1, driver_function("cuEventRecord\0"))
        store(driver, 2, driver_function("cuStreamWaitEvent\0"))
        var current_stream = torch_cuda_function("aoti_torch_get_current_cuda_stream\0")
        store(state(), STATE_CUDA_STREAM, current_stream)
        var make_guard = torch_cuda_function("aoti_torch_create_cuda_guard\0")
        var drop_guard = torch_cuda_function("aoti_torch_delete_cuda_guard\0")
        if load(driver, 2) == 0 or load(state(), STATE_CUDA_STREAM) == 0 or make_guard == 0:
            raise Error(
                name_of(operator), "CUDA's driver or libtorch_cuda lacks a function that it needs",
                ".\nInstall NVIDIA's driver, and torch for CUDA.",
            )
        var guard = Int(stack_allocation[1, Int]())
        _ = function_at[CudaGuard](make_guard)(Int32(index), pointer(guard))
        comptime if not CPU_ONLY:
            var made = new_accelerator(index, driver, load(state(), STATE_ACCELERATORS))
            store(state(), STATE_ACCELERATORS, made)
            store(devices, index, made)
        _ = function_at[DeleteGuard](drop_guard)(load(guard, 0))
    return load(devices, index)


def cpu_context() raises -> Int:
    if load(data(), DATA_CONTEXT) == 0:
        store(data(), DATA_CONTEXT, new_cpu_context())
    return load(data(), DATA_CONTEXT)


def plan_of(index: Int, built: Int, key: Int, count: Int) -> Int:
    """Returns the address of the plan for a first-stage key, or 0 if it was made for other layouts.

    It lasts as long as the process: on another device than the first it is a copy that says so.
    """
    if count != load(built, BUILT_COUNT) or load(built, BUILT_PLAN) == 0:
        return 0
    for i in range(count):
        var differ = (load(key, i) ^ load(load(built, BUILT_KEY), i)) >> 16 & 15
        var layout_counts = differ != 0 and load(built, BUILT_ANY_LAYOUT) == 0
        if load(load(built, BUILT_FLAGS), i) != 0 and layout_counts:
            return 0
    var device = (first_device(index, key, count) >> 32) & 255
    var plan = load(built, BUILT_PLAN)
    if load(built, BUILT_DEVICE) == 0 or device == 0:
        return plan
    var places = load(built, BUILT_PLACES)
    var copy = external_call["malloc", Int](load(places, 0) * 8)
    for word in range(load(places, 0)):
        store(copy, word, load(plan, word))
    var i = 1
    while load(places, i) != -1:
        store(copy, load(places, i), device)
        i += 1
    return copy


def new_entry(index: Int, built: Int, key: Int, count: Int, hash: Int) raises -> Int:
    """Adds an entry for a key to the operator's table; a table is replaced whole, so readers take no lock."""
    var entry = external_call["calloc", Int](ENTRY_KEY + count, 8)
    store(entry, ENTRY_HASH, hash)
    store(entry, ENTRY_COUNT, count)
    store(entry, ENTRY_FUNCTION, load(built, BUILT_FUNCTION))
    store(entry, ENTRY_PLAN, plan_of(index, built, key, count))
    if load(built, BUILT_DEVICE) != 0:
        var device = (first_device(index, key, count) >> 32) & 255
        store(entry, ENTRY_ACCELERATOR, accelerator_at(device, index))
        store(entry, ENTRY_DEVICE, device)
        store(entry, ENTRY_FENCED, load(built, BUILT_FENCED))
    elif load(built, BUILT_CONTEXT) != 0:
        store(entry, ENTRY_CONTEXT, cpu_context())
    store(entry, ENTRY_RANKS, load(built, BUILT_RANKS))
    for i in range(count):
        store(entry, ENTRY_KEY + i, load(key, i))
    var slot = slot_at(state(), index)
    var old = load(slot, SLOT_TABLE)
    var entries: List[Int] = [entry]
    if old != 0:
        for i in range(load(old, 0) + 1):
            if load(old, 1 + i) != 0:
                entries.append(load(old, 1 + i))
    var capacity = 8
    while capacity < 2 * len(entries):
        capacity *= 2
    var table = external_call["calloc", Int](capacity + 1, 8)
    store(table, 0, capacity - 1)
    for e in entries:
        var at = load(e, ENTRY_HASH) & (capacity - 1)
        while load(table, 1 + at) != 0:
            at = (at + 1) & (capacity - 1)
        store(table, 1 + at, e)
    store(slot, SLOT_TABLE, table)
    return entry


def find_built(index: Int, key: Int, count: Int, hash: Int) raises -> Int:
    """Returns the entry for a key, made now; raises if nothing was built for it that runs here."""
    var slot = slot_at(state(), index)
    var known = find(load(slot, SLOT_TABLE), key, count, hash)
    if known != 0:
        return known
    var op = operator_at(index)
    var lacking = 0
    var level = 0
    var chosen = 0
    for s in range(load(op, OP_SPECIALIZATION_COUNT)):
        var built = load(op, OP_SPECIALIZATIONS) + s * BUILT_WORDS * 8
        if not matches(built, key, count, load(slot, SLOT_RETURNS)):
            continue
        level = cpu_level()
        if load(built, BUILT_DEVICE) != 0:
            level = compute_capability((first_device(index, key, count) >> 32) & 255)
        if not runs_on(built, level):
            lacking = built
        elif chosen == 0 or (
            load(built, BUILT_FUNCTION) == load(chosen, BUILT_FUNCTION)
            and plan_of(index, chosen, key, count) == 0
        ):
            chosen = built
    if chosen == 0:
        raise Error(refusal(index, key, count, lacking, level))
    return new_entry(index, chosen, key, count, hash)


def miss(
    index: Int, stack: WordPtr, key: WordPtr, count: Int, hash: Int, outs: WordPtr
) abi("C") -> Int:
    """Answers a miss of route.mojo's table."""
    _ = external_call["pthread_mutex_lock", Int32](load(data(), DATA_MUTEX))
    var answer = 0
    try:
        answer = find_built(index, Int(key), count, hash)
    except e:
        answer = failure(String(e)) | 1
    _ = external_call["pthread_mutex_unlock", Int32](load(data(), DATA_MUTEX))
    return answer


def outputs(index: Int, stack: WordPtr, outs: WordPtr) abi("C") -> Int:
    """Makes the outputs by another plan than the first that fits the key, else by Python; odd if that fails."""
    var slot = slot_at(state(), index)
    var kinds = load(slot, SLOT_KINDS)
    var nargs = load(slot, SLOT_NARGS)
    var need = load(slot, SLOT_NEED)
    for i in range(nargs):
        need += need_of(load(kinds, i), load(Int(stack), i))
    var memory = external_call["malloc", Int](need * 2 * 8)
    var call = Call(memory, memory + need * 8 + 24)
    for i in range(nargs):
        call.take(load(kinds, i), load(Int(stack), i))
    var made = False
    var op = operator_at(index)
    for s in range(load(op, OP_SPECIALIZATION_COUNT)):
        var built = load(op, OP_SPECIALIZATIONS) + s * BUILT_WORDS * 8
        var fits = matches(built, call.key, call.count, load(slot, SLOT_RETURNS))
        var address = plan_of(index, built, call.key, call.count) if fits and not made else 0
        if address != 0:
            var plan = Plan(address, call.flat)
            if guards_hold(plan):
                made = allocate(plan, Int(outs)) >= 0
    var shown = shown_key(index, call.key, call.count)
    call.free()
    external_call["free", NoneType](memory)
    if made:
        return 0
    var python = load(state(), STATE_PYTHON_OUTPUTS)
    if python != 0:
        return function_at[Outputs](python)(index, stack, outs)
    return failure(
        String(
            name_of(index),
            "the sizes of the outputs for ",
            shown,
            " are computed by its Python declaration, and there is no Python here.",
            "\nBuild it for example arguments with sizes like these.",
        )
    ) | 1


def kernel_failed(index: Int, message: Int) abi("C") -> Int:
    var text = String(name_of(index), text_at(message))
    external_call["free", NoneType](message)
    return failure(text)


@export
def tm_kernel(stack: Int, index: Int) abi("C"):
    """Runs a call below autograd; version counters are bumped here, since nothing above does."""
    var message = route(state(), index, stack, load(operator_at(index), OP_MUTABLE) != 0)
    if message != 0:
        abi.throw(message & ~1)


@export
def tm_gate(stack: Int, index: Int) abi("C"):
    """Runs a call that came through the autograd key: at once if no gradient is needed, else by Python."""
    var base = state()
    var message = 0
    if can_skip(base, slot_at(base, index), stack):
        message = route(base, index, stack, load(operator_at(index), OP_MUTABLE) != 0)
    else:
        message = function_at[Autograd](load(base, STATE_AUTOGRAD))(index, pointer(stack))
    if message != 0:
        abi.throw(message & ~1)


@export
def tm_state() abi("C") -> Int:
    """Returns the address of the state, which the slots follow."""
    return state()


@export
def tm_cpu_level() abi("C") -> Int:
    return cpu_level()


@export
def tm_implement(index: Int) abi("C") -> Int:
    """Registers an operator's kernel with the dispatcher; returns 0 if torch took it."""
    var op = operator_at(index)
    if load(op, OP_TENSORS) == 0:
        return implement(op, "BackendSelect\0")
    var failed = implement(op, "CPU\0")
    return failed if failed != 0 else implement(op, "CUDA\0")


def implement(op: Int, key: StaticString) -> Int:
    var library = Int(stack_allocation[1, Int]())
    var failed = external_call["aoti_torch_library_init_impl", Int32](
        load(op, OP_NAMESPACE),
        key.unsafe_ptr(),
        StaticString("torch_mojo\0").unsafe_ptr(),
        UInt32(1),
        pointer(library),
    )
    if failed != 0:
        return 1
    var version = external_call["aoti_torch_abi_version", UInt64]()
    return Int(
        external_call["torch_library_impl", Int32](
            load(library, 0), load(op, OP_NAME), load(op, OP_KERNEL), version
        )
    )


def define(op: Int):
    var library = Int(stack_allocation[1, Int]())
    var failed = external_call["aoti_torch_library_init_fragment", Int32](
        load(op, OP_NAMESPACE),
        StaticString("torch_mojo\0").unsafe_ptr(),
        UInt32(1),
        pointer(library),
    )
    if failed == 0:
        _ = external_call["aoti_torch_library_def", Int32](load(library, 0), load(op, OP_SCHEMA))


@export
def tm_register() abi("C"):
    """Runs when the library is opened."""
    var base = state()
    var on_miss: Miss = miss
    var on_outputs: Outputs = outputs
    var on_failure: KernelFailed = kernel_failed
    store(base, STATE_MISS, Pointer(to=on_miss).unsafe_bitcast[Int]()[])
    store(base, STATE_OUTPUTS, Pointer(to=on_outputs).unsafe_bitcast[Int]()[])
    store(base, STATE_KERNEL_ERROR, Pointer(to=on_failure).unsafe_bitcast[Int]()[])
    if external_call["getenv", Int](StaticString("TORCH_MOJO_HOLD\0").unsafe_ptr()) != 0:
        return
    for i in range(load(data(), DATA_COUNT)):
        define(operator_at(i))
        _ = tm_implement(i)
