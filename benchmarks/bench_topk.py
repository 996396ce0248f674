"""topk."""

from collections.abc import Iterator

import torch

from benchmarks.builtin import Case
from torch_mojo import functional as F


def values(x: torch.Tensor, k: int) -> torch.Tensor:
    """Return the k largest of each row."""
    return torch.topk(x, k).values


def ours(x: torch.Tensor, k: int) -> torch.Tensor:
    """Return the same, ours."""
    return F.topk(x, k)[0]


def cases(device: str) -> Iterator[Case]:
    """Return the sampling of a vocabulary, and a router's choice of experts."""
    for rows, columns, k in (
        (1024, 64, 8),
        (8, 4096, 50),
        (8 if device == "cpu" else 64, 128256, 50),
    ):
        x = torch.randn(rows, columns, device=device)
        yield Case(f"topk {k}, ({rows}, {columns})", ours, values, (x, k), moved=x.nbytes)
