"""gelu_backward and silu_mul."""

from collections.abc import Iterator

import torch

from benchmarks.builtin import Case
from torch_mojo import functional as F


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up, composed."""
    return torch.nn.functional.silu(gate) * up


def gelu_tanh(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the tanh approximation."""
    return torch.ops.aten.gelu_backward(grad, x, approximate="tanh")


def ours_tanh(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the same, ours."""
    return F.gelu_backward(grad, x, approximate="tanh")


def cases(device: str) -> Iterator[Case]:
    """Return SwiGLU activations, forward and with gradients."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    for rows, columns in (
        (4, 1024),
        (256, 4096),
        (1024, 4096) if device == "cpu" else (16384, 8192),
    ):
        a, b = (torch.randn(rows, columns, device=device, dtype=dtype) for _ in range(2))
        size = f"({rows}, {columns})"
        moved = 3 * a.nbytes
        yield Case(f"silu_mul, {size}", F.silu_mul, silu_mul, (a, b), moved=moved, loose=1e-2)
        yield Case(
            f"gelu_backward, {size}",
            F.gelu_backward,
            torch.ops.aten.gelu_backward.default,
            (a, b),
            moved=moved,
            loose=1e-2,
        )
        yield Case(
            f"gelu_backward tanh, {size}", ours_tanh, gelu_tanh, (a, b), moved=moved, loose=1e-2
        )
        grads = (a.detach().requires_grad_(), b.detach().requires_grad_())
        yield Case(
            f"silu_mul with gradients, {size}",
            F.silu_mul,
            silu_mul,
            grads,
            moved=8 * a.nbytes,
            loose=1e-2,
        )
