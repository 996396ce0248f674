"""RMS norm and layer norm."""

from typing import Any

import torch

from torch_mojo.devices import on_host
from torch_mojo.dtypes import accumulated, short
from torch_mojo.functional.builtin import kernel


def _check(
    name: str,
    input: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None = None,
) -> None:
    count = len(normalized_shape)
    if not input.dtype.is_floating_point:
        raise TypeError(
            f"[mojo::{name}] input has dtype {short(input.dtype)}.\nConvert it, for example to float32."
        )
    if (
        count == 0
        or count > input.dim()
        or any(a != b for a, b in zip(input.shape[-count:], normalized_shape, strict=True))
    ):
        raise ValueError(
            f"[mojo::{name}] normalized_shape={list(normalized_shape)} is not the end of input's shape "
            f"{list(input.shape)}.\nPass its last dimensions, at least one."
        )
    for of, given in (("weight", weight), ("bias", bias)):
        if given is not None and (
            given.dim() != count
            or any(a != b for a, b in zip(given.shape, normalized_shape, strict=True))
        ):
            raise ValueError(
                f"[mojo::{name}] {of} has shape {list(given.shape)}, and normalized_shape is "
                f"{list(normalized_shape)}.\nMake them equal."
            )
    if count > 1 and weight is None and bias is None:
        raise NotImplementedError(
            f"[mojo::{name}] normalizes {count} dimensions, {list(normalized_shape)}, without a weight.\n"
            "Pass weight=torch.ones(normalized_shape), or flatten those dimensions."
        )


# Bodies are traced, their helpers are not: what makes tensors stands in the bodies.


def _partial(
    input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None = None
) -> tuple[int, int, int]:
    """Return room for the sums over groups of rows: 32 on the CPU, as many as keep all of a GPU busy there."""
    like = bias if weight is None else weight
    columns = input.shape[-1] if like is None else like.numel()
    parts = 1056 if columns <= 1024 else 528 if columns <= 2048 else 264
    parts = 32 if on_host(input.device) else parts
    return parts, (weight is not None) + (bias is not None), columns


@kernel(file="norm", autocast=torch.float32, leading=("input",))
def rms_norm(
    input: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """Return input / sqrt(mean(input^2) + eps) * weight, as `torch.nn.functional.rms_norm`.

    Args:
        input: any strides; floating-point.
        normalized_shape: its last dimensions, over which the mean is taken. More than one need a weight.
        weight: of that shape, any floating-point dtype; default: none.
        eps: default: the machine epsilon of what is computed in, float32 (float64 for float64).

    Returns:
        the shape and dtype of input. Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.
    """
    _check("rms_norm", input, normalized_shape, weight)
    return torch.empty(input.shape, dtype=input.dtype, device=input.device)


@kernel(file="norm")
def rms_norm_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float | None = None,
    grad_sum: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of rms_norm, of add_rms_norm with `grad_sum`.

    Args:
        grad_output: the gradient of the output; shape and dtype of input, any strides.
        input: what was normalized; add_rms_norm's sum.
        weight, eps: as in the forward call.
        grad_sum: the gradient of add_rms_norm's second output, which is added to that of the input.

    Returns:
        the gradients of input and weight (empty without one), and the sums over groups of rows that the latter
        was made of: its order is fixed, and the same for any number of threads.
    """
    device = input.device
    like = input.new_empty((0,)) if weight is None else weight
    return (
        torch.empty(input.shape, dtype=input.dtype, device=device),
        torch.empty(like.shape, dtype=like.dtype, device=device),
        torch.empty(_partial(input, weight), dtype=accumulated(input.dtype), device=device),
    )


@kernel(file="norm", autocast=torch.float32, leading=("x", "residual"))
def add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the RMS norm of x + residual over the last dimensions, and the sum.

    Args:
        x, residual: one shape and dtype, any strides; floating-point.
        weight: its shape is the last dimensions, over which the mean is taken; default: none, and the last one.
        eps: as in rms_norm.

    Returns:
        (normalized, x + residual). The norm is that of the sum as it is returned.
    """
    if residual.dim() != x.dim() or any(
        a != b for a, b in zip(x.shape, residual.shape, strict=True)
    ):
        raise ValueError(
            f"[mojo::add_rms_norm] x has shape {list(x.shape)}, residual {list(residual.shape)}.\n"
            "Expand one to the other's shape."
        )
    count = 1 if weight is None else weight.dim()
    _check("add_rms_norm", x, list(x.shape[-count:]) if count else [], weight)
    return (
        torch.empty(x.shape, dtype=x.dtype, device=x.device),
        torch.empty(x.shape, dtype=x.dtype, device=x.device),
    )


@kernel(file="norm", autocast=torch.float32, leading=("input",))
def layer_norm(
    input: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Return (input - mean) / sqrt(variance + eps) * weight + bias, as `torch.nn.functional.layer_norm`.

    Args:
        input: any strides; floating-point.
        normalized_shape: its last dimensions, over which mean and variance (biased) are taken. More than one need
            a weight or a bias.
        weight, bias: of that shape, any floating-point dtype; default: none.
        eps: added to the variance.

    Returns:
        the shape and dtype of input. Ba, Kiros and Hinton, Layer Normalization, 2016.
    """
    _check("layer_norm", input, normalized_shape, weight, bias)
    return torch.empty(input.shape, dtype=input.dtype, device=input.device)


@kernel(file="norm")
def layer_norm_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of layer_norm.

    Args:
        grad_output: the gradient of the output; shape and dtype of input, any strides.
        input, weight, bias, eps: as in the forward call.

    Returns:
        the gradients of input, weight and bias (empty without one), and the sums over groups of rows that the
        latter were made of: their order is fixed, and the same for any number of threads.
    """
    device = input.device
    none = input.new_empty((0,))
    like, like_bias = none if weight is None else weight, none if bias is None else bias
    return (
        torch.empty(input.shape, dtype=input.dtype, device=device),
        torch.empty(like.shape, dtype=like.dtype, device=device),
        torch.empty(like_bias.shape, dtype=like_bias.dtype, device=device),
        torch.empty(_partial(input, weight, bias), dtype=accumulated(input.dtype), device=device),
    )


def _save_rms(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    input, _, weight, eps = inputs
    ctx.save_for_backward(input, weight)
    ctx.eps = eps


def _rms_grads(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    input, weight = ctx.saved_tensors
    of_input, of_weight, _ = rms_norm_backward(grad, input, weight, ctx.eps)
    return of_input, None, None if weight is None else of_weight, None


def _save_sum(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    ctx.save_for_backward(output[1], inputs[2])
    ctx.eps = inputs[3]


def _sum_grads(ctx: Any, grad: torch.Tensor, grad_sum: torch.Tensor) -> tuple[Any, ...]:
    summed, weight = ctx.saved_tensors
    of_sum, of_weight, _ = rms_norm_backward(grad, summed, weight, ctx.eps, grad_sum)
    return of_sum, of_sum, None if weight is None else of_weight, None


def _save_layer(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    input, _, weight, bias, eps = inputs
    ctx.save_for_backward(input, weight, bias)
    ctx.eps = eps


def _layer_grads(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    input, weight, bias = ctx.saved_tensors
    found = layer_norm_backward(grad, input, weight, bias, ctx.eps)
    return (
        found[0],
        None,
        None if weight is None else found[1],
        None if bias is None else found[2],
        None,
    )


rms_norm.register_autograd(_rms_grads, setup_context=_save_rms)
add_rms_norm.register_autograd(_sum_grads, setup_context=_save_sum)
layer_norm.register_autograd(_layer_grads, setup_context=_save_layer)
