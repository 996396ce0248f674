"""Asks a library that was built ahead of time for a call with CUDA tensors, where there is no GPU."""

import ctypes
from pathlib import Path

from torch_mojo.dispatch.shipped import open_library

STATE_MISS = 6  # of kernels/torch/route.mojo
FLOAT32, CUDA, ALIGNED = 6, 1, 1 << 20
_MISS = ctypes.CFUNCTYPE(
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_void_p,
)


def answer(path: Path, tensors: int = 2) -> str:
    """Return what the first operator says to contiguous float32 vectors on a GPU.

    Args:
        path: the library.
        tensors: how many the operator takes; nothing else of a call selects its code.
    """
    opened = open_library(path)
    state = (ctypes.c_int64 * 16).from_address(opened.tm_state())
    word = FLOAT32 | 1 << 8 | ALIGNED | CUDA << 24
    key = (ctypes.c_int64 * tensors)(*[word] * tensors)
    message = _MISS(state[STATE_MISS])(0, None, key, tensors, 1, None)
    assert message & 1, "it was accepted"
    return ctypes.string_at(message & ~1).decode()
