"""libtorch's stable C interface (torch >= 2.10) through ctypes; kernels/torch/abi.mojo is its other half."""

import ctypes
import functools
import sys
from pathlib import Path
from typing import Any

import torch

from torch_mojo import torch_private
from torch_mojo.dtypes import TO_MOJO, short
from torch_mojo.errors import ToolchainError

_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
FOLDER = Path(torch.__file__).parent / "lib"


@functools.cache
def _library(name: str = "torch_cpu") -> ctypes.CDLL:
    return ctypes.CDLL(str(FOLDER / f"lib{name}{_SUFFIX}"))


@functools.cache
def function(name: str, result: Any = ctypes.c_int32) -> Any:
    """Return a C function of libtorch.

    Raises:
        ToolchainError: if this torch has none of that name.
    """
    try:
        found = getattr(_library(), name)
    except AttributeError as e:
        raise ToolchainError(
            f"torch {torch.__version__} has no C function {name}.\nInstall torch 2.10 or newer."
        ) from e
    found.restype = result
    return found


def call(name: str, *args: object) -> None:
    """Call a function that returns an error code; ints are passed as 64-bit words."""
    words = [ctypes.c_int64(a) if isinstance(a, int) else a for a in args]
    if function(name)(*words) != 0:
        raise RuntimeError(f"libtorch's {name} failed; the lines above say why.")


def address(library: str, name: str) -> int:
    """Return the address of a C function in `lib<library>`, or 0 if this torch has none."""
    try:
        found = getattr(_library(library), name)
    except (AttributeError, OSError):
        return 0
    return ctypes.cast(found, ctypes.c_void_p).value or 0


def _int64(name: str, *args: object) -> int:
    value = ctypes.c_int64()
    call(name, *args, ctypes.byref(value))
    return value.value


def new_handle(tensor: int) -> int:
    """Return one more handle of the tensor behind a handle."""
    return _int64("aoti_torch_new_tensor_handle", tensor)


def list_words(handle: int) -> list[int]:
    """Return the items of a list; a tensor comes as a new handle."""
    return [
        _int64("torch_list_get_item", handle, i) for i in range(_int64("torch_list_size", handle))
    ]


def string_text(handle: int) -> str:
    """Return the text of a string handle."""
    length = _int64("torch_string_length", handle)
    data = _int64("torch_string_c_str", handle)
    return ctypes.string_at(data, length).decode()


def delete_cell(cell: int) -> None:
    """Free the cell of an optional, which libtorch made with C++'s `new`."""
    delete = _delete()
    delete(ctypes.c_void_p(cell))


@functools.cache
def _delete() -> Any:
    found = ctypes.CDLL(None)._ZdlPv
    found.restype = None
    return found


@functools.cache
def _dtype_codes() -> dict[torch.dtype, int]:
    codes = {}
    for dtype in (*TO_MOJO, torch.complex64, torch.complex128, torch.complex32):
        name = short(dtype)
        prefix = "torch_dtype_" if name == "float8_e8m0fnu" else "aoti_torch_dtype_"
        try:
            codes[dtype] = function(prefix + name)()
        except ToolchainError:
            continue  # a float8 that this torch does not hand out
    return codes


def dtype_code(dtype: torch.dtype) -> int:
    """Return libtorch's number for a dtype."""
    return _dtype_codes()[dtype]


@functools.cache
def _dtypes_by_code() -> dict[int, torch.dtype]:
    return {c: d for d, c in _dtype_codes().items()}


def dtype_of_code(code: int) -> torch.dtype | None:
    """Return the dtype of libtorch's number, or None if Mojo has no such dtype."""
    return _dtypes_by_code().get(code)


@functools.cache
def _device_codes() -> dict[str, int]:
    names = ("cpu", "cuda", "meta", "xpu", "mps", "privateuse1")
    return {n: function(f"aoti_torch_device_type_{n}")() for n in names}


def device_code(device: torch.device) -> tuple[int, int]:
    """Return libtorch's numbers for a device: type and index."""
    name = device.type
    if name not in _device_codes():
        name = "privateuse1"
    index = -1 if device.index is None else device.index
    return _device_codes()[name], 0 if name == "cpu" else index


def device_of_code(code: int, index: int) -> torch.device:
    """Return the device of libtorch's numbers."""
    name = next(n for n, c in _device_codes().items() if c == code)
    if name == "privateuse1":
        name = torch_private.privateuse1_name()
    return torch.device(name) if index < 0 or name == "cpu" else torch.device(name, index)


@functools.cache
def build_version() -> int:
    """Return the torch version in the form in which libtorch's functions take it."""
    major, minor = (int(p) for p in torch.__version__.split(".")[:2])
    return (major << 56) | (minor << 48)


def data_address(library: str, name: str) -> int:
    """Return the address of an object in `lib<library>`.

    Raises:
        ToolchainError: if this torch has none of that name.
    """
    try:
        found = ctypes.c_char.in_dll(_library(library), name)
    except ValueError as e:
        raise ToolchainError(
            f"torch {torch.__version__} has no object {name}.\nInstall a torch version that torch_mojo was tested with."
        ) from e
    return ctypes.addressof(found)


def new_library(namespace: str, key: str) -> int:
    """Return the address of a torch::Library for a dispatch key, which lasts as long as nobody deletes it."""
    handle = ctypes.c_void_p()
    call(
        "aoti_torch_library_init_impl",
        ctypes.c_char_p(namespace.encode()),
        ctypes.c_char_p(key.encode()),
        ctypes.c_char_p(b"torch_mojo"),
        ctypes.c_uint32(1),
        ctypes.byref(handle),
    )
    return handle.value or 0


def implement(qualname: str, key: str, kernel: int) -> int:
    """Register a C function as an operator's kernel for a dispatch key.

    Returns:
        the handle of the registration, which lasts as long as nobody deletes it.
    """
    namespace, name = qualname.split("::")
    handle = new_library(namespace, key)
    call(
        "torch_library_impl",
        ctypes.c_void_p(handle),
        ctypes.c_char_p(name.encode()),
        ctypes.c_void_p(kernel),
        ctypes.c_uint64(build_version()),
    )
    return handle
