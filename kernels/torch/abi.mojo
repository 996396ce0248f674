"""libtorch's C interface (torch >= 2.10), and the three mangled names that it lacks.

A handle is an owned reference to a tensor, a list or a string, kept as an Int.
"""

from std.ffi import external_call
from std.memory import Pointer

from torch.words import load, pointer


@always_inline
def dtype_of(tensor: Int) -> Int:
    var value: Int32 = 0
    _ = external_call["aoti_torch_get_dtype", Int32](tensor, Pointer(to=value))
    return Int(value)


@always_inline
def rank_of(tensor: Int) -> Int:
    var value: Int64 = 0
    _ = external_call["aoti_torch_get_dim", Int32](tensor, Pointer(to=value))
    return Int(value)


@always_inline
def device_type_of(tensor: Int) -> Int:
    var value: Int32 = 0
    _ = external_call["aoti_torch_get_device_type", Int32](tensor, Pointer(to=value))
    return Int(value)


@always_inline
def device_index_of(tensor: Int) -> Int:
    var value: Int32 = 0
    _ = external_call["aoti_torch_get_device_index", Int32](tensor, Pointer(to=value))
    return Int(value)


@always_inline
def is_contiguous(tensor: Int) -> Bool:
    var value: UInt8 = 0
    _ = external_call["aoti_torch_is_contiguous", Int32](tensor, Pointer(to=value))
    return value != 0


@always_inline
def sizes_of(tensor: Int) -> Int:
    """Returns the address of the tensor's sizes, owned by the tensor."""
    var value: Int = 0
    _ = external_call["aoti_torch_get_sizes", Int32](tensor, Pointer(to=value))
    return value


@always_inline
def strides_of(tensor: Int) -> Int:
    """Returns the address of the tensor's strides, owned by the tensor."""
    var value: Int = 0
    _ = external_call["aoti_torch_get_strides", Int32](tensor, Pointer(to=value))
    return value


@always_inline
def data_of(tensor: Int, mutable: Bool) -> Int:
    """Returns the address of the first element; a copy-on-write storage is copied only if `mutable`."""
    var value: Int = 0
    if mutable:
        _ = external_call["torch_get_mutable_data_ptr", Int32](tensor, Pointer(to=value))
    else:
        _ = external_call["torch_get_const_data_ptr", Int32](tensor, Pointer(to=value))
    return value


@always_inline
def empty_strided(
    rank: Int, sizes: Int, strides: Int, dtype: Int, device_type: Int, device_index: Int
) -> Int:
    """Returns a new tensor, or 0 if libtorch refused."""
    var tensor: Int = 0
    var failed = external_call["aoti_torch_empty_strided", Int32](
        Int64(rank),
        pointer(sizes),
        pointer(strides),
        Int32(dtype),
        Int32(device_type),
        Int32(device_index),
        Pointer(to=tensor),
    )
    return 0 if failed != 0 else tensor


@always_inline
def free_tensor(tensor: Int):
    _ = external_call["aoti_torch_delete_tensor_object", Int32](tensor)


@always_inline
def free_string(handle: Int):
    _ = external_call["torch_delete_string", Int32](handle)


@always_inline
def free_list(handle: Int):
    _ = external_call["torch_delete_list", Int32](handle)


@always_inline
def free_optional(address: Int):
    """Frees the cell of an optional argument, which libtorch made with C++'s `new`."""
    external_call["_ZdlPv", NoneType](address)


@always_inline
def string_data(handle: Int) -> Int:
    var value: Int = 0
    _ = external_call["torch_string_c_str", Int32](handle, Pointer(to=value))
    return value


@always_inline
def string_length(handle: Int) -> Int:
    var value: Int = 0
    _ = external_call["torch_string_length", Int32](handle, Pointer(to=value))
    return value


@always_inline
def list_length(handle: Int) -> Int:
    var value: Int = 0
    _ = external_call["torch_list_size", Int32](handle, Pointer(to=value))
    return value


@always_inline
def list_item(handle: Int, i: Int) -> Int:
    """Returns item `i`; a tensor comes as a new handle that the caller frees."""
    var value: Int = 0
    _ = external_call["torch_list_get_item", Int32](handle, i, Pointer(to=value))
    return value


@always_inline
def grad_enabled() -> Bool:
    return external_call["aoti_torch_grad_mode_is_enabled", Bool]()


@always_inline
def tensor_impl(tensor: Int) -> Int:
    """Returns the address of the c10::TensorImpl: a handle points to an at::Tensor, which is just that."""
    return load(tensor, 0)


@always_inline
def requires_grad(tensor: Int) -> Bool:
    return external_call["_ZNK3c1010TensorImpl13requires_gradEv", Bool](tensor_impl(tensor))


@always_inline
def bump_version(tensor: Int):
    """Tells autograd that the tensor was written: c10 has no C function for it."""
    external_call["_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE", NoneType](tensor)


@always_inline
def mode_active(key: Int) -> Bool:
    """Tells whether a dispatch key is switched on for the whole thread, as a mode does."""
    return external_call["_ZN3c104impl28tls_is_dispatch_key_includedENS_11DispatchKeyE", Bool](
        UInt16(key)
    )


def throw(message: Int):
    """Throws a C++ exception that arrives in Python as RuntimeError(message).

    It leaves through the calling Mojo frames without running anything in them: free first.
    """
    external_call["_ZN3c106detail14torchCheckFailEPKcS2_jS2_", NoneType](
        message, message, UInt32(0), message
    )
