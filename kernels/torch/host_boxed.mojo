"""Kernels for the dispatcher in its own calling conventions, and their registration.

A kernel has two functions. The unboxed one gets what C++ passes: tensors and scalars as addresses. The boxed one gets
the stack, a vector of IValues, of which the addresses serve as those of tensors. Both get the functor first: an
object of ours, whose words say which operator is meant.
"""

from std.ffi import external_call
from std.memory import Pointer, stack_allocation

from torch.cxx import (
    IMMORTAL,
    IVALUE_BYTES,
    TAG_BOOL,
    TAG_DOUBLE,
    TAG_INT,
    TAG_NONE,
    TAG_TENSOR,
    allocate,
    release_impl,
)
from torch.words import WordPtr, load, pointer, store

comptime FUNCTOR_DATA = 2  # the first word of ours
comptime PLAIN_TAGS = 1 << 0 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 10 | 1 << 18 | 1 << 22

comptime Boxed = def(functor: Int, operator: Int, keys: Int, stack: Int) thin abi("C") -> None


@always_inline
def tag_of(value: Int) -> Int:
    return load(value, 1) & 0xFFFFFFFF


@always_inline
def arguments(stack: Int, count: Int) -> Int:
    """Returns the address of the first of the last `count` IValues."""
    return load(stack, 1) - count * IVALUE_BYTES


@always_inline
def argument(first: Int, i: Int) -> Int:
    return first + i * IVALUE_BYTES


@always_inline
def destroy(value: Int):
    """Drops what an IValue owns."""
    if PLAIN_TAGS >> tag_of(value) & 1 == 0:
        release_impl(load(value, 0))


@always_inline
def return_tensors(stack: Int, count: Int, tensors: Int, returns: Int):
    """Replaces the last `count` IValues by tensors, whose references go over to the stack."""
    var first = arguments(stack, count)
    for i in range(count):
        destroy(argument(first, i))
    for i in range(returns):
        store(argument(first, i), 0, load(tensors, i))
        store(argument(first, i), 1, TAG_TENSOR)
    store(stack, 1, argument(first, returns))


def return_argument(stack: Int, count: Int, which: Int):
    """Replaces the last `count` IValues by one of them."""
    var first = arguments(stack, count)
    var kept = argument(first, which)
    var payload = load(kept, 0)
    var tag = load(kept, 1)
    store(kept, 0, load(first, 0))
    store(kept, 1, load(first, 1))
    store(first, 0, payload)
    store(first, 1, tag)
    for i in range(1, count):
        destroy(argument(first, i))
    store(stack, 1, argument(first, 1))


@always_inline
def make_functor(words: Int, count: Int) -> Int:
    """Returns an object that the dispatcher takes for an OperatorKernel, with these words of ours."""
    var functor = allocate(FUNCTOR_DATA + count)
    store(functor, 1, IMMORTAL)
    for i in range(count):
        store(functor, FUNCTOR_DATA + i, load(words, i))
    return functor


@always_inline
def register(library: Int, name: Int, functor: Int, boxed: Int, unboxed: Int):
    """Registers a kernel with a torch::Library that has a dispatch key; `name` is a C string."""
    var function = stack_allocation[5, Int]()  # c10::KernelFunction
    store(Int(function), 0, functor)
    store(Int(function), 1, boxed)
    store(Int(function), 2, unboxed)
    store(Int(function), 3, unboxed)
    store(Int(function), 4, 0)
    var nothing = stack_allocation[1, Int]()
    store(Int(nothing), 0, 0)
    var made = pointer(allocate(16))  # torch::CppFunction
    external_call[
        "_ZN5torch11CppFunctionC1EN3c1014KernelFunctionESt8optionalINS1_4impl12CppSignatureEESt10unique_ptrINS1_14FunctionSchemaESt14default_deleteIS8_EE",
        NoneType,
    ](made, function, Int(0), Int(0), nothing)
    _ = external_call["_ZNR5torch7Library5_implEPKcONS_11CppFunctionENS_17_RegisterOrVerifyE", Int](
        library, name, made, Int32(0)
    )


def pass_on(functor: Int, operator: Int, keys: Int, stack: Int) abi("C"):
    """Calls another boxed kernel, the functor's second word, with its functor, the first."""
    var address = load(functor, FUNCTOR_DATA + 1)
    Pointer(to=address).unsafe_bitcast[Boxed]()[](
        load(functor, FUNCTOR_DATA), operator, keys, stack
    )
