"""The private device's library: what device/native.py opens. Memory, streams and generators of host devices, new tensors."""

from std.ffi import external_call
from std.memory import Pointer

from torch.cxx import PRIVATEUSE1, address_of
from torch.host_boxed import Boxed, make_functor, pass_on, register
from torch.host_fast import plain_boxed, plain_unboxed, written_boxed, written_unboxed
from torch.host_gelu import gelu_backward_unboxed, gelu_boxed, gelu_unboxed
from torch.host_guard import make_generator, make_guard, make_hooks
from torch.host_memory import make_allocator, make_pinned_allocator
from torch.host_products import product_boxed, product_unboxed
from torch.host_reduce import amax_unboxed, any_all_unboxed, any_unboxed, argmax_unboxed
from torch.host_reduce import prod_unboxed, reduce_boxed, sum_unboxed
from torch.host_rows import copy_boxed, copy_unboxed
from torch.host_rows import new_boxed, new_unboxed, out_boxed, out_unboxed
from torch.host_state import ALLOCATOR, COUNT, GENERATORS, GUARD, HOOKS, KEYSET, PINNED
from torch.host_state import host_state
from torch.host_tensors import as_cpu, as_mojo, empty_boxed, empty_unboxed
from torch.host_tensors import strided_boxed, strided_unboxed
from torch.words import load, store

comptime Stable = def(stack: Int, nargs: UInt64, nouts: UInt64) thin abi("C") -> None


@export
def tm_host_state() abi("C") -> Int:
    return host_state()


@export
def tm_host_register(
    count: Int, keys: Int, allocator: Int, base: Int, guard: Int, hooks: Int
) abi("C"):
    """Registers `count` devices. `keys` are a tensor's; then the type infos of the classes."""
    var state = host_state()
    store(state, COUNT, count)
    store(state, KEYSET, keys)
    store(state, ALLOCATOR, make_allocator(allocator))
    store(state, PINNED, make_pinned_allocator(base))
    store(state, GUARD, make_guard(guard))
    store(state, HOOKS, make_hooks(hooks))
    for i in range(count):
        make_generator(state + (GENERATORS + i) * 8, i)
    external_call["_ZN3c1012SetAllocatorENS_10DeviceTypeEPNS_9AllocatorEh", NoneType](
        Int8(PRIVATEUSE1), load(state, ALLOCATOR), UInt8(255)
    )
    external_call[
        "_ZN3c104impl19registerDeviceGuardENS_10DeviceTypeEPKNS0_24DeviceGuardImplInterfaceE", NoneType
    ](Int8(PRIVATEUSE1), load(state, GUARD))
    external_call["_ZN2at33RegisterPrivateUse1HooksInterfaceEPNS_25PrivateUse1HooksInterfaceE", NoneType](
        load(state, HOOKS)
    )


def reduction(which: Int) -> Int:
    """Returns the unboxed function of reductions with the same kind of arguments."""
    if which == 0:
        var f: def(
            functor: Int,
            keys: Int,
            source: Int,
            keep: Int,
            dtype: Int,
            goal: Int,
            dim_words: Int,
            dims: Int,
            given: Int,
        ) thin abi("C") -> Int = sum_unboxed
        return address_of(f)
    if which == 1:
        var f: def(
            functor: Int, keys: Int, source: Int, dim_words: Int, dims: Int, keep: Int, goal: Int
        ) thin abi("C") -> Int = amax_unboxed
        return address_of(f)
    if which == 2:
        var f: def(
            functor: Int, keys: Int, source: Int, dim: Int, given: Int, keep: Int, goal: Int
        ) thin abi("C") -> Int = argmax_unboxed
        return address_of(f)
    if which == 3:
        var f: def(
            functor: Int, keys: Int, source: Int, dim: Int, keep: Int, goal: Int
        ) thin abi("C") -> Int = any_unboxed
        return address_of(f)
    if which == 5:
        var f: def(
            functor: Int, keys: Int, source: Int, dim: Int, keep: Int, dtype: Int, goal: Int
        ) thin abi("C") -> Int = prod_unboxed
        return address_of(f)
    var f: def(
        functor: Int, keys: Int, source: Int, goal: Int
    ) thin abi("C") -> Int = any_all_unboxed
    return address_of(f)


@export
def tm_host_kernel(library: Int, name: Int, which: Int, words: Int, count: Int) abi("C"):
    """Registers one of the kernels here with a torch::Library: `which` is empty, empty_strided or another's."""
    var functor = make_functor(words, count)
    if which == 0:
        var boxed: Boxed = empty_boxed
        var unboxed: def(
            result: Int,
            functor: Int,
            keys: Int,
            sizes: Int,
            rank: Int,
            dtype: Int,
            layout: Int,
            device: Int,
            pinned: Int,
            format: Int,
        ) thin abi("C") -> Int = empty_unboxed
        register(library, name, functor, address_of(boxed), address_of(unboxed))
    elif which == 1:
        var boxed: Boxed = strided_boxed
        var unboxed: def(
            result: Int,
            functor: Int,
            keys: Int,
            sizes: Int,
            rank: Int,
            dtype: Int,
            strides: Int,
            count: Int,
            layout: Int,
            device: Int,
            pinned: Int,
        ) thin abi("C") -> Int = strided_unboxed
        register(library, name, functor, address_of(boxed), address_of(unboxed))
    elif which == 3:
        var boxed: Boxed = out_boxed
        var unboxed: def(
            functor: Int, keys: Int, a0: Int, a1: Int, a2: Int, a3: Int, a4: Int, a5: Int
        ) thin abi("C") -> Int = out_unboxed
        register(library, name, functor, address_of(boxed), address_of(unboxed))
    elif which == 4:
        var boxed: Boxed = new_boxed
        var unboxed: def(
            result: Int, functor: Int, keys: Int, a0: Int, a1: Int, a2: Int, a3: Int, a4: Int
        ) thin abi("C") -> Int = new_unboxed
        register(library, name, functor, address_of(boxed), address_of(unboxed))
    elif which == 5:
        var boxed: Boxed = copy_boxed
        var unboxed: def(
            result: Int, functor: Int, keys: Int, source: Int, to: Int, later: Int
        ) thin abi("C") -> Int = copy_unboxed
        register(library, name, functor, address_of(boxed), address_of(unboxed))
    elif which == 6:
        var boxed: Boxed = gelu_boxed
        var unboxed: def(
            functor: Int, keys: Int, input: Int, length: Int, text: Int, goal: Int
        ) thin abi("C") -> Int = gelu_unboxed
        register(library, name, functor, address_of(boxed), address_of(unboxed))
    elif which == 7:
        var boxed: Boxed = gelu_boxed
        var unboxed: def(
            functor: Int, keys: Int, grad: Int, input: Int, length: Int, text: Int, goal: Int
        ) thin abi("C") -> Int = gelu_backward_unboxed
        register(library, name, functor, address_of(boxed), address_of(unboxed))
    elif which >= 8 and which <= 13:
        var boxed: Boxed = reduce_boxed
        register(library, name, functor, address_of(boxed), reduction(which - 8))
    elif which == 14:
        var boxed: Boxed = product_boxed
        var unboxed: def(
            functor: Int, keys: Int, a0: Int, a1: Int, a2: Int, a3: Int, a4: Int, a5: Int
        ) thin abi("C") -> Int = product_unboxed
        register(library, name, functor, address_of(boxed), address_of(unboxed))
    elif which == 15:
        var boxed: Boxed = plain_boxed
        var unboxed: def(
            result: Int, functor: Int, keys: Int, a0: Int, a1: Int, a2: Int, a3: Int, a4: Int
        ) thin abi("C") -> Int = plain_unboxed
        register(library, name, functor, address_of(boxed), address_of(unboxed))
    elif which == 16:
        var boxed: Boxed = written_boxed
        var unboxed: def(
            functor: Int, keys: Int, a0: Int, a1: Int, a2: Int, a3: Int, a4: Int, a5: Int
        ) thin abi("C") -> Int = written_unboxed
        register(library, name, functor, address_of(boxed), address_of(unboxed))
    else:
        var boxed: Boxed = pass_on
        register(library, name, functor, address_of(boxed), 0)


@export
def tm_host_share(cpu: Int) abi("C") -> Int:
    """Returns the C function of as_cpu, or of as_mojo."""
    var f: Stable = as_cpu
    var g: Stable = as_mojo
    return address_of(f if cpu != 0 else g)
