"""Raw 64-bit words behind an address, the form in which the router and Python share their tables."""

from std.ffi import external_call
from std.memory import Pointer

comptime WordPtr = Pointer[Int, MutAnyOrigin]


@always_inline
def load(address: Int, i: Int) -> Int:
    """Reads word `i` behind `address`."""
    return WordPtr(unsafe_from_address=address)[unsafe_offset=i]


@always_inline
def store(address: Int, i: Int, value: Int):
    """Writes word `i` behind `address`."""
    WordPtr(unsafe_from_address=address)[unsafe_offset=i] = value


@always_inline
def function_at[F: ImplicitlyCopyable](address: Int) -> F:
    """Reinterprets an address as a C function pointer of type `F`."""
    var a = address
    return Pointer(to=a).unsafe_bitcast[F]()[]


@always_inline
def pointer(address: Int) -> WordPtr:
    """Returns the address as a pointer.

    What a C function reads or writes through an argument must go to it as a pointer: the compiler takes an Int
    for a number, and memory behind it for untouched.
    """
    return WordPtr(unsafe_from_address=address)


def failure(text: String) -> Int:
    """Returns a C string, made with malloc, that the router hands on."""
    var length = text.byte_length()
    var address = external_call["malloc", Int](length + 1)
    _ = external_call["memcpy", Int](address, Int(text.unsafe_ptr()), length)
    Pointer[UInt8, MutAnyOrigin](unsafe_from_address=address)[unsafe_offset=length] = 0
    return address
