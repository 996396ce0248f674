"""An addition in Triton, for what its launch costs beside ours. Imported where there is a GPU."""

import torch
import triton
import triton.language as tl


@triton.jit
def _add(a: tl.tensor, b: tl.tensor, y: tl.tensor, n: int, block: tl.constexpr) -> None:
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    tl.store(y + at, tl.load(a + at, inside) + tl.load(b + at, inside), inside)


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a + b of contiguous CUDA tensors."""
    y = torch.empty_like(a)
    n = a.numel()
    _add[(triton.cdiv(n, 256),)](a, b, y, n, block=256)
    return y
