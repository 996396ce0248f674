"""The operators that are measured: one addition, in each way to declare it."""

from pathlib import Path
from typing import Any

import torch

import torch_mojo

KERNELS = Path(__file__).parent / "kernels"


@torch_mojo.mojo_op("tm_bench::add", path=KERNELS)
def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a + b."""
    return torch.empty_like(a)


@torch_mojo.mojo_op("tm_bench::sub", path=KERNELS)
def sub(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a - b."""
    return torch.empty_like(a)


@torch_mojo.mojo_op("tm_bench::add_with_backward", path=KERNELS, kernel="add")
def add_with_backward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a + b, with gradients."""
    return torch.empty_like(a)


@torch_mojo.mojo_op("tm_bench::direct_add", path=KERNELS.with_name("kernels_gpu"))
def direct_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a + b for float32 vectors on a GPU, launched on torch's own stream."""
    return torch.empty_like(a)


@torch_mojo.mojo_op("tm_bench::fenced_add", path=KERNELS.with_name("kernels_gpu"))
def fenced_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a + b for float32 vectors on a GPU, launched on the context's stream between two fences."""
    return torch.empty_like(a)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    del ctx
    return grad, grad


add_with_backward.register_autograd(_backward)


@torch.library.custom_op("tm_bench::python_add", mutates_args=())
def python_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a + b, from Python."""
    return torch.add(a, b)


@python_add.register_fake
def _(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(a)


@torch.library.custom_op("tm_bench::python_add_with_backward", mutates_args=())
def python_add_with_backward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a + b, from Python, with gradients."""
    return torch.add(a, b)


python_add_with_backward.register_autograd(_backward)
