"""rms_norm, add_rms_norm and layer_norm."""

from collections.abc import Iterator

import torch

from benchmarks.builtin import Case
from torch_mojo import functional as F


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the norm of the sum, and the sum, composed."""
    total = x + residual
    return torch.nn.functional.rms_norm(total, weight.shape, weight, eps), total


def cases(device: str) -> Iterator[Case]:
    """Return the rows of language models, forward and with gradients."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    small = ((4, 512), (256, 1024), (1024, 4096))
    large = ((4, 4096), (2048, 4096), (16384, 8192))
    for rows, columns in small if device == "cpu" else large:
        x, r = (torch.randn(rows, columns, device=device, dtype=dtype) for _ in range(2))
        w, b = (torch.randn(columns, device=device, dtype=dtype) for _ in range(2))
        size, shape = f"({rows}, {columns})", (columns,)
        rms, layer = torch.nn.functional.rms_norm, torch.nn.functional.layer_norm
        yield Case(
            f"rms_norm, {size}",
            F.rms_norm,
            rms,
            (x, shape, w, 1e-6),
            moved=2 * x.nbytes,
            loose=2e-2,
        )
        yield Case(
            f"add_rms_norm, {size}",
            F.add_rms_norm,
            add_rms_norm,
            (x, r, w, 1e-6),
            moved=4 * x.nbytes,
            loose=2e-2,
        )
        yield Case(
            f"layer_norm, {size}",
            F.layer_norm,
            layer,
            (x, shape, w, b),
            moved=2 * x.nbytes,
            loose=2e-2,
        )
        leaves = [t.detach().requires_grad_() for t in (x, w, b)]
        yield Case(
            f"rms_norm with gradients, {size}",
            F.rms_norm,
            rms,
            (leaves[0], shape, leaves[1], 1e-6),
            moved=5 * x.nbytes,
            loose=5e-2,
        )
        yield Case(
            f"layer_norm with gradients, {size}",
            F.layer_norm,
            layer,
            (leaves[0], shape, leaves[1], leaves[2]),
            moved=5 * x.nbytes,
            loose=5e-2,
        )
