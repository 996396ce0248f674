"""The tables of a library that was built ahead of time, and what it says when nothing in them serves a call.

ahead/tables.py writes them.
"""

from std.ffi import external_call
from std.memory import Pointer

from torch.route import *
from torch.words import load

# words of the data
comptime DATA_COUNT = 0
comptime DATA_STATE = 1
comptime DATA_OPERATORS = 2
comptime DATA_MUTEX = 3
comptime DATA_DEVICES = 4
comptime DATA_DTYPES = 5  # address of pairs: number, name; closed by -1
comptime DATA_LEVELS = 6  # address of names
comptime DATA_CONTEXT = 7

# words of an operator
comptime OP_WORDS = 16
comptime OP_NAMESPACE = 0
comptime OP_NAME = 1
comptime OP_SCHEMA = 2
comptime OP_KERNEL = 3
comptime OP_TENSORS = 4  # whether it takes tensors
comptime OP_SPECIALIZATIONS = 5
comptime OP_SPECIALIZATION_COUNT = 6
comptime OP_BUILT = 7  # text for people
comptime OP_NAMES = 8  # address of the arguments' names
comptime OP_MUTABLE = 9

# words of a specialization
comptime BUILT_WORDS = 16
comptime BUILT_LEVEL = 0  # of the CPU, or the GPU architecture as a number, 90
comptime BUILT_FUNCTION = 1
comptime BUILT_PLAN = 2
comptime BUILT_FENCED = 3
comptime BUILT_RANKS = 4
comptime BUILT_COUNT = 5
comptime BUILT_KEY = 6
comptime BUILT_FLAGS = 7  # for each word of the key: 0 as it is, 1 a tensor, 2 one that is written
comptime BUILT_OUTPUTS = 8
comptime BUILT_DEVICE = 9  # 0 cpu, 1 cuda
comptime BUILT_CONTEXT = 10
comptime BUILT_EXACT = 11  # a GPU architecture that runs on no later one
comptime BUILT_PLACES = 12  # address of: the plan's length, which words are device indices, -1
comptime BUILT_ANY_LAYOUT = 13  # whether the plan serves all layouts that the code serves
comptime BUILT_TARGET = 14  # its name

# fields of a tensor's word
comptime DTYPE_AND_RANK = 0xFFFF
comptime DEVICE_TYPE = 0xFF << 24
comptime ALIGNED = 1 << 20
comptime REPEATED_LAYOUT = 3
comptime CUDA = 1


@always_inline
def data() -> Int:
    return external_call["tm_data", Int]()


@always_inline
def state() -> Int:
    return load(data(), DATA_STATE)


def operator_at(index: Int) -> Int:
    return load(data(), DATA_OPERATORS) + index * OP_WORDS * 8


def text_at(address: Int) -> String:
    """Returns a copy of a C string."""
    var bytes = List[UInt8]()
    var at = Pointer[UInt8, MutAnyOrigin](unsafe_from_address=address)
    var i = 0
    while at[unsafe_offset=i] != 0:
        bytes.append(at[unsafe_offset=i])
        i += 1
    return String(from_utf8_lossy=bytes)


def name_of(index: Int) -> String:
    var op = operator_at(index)
    return String("[", text_at(load(op, OP_NAMESPACE)), "::", text_at(load(op, OP_NAME)), "] ")


def first_device(index: Int, key: Int, count: Int) -> Int:
    """Returns the word of a key's first tensor, or 0."""
    var op = operator_at(index)
    for s in range(load(op, OP_SPECIALIZATION_COUNT)):
        var built = load(op, OP_SPECIALIZATIONS) + s * BUILT_WORDS * 8
        if load(built, BUILT_COUNT) <= count:
            for i in range(load(built, BUILT_COUNT)):
                if load(load(built, BUILT_FLAGS), i) != 0 and load(key, i) != 0:
                    return load(key, i)
    return 0


def on_cuda(index: Int, key: Int, count: Int) -> Bool:
    return (first_device(index, key, count) >> 24) & 255 == CUDA


def shown_word(word: Int) -> String:
    """Returns a tensor's word for people: `float32[2] strided on cuda`."""
    var at = load(data(), DATA_DTYPES)
    var dtype = String("dtype ", word & 255)
    while load(at, 0) != -1:
        if load(at, 0) == word & 255:
            dtype = text_at(load(at, 1))
        at += 16
    var text = String(dtype, "[", (word >> 8) & 255, "]")
    if (word >> 16) & 15 != 0:
        text += " expanded" if (word >> 16) & 15 == REPEATED_LAYOUT else " strided"
    if word & DEVICE_TYPE != 0:
        text += String(" on ", "cuda" if (word >> 24) & 255 == 1 else "another device")
    return text


def shown_key(index: Int, key: Int, count: Int) -> String:
    """Returns a key for people: its tensors, and the values that select code."""
    var slot = slot_at(state(), index)
    var names = load(operator_at(index), OP_NAMES)
    var text = String()
    var at = 0
    for i in range(load(slot, SLOT_NARGS)):
        var kind = load(load(slot, SLOT_KINDS), i)
        var name = text_at(load(names, i))
        var shown = String()
        if kind & OPTIONAL:
            at += 1
            if load(key, at - 1) == 0:
                if kind & (LIST | KIND) == TENSOR:
                    at += 1
                continue
        if kind & LIST:
            var length = load(key, at)
            at += 1
            if kind & KIND == TENSOR:
                for k in range(length):
                    shown += String("" if k == 0 else ", ", shown_word(load(key, at + k)))
                shown = String("[", shown, "]")
            if kind & KIND == TENSOR or kind & IN_KEY:
                at += length
        elif kind & KIND == TENSOR:
            shown = shown_word(load(key, at))
            at += 1
        elif kind & KIND == STRING:
            at += 1 + (load(key, at) + 7) // 8
        elif kind & IN_KEY:
            shown = String(load(key, at))
            at += 1
        if shown.byte_length() != 0:
            text += String("" if text.byte_length() == 0 else ", ", name, ": ", shown)
    if at < count:
        text += ", with outputs "
        for r in range(load(slot, SLOT_RETURNS)):
            text += String("" if r == 0 else ", ", shown_word(load(key, at + 1 + r)))
    return text


def refusal(index: Int, key: Int, count: Int, lacking: Int, level: Int) -> String:
    """Returns what to tell when nothing was built for a key.

    Args:
        index: the operator's number.
        key: the address of the call's words.
        count: how many they are.
        lacking: 0, or the specialization that would do, if this machine could run it.
        level: of this CPU, or this GPU's architecture as a number, 0 if that is not known.
    """
    var op = operator_at(index)
    var shown = shown_key(index, key, count)
    var text = String(name_of(index), "was not built for ", shown)
    if lacking != 0:
        text = String(name_of(index), "was built for ", text_at(load(lacking, BUILT_TARGET)))
        if load(lacking, BUILT_DEVICE) == 0:
            text += String("; this CPU is ", text_at(load(load(data(), DATA_LEVELS), level)))
        elif level == 0:
            text += "; CUDA's driver does not say what this GPU is"
        else:
            text += String("; this GPU is sm_", level)
        text += String(" (", shown, ")")
    elif on_cuda(index, key, count) and not has_gpu_code(index):
        text = String(name_of(index), "has no code for a GPU (", shown, ")")
    return String(text, ".\nIt was built for:\n", text_at(load(op, OP_BUILT)))


def has_gpu_code(index: Int) -> Bool:
    """Tells whether anything of an operator was built for a GPU."""
    var op = operator_at(index)
    for s in range(load(op, OP_SPECIALIZATION_COUNT)):
        if load(load(op, OP_SPECIALIZATIONS) + s * BUILT_WORDS * 8, BUILT_DEVICE) != 0:
            return True
    return False
