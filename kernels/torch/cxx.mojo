"""C++ objects of c10 as words: what the private device's vtables and kernels read and make.

Where fields lie is checked by device/native.py before anything is registered. Only for the x86-64 System V ABI: an
object that is returned in memory comes as a hidden first argument.
"""

from std.ffi import external_call
from std.memory import Pointer, stack_allocation

from torch.words import load, pointer, store

comptime PRIVATEUSE1 = 20  # c10::DeviceType

# words of a TensorImpl
comptime IMPL_STORAGE = 2
comptime IMPL_KEYS = 21

# words of a StorageImpl
comptime STORAGE_DATA = 2
comptime STORAGE_BYTES = 6
comptime STORAGE_ALLOCATOR = 9
comptime STORAGE_RESIZABLE = 57  # a byte

# tags of an IValue, which is a payload and a tag
comptime TAG_NONE = 0
comptime TAG_TENSOR = 1
comptime TAG_DOUBLE = 3
comptime TAG_INT = 5
comptime TAG_BOOL = 10
comptime IVALUE_BYTES = 16

# tags of a Scalar, whose value is at byte 16
comptime SCALAR_DOUBLE = 0
comptime SCALAR_INT = 1
comptime SCALAR_COMPLEX = 3
comptime SCALAR_BOOL = 4
comptime OPTIONAL_SCALAR_BYTES = 48  # with room: a Scalar, then whether there is one

# so many references that nobody ever frees it: strong ones below, weak ones above
comptime IMMORTAL = (1 << 20) << 32 | (1 << 20)


def allocate(words: Int) -> Int:
    """Returns the address of cleared words that live as long as the process."""
    return external_call["calloc", Int](words, 8)


@always_inline
def byte(address: Int, i: Int) -> Int:
    """Reads a signed byte."""
    return Int(Pointer[Int8, MutAnyOrigin](unsafe_from_address=address)[unsafe_offset=i])


@always_inline
def low(word: Int) -> Int:
    """Returns the lowest byte of a register, signed: what is above it is anything."""
    return Int(Int8(word & 127)) - (word & 128)


@always_inline
def device_word(index: Int) -> Int:
    """Returns c10::Device(PrivateUse1, index)."""
    return PRIVATEUSE1 | (index & 255) << 8


@always_inline
def index_of(device: Int) -> Int:
    """Returns the index of a c10::Device, which may be -1."""
    return low(device >> 8)


@always_inline
def storage_of(impl: Int) -> Int:
    """Returns the StorageImpl of a TensorImpl."""
    return load(impl, IMPL_STORAGE)


struct Object:
    """Builds a C++ object with virtual functions out of words."""

    @staticmethod
    def make(type_info: Int, functions: List[Int], fields: Int) -> Int:
        """Returns an object: a vtable pointer, then `fields` cleared words."""
        var table = allocate(len(functions) + 2)
        store(table, 1, type_info)
        for i in range(len(functions)):
            store(table, 2 + i, functions[i])
        var object = allocate(1 + fields)
        store(object, 0, table + 16)
        return object


def address_of[F: ImplicitlyCopyable & Deinitable](function: F) -> Int:
    """Returns the address of a C function."""
    var f = function
    return Pointer(to=f).unsafe_bitcast[Int]()[]


@always_inline
def release_impl(impl: Int):
    """Drops a reference to a TensorImpl: a handle is a Tensor made with C++'s `new`."""
    var handle = external_call["_Znwm", Int](8)
    store(handle, 0, impl)
    _ = external_call["aoti_torch_delete_tensor_object", Int32](handle)
