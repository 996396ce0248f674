"""Libraries of the device that ctypes calls: each is built on first use, once per installation, for all dtypes."""

import ctypes
import functools
import struct
from typing import Any

import torch

from torch_mojo.device.fallback import not_built
from torch_mojo.errors import NotBuiltError
from torch_mojo.jit import toolchain
from torch_mojo.jit.build import Job, build
from torch_mojo.jit.cache import cache

# by file in kernels/torch: what it is to people, and the functions that return a number
_LIBRARIES = {
    "training": ("optimizers and losses", ("tm_nll", "tm_nll_backward")),
    "places": ("ranges, masks and indices", ("tm_count", "tm_places")),
}


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """Return the library of kernels/torch/NAME.mojo."""
    what, returning = _LIBRARIES[name]
    text = (toolchain.kernels() / "torch" / f"{name}.mojo").read_text()
    built = build(Job(what, text, extra=(torch.__version__,)), cache()).library
    toolchain.load_runtime()
    opened = ctypes.CDLL(str(built))
    for function in returning:
        getattr(opened, function).restype = ctypes.c_int64
    return opened


def opened(name: str, op: torch._ops.OpOverload) -> ctypes.CDLL | None:
    """Return a library, or None if it is not built and must not be."""
    try:
        return library(name)
    except NotBuiltError:
        not_built(op)
        return None


def words(*given: int) -> Any:
    """Return numbers as a call has them."""
    return (ctypes.c_int64 * len(given))(*given)


def bits(number: float) -> int:
    """Return a number's bits, as a float64, as a word."""
    return int.from_bytes(struct.pack("<d", number), "little", signed=True)
