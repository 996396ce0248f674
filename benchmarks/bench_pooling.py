"""adaptive_avg_pool2d."""

from collections.abc import Iterator

import torch

from benchmarks.builtin import Case
from torch_mojo import functional as F


def cases(device: str) -> Iterator[Case]:
    """Return global and 7x7 pooling, forward, with gradients, and the backward alone."""
    aten = torch.ops.aten._adaptive_avg_pool2d_backward.default
    small = ((1, 16, 14, 14), (8, 64, 28, 28), (16, 256, 28, 28))
    large = ((8, 64, 28, 28), (64, 256, 56, 56), (256, 512, 56, 56))
    for shape in small if device == "cpu" else large:
        x = torch.randn(shape, device=device)
        for to in (1, 7):
            theirs = torch.nn.functional.adaptive_avg_pool2d
            name = f"{shape} to {to}"
            yield Case(
                f"adaptive_avg_pool2d, {name}",
                F.adaptive_avg_pool2d,
                theirs,
                (x, (to, to)),
                moved=x.nbytes,
            )
            grad = torch.randn(*shape[:2], to, to, device=device)
            yield Case(
                f"adaptive_avg_pool2d_backward, {name}",
                F.adaptive_avg_pool2d_backward,
                aten,
                (grad, x),
                moved=x.nbytes,
            )
