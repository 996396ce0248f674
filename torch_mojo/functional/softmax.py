"""Softmax and its logarithm."""

from typing import Any

import torch

from torch_mojo.batching import batch_first
from torch_mojo.dtypes import short
from torch_mojo.functional.builtin import Kernel, kernel


def _check_dim(name: str, input: torch.Tensor, dim: int) -> None:
    rank = max(input.dim(), 1)
    if dim < -rank or dim >= rank:
        raise IndexError(
            f"[mojo::{name}] dim={dim} is out of range: input has {input.dim()} dimension(s).\n"
            f"Pass a dim from {-rank} to {rank - 1}."
        )


def _check_dtype(name: str, dtype: torch.dtype) -> None:
    if not dtype.is_floating_point:
        raise TypeError(
            f"[mojo::{name}] the result would have dtype {short(dtype)}.\n"
            "Pass a floating-point tensor, or dtype=torch.float32."
        )


@kernel(constants={"logarithm": False}, autocast=torch.float32)
def softmax(input: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return exp(input) over its sum along dim, as `torch.softmax`.

    Args:
        input: any shape and strides.
        dim: the dimension whose elements sum to one.
        dtype: what input is cast to first; default: its own. It must be floating-point.

    Returns:
        the shape of input. Sums are taken in float32 (float64 for float64). A row that is -inf throughout is nan.
    """
    _check_dim("softmax", input, dim)
    _check_dtype("softmax", dtype or input.dtype)
    return torch.empty(input.shape, dtype=dtype or input.dtype, device=input.device)


@kernel(file="softmax", kernel="softmax", constants={"logarithm": True}, autocast=torch.float32)
def log_softmax(input: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return the logarithm of softmax, as `torch.log_softmax`: input - log(sum(exp(input))).

    Args:
        input: any shape and strides.
        dim: the dimension over which the exponentials sum to one.
        dtype: what input is cast to first; default: its own. It must be floating-point.

    Returns:
        the shape of input. Sums are taken in float32 (float64 for float64).
    """
    _check_dim("log_softmax", input, dim)
    _check_dtype("log_softmax", dtype or input.dtype)
    return torch.empty(input.shape, dtype=dtype or input.dtype, device=input.device)


@kernel(file="softmax", constants={"logarithm": False})
def softmax_backward(
    grad_output: torch.Tensor, output: torch.Tensor, dim: int, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return the gradient of softmax, as `aten._softmax_backward_data`: output * (g - sum(g * output)).

    Args:
        grad_output: the gradient of the output, g: its shape and dtype, any strides.
        output: what softmax returned.
        dim: the dimension it was taken over.
        dtype: the dtype of the input, and so of the result; default: the output's.

    Returns:
        the gradient of the input.
    """
    return torch.empty(output.shape, dtype=dtype or output.dtype, device=output.device)


@kernel(file="softmax", kernel="softmax_backward", constants={"logarithm": True})
def log_softmax_backward(
    grad_output: torch.Tensor, output: torch.Tensor, dim: int, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return the gradient of log_softmax, as `aten._log_softmax_backward_data`: g - exp(output) * sum(g).

    Args:
        grad_output: the gradient of the output, g: its shape and dtype, any strides.
        output: what log_softmax returned.
        dim: the dimension it was taken over.
        dtype: the dtype of the input, and so of the result; default: the output's.

    Returns:
        the gradient of the input.
    """
    return torch.empty(output.shape, dtype=dtype or output.dtype, device=output.device)


def _register(forward: Kernel[..., Any], backward: Kernel[..., Any], logarithm: bool) -> None:
    def save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.dim, ctx.dtype = inputs[1], inputs[0].dtype

    def grads(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        (output,) = ctx.saved_tensors
        return backward(grad, output, ctx.dim, ctx.dtype), None, None

    def save_again(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(inputs[0], inputs[1])
        ctx.dim = inputs[2]

    def grads_again(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        g, y = ctx.saved_tensors
        grad = grad.to(y.dtype)
        if logarithm:  # g - exp(y) * sum(g)
            e = y.exp()
            to_g = grad - (grad * e).sum(ctx.dim, keepdim=True)
            return to_g, -grad * e * g.sum(ctx.dim, keepdim=True), None, None
        # y * (g - sum(g * y))
        of_y = (grad * y).sum(ctx.dim, keepdim=True)
        to_y = grad * (g - (g * y).sum(ctx.dim, keepdim=True)) - of_y * g
        return grad * y - of_y * y, to_y, None, None

    forward.register_autograd(grads, setup_context=save)
    backward.register_autograd(grads_again, setup_context=save_again)


_register(softmax, softmax_backward, logarithm=False)
_register(log_softmax, log_softmax_backward, logarithm=True)


def _register_vmap(function: Kernel[..., Any], tensors: int) -> None:
    @function.register_vmap
    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, int]:
        given, (dim, *rest) = args[:tensors], args[tensors:]
        moved = [batch_first(t, d, info.batch_size) for t, d in zip(given, in_dims, strict=False)]
        if moved[0].dim() == 1:  # each item is one number
            return function.op(*(t[:, None] for t in moved), -1, *rest)[:, 0], 0
        return function.op(*moved, dim if dim < 0 else dim + 1, *rest), 0


for _function, _tensors in (
    (softmax, 1),
    (log_softmax, 1),
    (softmax_backward, 2),
    (log_softmax_backward, 2),
):
    _register_vmap(_function, _tensors)
