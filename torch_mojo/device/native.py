"""The device's native half: the library of kernels/torch/host.mojo, opened and given to c10."""

import ctypes
import functools
import platform
import sys
from collections.abc import Sequence

import torch

from torch_mojo import torch_private
from torch_mojo.dispatch import libtorch
from torch_mojo.errors import ToolchainError
from torch_mojo.jit import toolchain
from torch_mojo.jit.build import Job, build
from torch_mojo.jit.cache import cache

NAME = "mojo"
MOST_DEVICES = 16  # kernels/torch/host_state.mojo
TESTED = ("2.13",)  # the C++ objects of these versions are known word by word
_MEMORY, _MEMORY_WORDS, _COUNT = 32, 8, 0
_BASE = "torch_mojo_device"
_CLASSES = (
    ("c10", "_ZTIN3c1015DeviceAllocatorE"),
    ("c10", "_ZTIN3c109AllocatorE"),
    ("c10", "_ZTIN3c104impl24DeviceGuardImplInterfaceE"),
    ("torch_python", "_ZTIN2at25PrivateUse1HooksInterfaceE"),
)
EMPTY, EMPTY_STRIDED, PASS_ON, OUT_ROW, NEW_ROW, COPY, GELU, GELU_BACKWARD = range(8)
TABLES, MISS, SLOW, LAZY = range(10, 14)  # words of the state
SUM, AMAX, ARGMAX, ANY, ANY_ALL, PROD = range(8, 14)  # reductions, by their arguments
PRODUCT, PLAIN, WRITTEN = 14, 15, 16  # the last two before torch's own kernel


def check_platform() -> None:
    """Refuse a torch or a machine whose C++ objects are laid out in another way than those known here.

    Raises:
        ToolchainError: says which.
    """
    version = ".".join(torch.__version__.split(".")[:2])
    if version not in TESTED:
        raise ToolchainError(
            f"torch.device('mojo') was made for torch {', '.join(TESTED)}; this is torch {torch.__version__}.\n"
            f"Install torch {TESTED[-1]}."
        )
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise ToolchainError(
            f"torch.device('mojo') runs on linux x86_64; this is {sys.platform} {platform.machine()}.\n"
            "Use the CPU or CUDA; every mojo:: operator runs there."
        )


@functools.cache
def library() -> ctypes.CDLL:
    """Return the opened library, built on first use and once per installation."""
    check_platform()
    job = Job(
        "the mojo device",
        (toolchain.kernels() / "torch" / "host.mojo").read_text(),
        libraries=((libtorch.FOLDER, ("torch_cpu", "c10")),),
        extra=(torch.__version__,),
    )
    built = build(job, cache()).library
    toolchain.load_runtime()
    opened = ctypes.CDLL(str(built), mode=ctypes.RTLD_GLOBAL)
    for name in ("tm_host_state", "tm_host_share"):
        getattr(opened, name).restype = ctypes.c_int64
    for name in ("tm_host_register", "tm_host_kernel"):
        getattr(opened, name).restype = None
    return opened


def register_with_c10(count: int) -> None:
    """Register allocator, guard, hooks and generators of `count` devices."""
    native = library()
    infos = [libtorch.data_address(where, name) for where, name in _CLASSES]
    keys = torch_private.keyset("PrivateUse1")
    native.tm_host_register(*(ctypes.c_int64(word) for word in (count, keys, *infos)))


_libraries: dict[tuple[str, str], int] = {}
_kept: list[object] = []


def _library_for(namespace: str, key: str) -> int:
    """Return a torch::Library that lives as long as the process."""
    if (namespace, key) not in _libraries:
        _libraries[namespace, key] = libtorch.new_library(namespace, key)
    return _libraries[namespace, key]


def implement(qualname: str, which: int, words: Sequence[int] = ()) -> None:
    """Register one of the library's kernels for the device.

    Args:
        qualname: `aten::name` or `aten::name.overload`.
        which: EMPTY and the like.
        words: what the kernel finds in its functor.
    """
    namespace, name = qualname.split("::")
    text = ctypes.c_char_p(name.encode())
    _kept.append(text)
    array = (ctypes.c_int64 * max(len(words), 1))(*words)
    library().tm_host_kernel(
        ctypes.c_int64(_library_for(namespace, "PrivateUse1")),
        text,
        ctypes.c_int64(which),
        array,
        ctypes.c_int64(len(words)),
    )


def run_as_on_cpu(qualname: str) -> None:
    """Let the device run the CPU's kernel of an operator that only looks at a tensor's description or bytes."""
    implement(qualname, PASS_ON, torch_private.kernel_words(qualname, "CPU"))


def define_sharing() -> None:
    """Define the two operators that put a tensor of one device on another's memory."""
    torch_private.expect_overrides()
    own = torch.library.Library(_BASE, "FRAGMENT")
    own.define("as_cpu(Tensor self) -> Tensor")
    own.define("as_mojo(Tensor self, int index) -> Tensor")
    for key in ("Conjugate", "Negative"):
        own.impl("as_cpu", torch.library.fallthrough_kernel, key)
    _kept.append(own)
    share = library().tm_host_share
    libtorch.implement(f"{_BASE}::as_cpu", "PrivateUse1", share(ctypes.c_int64(1)))
    libtorch.implement(f"{_BASE}::as_mojo", "CPU", share(ctypes.c_int64(0)))


@functools.cache
def sharing() -> tuple[torch_private.Entry, torch_private.Entry]:
    """Return the functions `as_cpu(tensor)` and `as_mojo(tensor, index)`, below autograd."""
    names = ("as_cpu", "as_mojo")
    found = [torch_private.find_overload(f"{_BASE}::{n}") for n in names]
    assert found[0] is not None and found[1] is not None
    return torch_private.entry(found[0]), torch_private.entry(found[1])


def as_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor on the memory of the device's, outside autograd."""
    with torch.no_grad():
        return sharing()[0](tensor)


def as_mojo(tensor: torch.Tensor, index: int) -> torch.Tensor:
    """Return a tensor of a device on the memory of the CPU's, outside autograd."""
    with torch.no_grad():
        return sharing()[1](tensor, index)


def device_count() -> int:
    """Return the number of devices."""
    return ctypes.c_int64.from_address(library().tm_host_state() + _COUNT * 8).value


def set_word(which: int, value: int) -> None:
    """Set a word of the library's state."""
    ctypes.c_int64.from_address(library().tm_host_state() + which * 8).value = value


def memory_words(device: int) -> list[int]:
    """Return a device's counts: bytes and blocks, each now, at most, allocated and freed."""
    at = library().tm_host_state() + (_MEMORY + device * _MEMORY_WORDS) * 8
    return list((ctypes.c_int64 * _MEMORY_WORDS).from_address(at))
