"""The operator: what it takes, what its result looks like, its gradient."""

from typing import Any

import torch

try:
    import torch_mojo
except ImportError:  # the wheel has a small loader, and the kernel built
    from ship_an_op import _torch_mojo as torch_mojo


@torch_mojo.mojo_op("ship_an_op::scale_add", path="scale_add.mojo")
def scale_add(x: torch.Tensor, y: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    """Return x + alpha * y, elementwise, for two tensors of one shape and floating-point dtype."""
    torch._check(x.shape == y.shape, lambda: f"x has shape {x.shape}, y has {y.shape}")
    return torch.empty_like(x)


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.alpha = inputs[2]


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
    return grad, ctx.alpha * grad, None


scale_add.register_autograd(_backward, setup_context=_save)
