"""softmax and log_softmax."""

from collections.abc import Iterator

import torch

from benchmarks.builtin import Case
from torch_mojo import functional as F


def cases(device: str) -> Iterator[Case]:
    """Return short and long rows, forward and with gradients."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    small = ((4, 128), (256, 1024), (1024, 4096))
    large = ((4, 1024), (4096, 4096), (16384, 8192), (2048, 131072))
    for rows, columns in small if device == "cpu" else large:
        x = torch.randn(rows, columns, device=device, dtype=dtype)
        size = f"({rows}, {columns})"
        for name in ("softmax", "log_softmax"):
            ours, theirs = getattr(F, name), getattr(torch, name)
            yield Case(f"{name}, {size}", ours, theirs, (x, -1), moved=2 * x.nbytes, loose=1e-2)
            leaf = x.detach().requires_grad_()
            yield Case(
                f"{name} with gradients, {size}",
                ours,
                theirs,
                (leaf, -1),
                moved=5 * x.nbytes,
                loose=2e-2,
            )
