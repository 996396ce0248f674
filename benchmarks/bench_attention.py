"""scaled_dot_product_attention."""

from collections.abc import Iterator

import torch

from benchmarks.builtin import Case
from torch_mojo import functional as F


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return torch's causal attention."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def ours(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return the same, ours."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def cases(device: str) -> Iterator[Case]:
    """Return causal attention, forward and with gradients."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    small = ((1, 4, 64, 64), (2, 8, 256, 64), (2, 8, 512, 64))
    large = ((1, 8, 256, 64), (2, 16, 1024, 128), (4, 32, 4096, 128))
    for shape in small if device == "cpu" else large:
        qkv = tuple(torch.randn(shape, device=device, dtype=dtype) for _ in range(3))
        name = f"causal attention, {shape}"
        yield Case(name, ours, causal, qkv, memory_bound=False, loose=2e-2)
        leaves = tuple(t.detach().requires_grad_() for t in qkv)
        yield Case(f"{name} with gradients", ours, causal, leaves, memory_bound=False, loose=5e-2)
