"""One call of an operator: its key, its specialization, its outputs.

A router keeps its state and its slots behind one address, `base`. router.mojo has them in a process where Python
fills the tables, ahead.mojo in a library that was built ahead of time.
"""

from std.ffi import external_call
from std.memory import Pointer, stack_allocation
from std.sys import is_defined

from torch import abi
from torch.device import AcceleratorPtr
from torch.layout import describe
from torch.plan import Plan, allocate, guards_hold
from torch.words import WordPtr, failure, function_at, load, pointer, store

comptime SLOT_WORDS = 16
comptime STACK_WORDS = 256
comptime CPU_ONLY = is_defined["TORCH_MOJO_CPU_ONLY"]()

# words of the state
comptime STATE_PLAIN_KEYS = 0
comptime STATE_KEYSET_OFFSET = 1
comptime STATE_MODE_PYTHON = 2
comptime STATE_MODE_FUNCTIONALIZE = 3
comptime STATE_MODE_FUNCTORCH = 4
comptime STATE_CUDA_STREAM = 5
comptime STATE_MISS = 6
comptime STATE_OUTPUTS = 7
comptime STATE_AUTOGRAD = 8
comptime STATE_KERNEL_ERROR = 9
comptime STATE_ACCELERATORS = 10
comptime STATE_PYTHON_OUTPUTS = 11
comptime STATE_WORDS = 16

# words of a slot
comptime SLOT_NARGS = 0
comptime SLOT_KINDS = 1
comptime SLOT_TABLE = 2
comptime SLOT_RETURNS = 3
comptime SLOT_FLAGS = 4
comptime SLOT_NEED = 5
comptime SLOT_HAS_LISTS = 1

# words of an entry
comptime ENTRY_HASH = 0
comptime ENTRY_COUNT = 1
comptime ENTRY_FUNCTION = 2
comptime ENTRY_PLAN = 3
comptime ENTRY_ACCELERATOR = 4
comptime ENTRY_CONTEXT = 5
comptime ENTRY_DEVICE = 6
comptime ENTRY_FENCED = 7
comptime ENTRY_RANKS = 8
comptime ENTRY_KEY = 9

# kinds of an argument
comptime KIND = 15
comptime TENSOR = 1
comptime STRING = 2
comptime VALUE = 3
comptime LIST = 16
comptime OPTIONAL = 32
comptime OPTIONAL_ITEMS = 64
comptime IN_KEY = 128
comptime MUTATED = 256

comptime SECOND_STAGE = -1

comptime Specialization = def(flat: WordPtr) thin abi("C") -> Int
comptime Miss = def(
    slot: Int, stack: WordPtr, key: WordPtr, count: Int, hash: Int, outs: WordPtr
) thin abi("C") -> Int
comptime Outputs = def(slot: Int, stack: WordPtr, outs: WordPtr) thin abi("C") -> Int
comptime Autograd = def(slot: Int, stack: WordPtr) thin abi("C") -> Int
comptime KernelFailed = def(slot: Int, message: Int) thin abi("C") -> Int
comptime CurrentStream = def(device: Int32, stream: WordPtr) thin abi("C") -> Int32
comptime Boxed = def(stack: Int, nargs: UInt64, nouts: UInt64) thin abi("C") -> None


@always_inline
def slot_at(base: Int, slot: Int) -> Int:
    return base + (STATE_WORDS + slot * SLOT_WORDS) * 8


struct Call(Movable):
    """One call's arguments, taken apart: the key, and the flat words that the specialization reads."""

    var key: Int
    var count: Int
    var flat: Int
    var used: Int
    var owned: List[Int]  # handles of list items
    var memory: List[Int]  # arrays of list values

    def __init__(out self, key: Int, flat: Int):
        self.key = key
        self.count = 0
        self.flat = flat
        self.used = 0
        self.owned = List[Int]()
        self.memory = List[Int]()

    @always_inline
    def push_key(mut self, word: Int):
        store(self.key, self.count, word)
        self.count += 1

    @always_inline
    def push(mut self, word: Int):
        store(self.flat, self.used, word)
        self.used += 1

    @always_inline
    def push_tensor(mut self, tensor: Int, mutable: Bool):
        self.push_key(describe(tensor, mutable, self.flat + self.used * 8))
        self.used += 3

    def push_nothing(mut self):
        self.push_key(0)
        for _ in range(3):
            self.push(0)

    def push_string(mut self, handle: Int):
        var data = abi.string_data(handle)
        var length = abi.string_length(handle)
        self.push(data)
        self.push(length)
        self.push_key(length)
        for start in range(0, length, 8):
            var word = 0
            for j in range(min(8, length - start)):
                var byte = Pointer[UInt8, MutAnyOrigin](unsafe_from_address=data)[
                    unsafe_offset=start + j
                ]
                word |= Int(byte) << (8 * j)
            self.push_key(word)

    def push_list(mut self, kind: Int, handle: Int):
        var length = abi.list_length(handle)
        self.push_key(length)
        if kind & KIND == TENSOR:
            for i in range(length):
                var item = abi.list_item(handle, i)
                if kind & OPTIONAL_ITEMS:
                    if item == 0:
                        self.push_nothing()
                        continue
                    var cell = item
                    item = load(cell, 0)
                    abi.free_optional(cell)
                self.owned.append(item)
                self.push_tensor(item, kind & MUTATED != 0)
        else:
            var values = external_call["malloc", Int](max(length, 1) * 8)
            self.memory.append(values)
            for i in range(length):
                var item = abi.list_item(handle, i)
                store(values, i, item)
                if kind & IN_KEY:
                    self.push_key(item)
            self.push(values)
            self.push(length)

    @always_inline
    def take(mut self, kind: Int, argument: Int):
        """Adds one argument."""
        if kind & (LIST | OPTIONAL | KIND) == TENSOR:
            self.push_tensor(argument, kind & MUTATED != 0)
            return
        if kind & (LIST | OPTIONAL | KIND) == VALUE:
            self.push(argument)
            if kind & IN_KEY:
                self.push_key(argument)
            return
        self.take_other(kind, argument)

    def take_other(mut self, kind: Int, argument: Int):
        var value = argument
        if kind & OPTIONAL:
            self.push_key(Int(argument != 0))
            if argument == 0:
                if kind & LIST:
                    if kind & KIND != TENSOR:
                        self.push(0)
                        self.push(0)
                elif kind & KIND == TENSOR:
                    self.push_nothing()
                elif kind & KIND == STRING:
                    self.push(0)
                    self.push(0)
                else:
                    self.push(0)
                return
            value = load(argument, 0)
        if kind & LIST:
            self.push_list(kind, value)
        elif kind & KIND == TENSOR:
            self.push_tensor(value, kind & MUTATED != 0)
        elif kind & KIND == STRING:
            self.push_string(value)
        else:
            self.push(value)
            if kind & IN_KEY:
                self.push_key(value)

    def free(mut self):
        for tensor in self.owned:
            abi.free_tensor(tensor)
        for address in self.memory:
            external_call["free", NoneType](address)


def need_of(kind: Int, argument: Int) -> Int:
    """Returns an upper bound of the words that an argument adds to the key, and to the flat words."""
    var value = argument
    if kind & OPTIONAL:
        if argument == 0:
            return 4
        value = load(argument, 0)
    if kind & LIST:
        return 4 * abi.list_length(value) + 4
    if kind & KIND == STRING:
        return abi.string_length(value) // 8 + 6
    return 4


def free_argument(kind: Int, argument: Int):
    var value = argument
    if kind & OPTIONAL:
        if argument == 0:
            return
        value = load(argument, 0)
        abi.free_optional(argument)
    if kind & LIST:
        abi.free_list(value)
    elif kind & KIND == TENSOR:
        abi.free_tensor(value)
    elif kind & KIND == STRING:
        abi.free_string(value)


@always_inline
def free_arguments(slot: Int, stack: Int):
    var kinds = load(slot, SLOT_KINDS)
    for i in range(load(slot, SLOT_NARGS)):
        var kind = load(kinds, i)
        if kind & (LIST | OPTIONAL | KIND) == TENSOR:
            abi.free_tensor(load(stack, i))
        elif kind & (LIST | OPTIONAL | KIND) != VALUE:
            free_argument(kind, load(stack, i))


def bump_versions(slot: Int, stack: Int):
    """Bumps the version counter of every mutated argument."""
    var kinds = load(slot, SLOT_KINDS)
    for i in range(load(slot, SLOT_NARGS)):
        var kind = load(kinds, i)
        if kind & MUTATED == 0:
            continue
        var value = load(stack, i)
        if kind & OPTIONAL:
            if value == 0:
                continue
            value = load(value, 0)
        if kind & LIST:
            for k in range(abi.list_length(value)):
                var item = abi.list_item(value, k)
                abi.bump_version(item)
                abi.free_tensor(item)
        else:
            abi.bump_version(value)


@always_inline
def hash_of(key: Int, count: Int) -> Int:
    """Mixes the key's words; Python gets the result, so only this function defines it."""
    var h: UInt64 = 0x9E3779B97F4A7C15
    for i in range(count):
        h = (h ^ UInt64(load(key, i))) * 0xFF51AFD7ED558CCD
        h ^= h >> 32
    return Int(h & 0x7FFFFFFFFFFFFFFF)


@always_inline
def find(table: Int, key: Int, count: Int, hash: Int) -> Int:
    """Returns the entry of this key, compared word by word, or 0."""
    if table == 0:
        return 0
    var mask = load(table, 0)
    var at = hash & mask
    while True:
        var entry = load(table, 1 + at)
        if entry == 0:
            return 0
        if load(entry, ENTRY_HASH) == hash and load(entry, ENTRY_COUNT) == count:
            var same = True
            for i in range(count):
                if load(entry, ENTRY_KEY + i) != load(key, i):
                    same = False
                    break
            if same:
                return entry
        at = (at + 1) & mask


@always_inline
def entry_for(base: Int, index: Int, slot: Int, stack: Int, mut call: Call, outs: Int) -> Int:
    """Returns the entry; a message with the lowest bit set means that Python refused."""
    var hash = hash_of(call.key, call.count)
    var entry = find(load(slot, SLOT_TABLE), call.key, call.count, hash)
    if entry == 0:
        entry = function_at[Miss](load(base, STATE_MISS))(
            index, pointer(stack), pointer(call.key), call.count, hash, pointer(outs)
        )
    return entry


def run_on_device(base: Int, entry: Int, flat: Int) -> Int:
    """Calls a specialization that launches on a GPU."""
    var device = load(entry, ENTRY_DEVICE)
    var answer = Int(stack_allocation[1, Int]())
    store(answer, 0, 0)
    _ = function_at[CurrentStream](load(base, STATE_CUDA_STREAM))(Int32(device), pointer(answer))
    var stream = load(answer, 0)
    ref accelerator = AcceleratorPtr(unsafe_from_address=load(entry, ENTRY_ACCELERATOR))[]
    var fenced = load(entry, ENTRY_FENCED) != 0
    accelerator.lock()
    var failed = 0
    try:
        var i = accelerator.position(stream)
        accelerator.enter(i, fenced)
        store(flat, -1, accelerator.stream())
        store(flat, -2, Int(Pointer(to=accelerator.context)))
        failed = function_at[Specialization](load(entry, ENTRY_FUNCTION))(pointer(flat))
        accelerator.leave(i, fenced)
    except e:
        failed = failure(String(e))
    accelerator.unlock()
    return failed


@always_inline
def outputs_second(base: Int, index: Int, slot: Int, stack: Int, mut call: Call, outs: Int) -> Int:
    """Lets Python make the outputs and finds the entry for these arguments and these outputs."""
    var message = function_at[Outputs](load(base, STATE_OUTPUTS))(
        index, pointer(stack), pointer(outs)
    )
    if message != 0:
        return message
    call.push_key(SECOND_STAGE)
    for k in range(load(slot, SLOT_RETURNS)):
        call.push_tensor(load(outs, k), True)
    var entry = entry_for(base, index, slot, stack, call, outs)
    if entry & 1:
        for k in range(load(slot, SLOT_RETURNS)):
            abi.free_tensor(load(outs, k))
    return entry


@no_inline
def route(base: Int, index: Int, stack: Int, bump: Bool) -> Int:
    """Runs one call. Returns 0, or the address of a message; arguments are freed in any case."""
    var slot = slot_at(base, index)
    var nargs = load(slot, SLOT_NARGS)
    var kinds = load(slot, SLOT_KINDS)
    var need = load(slot, SLOT_NEED)
    if load(slot, SLOT_FLAGS) & SLOT_HAS_LISTS:
        for i in range(nargs):
            need += need_of(load(kinds, i), load(stack, i))
    var key_memory = Int(stack_allocation[STACK_WORDS, Int]())
    var flat_memory = Int(stack_allocation[STACK_WORDS, Int]())
    var out_memory = Int(stack_allocation[STACK_WORDS, Int]())
    var heap = 0
    if need > STACK_WORDS:
        heap = external_call["malloc", Int](need * 2 * 8)
        key_memory = heap
        flat_memory = heap + need * 8
    # three words before the flat ones are for the ranks, the context and the stream
    var call = Call(key_memory, flat_memory + 24)
    for i in range(nargs):
        call.take(load(kinds, i), load(stack, i))
    var message = run_call(base, index, slot, stack, call, out_memory)
    if bump and message == 0:
        bump_versions(slot, stack)
    call.free()
    free_arguments(slot, stack)
    if heap != 0:
        external_call["free", NoneType](heap)
    if message != 0:
        return message
    for k in range(load(slot, SLOT_RETURNS)):
        store(stack, k, load(out_memory, k))
    return 0


@always_inline
def run_call(base: Int, index: Int, slot: Int, stack: Int, mut call: Call, outs: Int) -> Int:
    """Finds the specialization, makes the outputs, runs it. Returns 0 or a message."""
    var entry = entry_for(base, index, slot, stack, call, 0)
    if entry & 1:
        return entry - 1
    var returns = load(slot, SLOT_RETURNS)
    var planned = False
    if load(entry, ENTRY_PLAN) != 0:
        var plan = Plan(load(entry, ENTRY_PLAN), call.flat)
        if guards_hold(plan):
            planned = allocate(plan, outs) >= 0
    if planned:
        for k in range(returns):
            var tensor = load(outs, k)
            call.push(abi.data_of(tensor, True))
            call.push(abi.sizes_of(tensor))
            call.push(abi.strides_of(tensor))
    else:
        entry = outputs_second(base, index, slot, stack, call, outs)
        if entry & 1:
            return entry - 1
    var failed = 0
    store(call.flat, -3, load(entry, ENTRY_RANKS))
    var on_device = False
    comptime if not CPU_ONLY:
        on_device = load(entry, ENTRY_ACCELERATOR) != 0
    if on_device:
        comptime if not CPU_ONLY:
            failed = run_on_device(base, entry, call.flat)
    elif load(entry, ENTRY_FUNCTION) != 0:
        store(call.flat, -2, load(entry, ENTRY_CONTEXT))
        failed = function_at[Specialization](load(entry, ENTRY_FUNCTION))(pointer(call.flat))
    if failed != 0:
        for k in range(returns):
            abi.free_tensor(load(outs, k))
        return function_at[KernelFailed](load(base, STATE_KERNEL_ERROR))(index, failed)
    return 0


@always_inline
def is_plain(base: Int, tensor: Int) -> Bool:
    """Tells whether nothing but autograd stands between this tensor and its backend."""
    var keys = load(abi.tensor_impl(tensor) + load(base, STATE_KEYSET_OFFSET), 0)
    return keys & ~load(base, STATE_PLAIN_KEYS) == 0


def can_skip(base: Int, slot: Int, stack: Int) -> Bool:
    """Tells whether the call may go to the backend at once: no gradient needed, no mode, plain tensors."""
    var grad = abi.grad_enabled()
    var kinds = load(slot, SLOT_KINDS)
    for i in range(load(slot, SLOT_NARGS)):
        var kind = load(kinds, i)
        if kind & KIND != TENSOR:
            continue
        var value = load(stack, i)
        if kind & OPTIONAL:
            if value == 0:
                continue
            value = load(value, 0)
        if kind & LIST:
            if kind & OPTIONAL_ITEMS:
                return False
            for k in range(abi.list_length(value)):
                var item = abi.list_item(value, k)
                var plain = is_plain(base, item) and not (grad and abi.requires_grad(item))
                abi.free_tensor(item)
                if not plain:
                    return False
        elif not is_plain(base, value) or (grad and abi.requires_grad(value)):
            return False
    return not (
        abi.mode_active(load(base, STATE_MODE_PYTHON))
        or abi.mode_active(load(base, STATE_MODE_FUNCTIONALIZE))
        or abi.mode_active(load(base, STATE_MODE_FUNCTORCH))
    )
