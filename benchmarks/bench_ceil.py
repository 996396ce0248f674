"""ceil."""

from collections.abc import Iterator

import torch

from benchmarks.builtin import Case
from torch_mojo import functional as F


def cases(device: str) -> Iterator[Case]:
    """Return float32 vectors, and a slice of a matrix."""
    for n in (2**10, 2**16, 2**22 if device == "cpu" else 2**27):
        x = torch.randn(n, device=device)
        yield Case(f"ceil, 2^{n.bit_length() - 1}", F.ceil, torch.ceil, (x,), moved=8 * n)
    x = torch.randn(2048, 4096, device=device)[:, ::2]
    yield Case(
        "ceil, every second column of (2048, 4096)", F.ceil, torch.ceil, (x,), moved=8 * x.numel()
    )
