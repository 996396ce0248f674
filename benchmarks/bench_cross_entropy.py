"""cross_entropy."""

from collections.abc import Iterator

import torch

from benchmarks.builtin import Case
from torch_mojo import functional as F


def cases(device: str) -> Iterator[Case]:
    """Return logits of vocabularies, forward and with gradients."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    small = ((8, 128), (256, 4096), (512, 32000))
    large = ((64, 1024), (2048, 32000), (8192, 128256))
    for rows, classes in small if device == "cpu" else large:
        x = torch.randn(rows, classes, device=device, dtype=dtype)
        target = torch.randint(0, classes, (rows,), device=device)
        size = f"({rows}, {classes})"
        theirs = torch.nn.functional.cross_entropy
        yield Case(
            f"cross_entropy, {size}",
            F.cross_entropy,
            theirs,
            (x, target),
            moved=x.nbytes,
            loose=1e-2,
        )
        leaf = x.detach().requires_grad_()
        yield Case(
            f"cross_entropy with gradients, {size}",
            F.cross_entropy,
            theirs,
            (leaf, target),
            moved=3 * x.nbytes,
            loose=2e-2,
        )
