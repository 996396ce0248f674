"""rotary_embedding."""

from collections.abc import Iterator

import torch

from benchmarks.builtin import Case
from torch_mojo import functional as F


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return the rotation, composed as language models do."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def cases(device: str) -> Iterator[Case]:
    """Return queries of a language model, forward and with gradients."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    small = ((1, 8, 1, 64), (1, 8, 128, 64), (2, 16, 512, 128))
    large = ((1, 32, 1, 128), (1, 32, 2048, 128), (8, 32, 4096, 128))
    for shape in small if device == "cpu" else large:
        x = torch.randn(shape, device=device, dtype=dtype)
        angle = torch.rand(shape[2], shape[3], device=device)
        cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
        yield Case(
            f"rotary_embedding, {shape}",
            F.rotary_embedding,
            rotary,
            (x, cos, sin),
            moved=2 * x.nbytes,
            loose=2e-2,
        )
