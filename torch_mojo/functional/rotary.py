"""Rotary position embedding."""

from typing import Any

import torch

from torch_mojo.batching import batch_first
from torch_mojo.dtypes import accumulated
from torch_mojo.functional.builtin import kernel, summed_to

_BACKWARD = "rotary_embedding_backward"


def _check(name: str, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Refuse shapes that do not fit."""
    if x.dim() == 0 or cos.dim() == 0 or cos.dim() > x.dim():
        raise ValueError(
            f"[mojo::{name}] x has {x.dim()} dimension(s), cos has {cos.dim()}.\n"
            "Pass x with at least one dimension, and cos and sin with no more than x."
        )
    if x.shape[-1] % 2 != 0:
        raise ValueError(
            f"[mojo::{name}] the last dimension of x is {x.shape[-1]}, which has no halves.\n"
            "Pass an even number of features."
        )
    if cos.dim() != sin.dim() or any(a != b for a, b in zip(cos.shape, sin.shape, strict=True)):
        raise ValueError(
            f"[mojo::{name}] cos has shape {tuple(cos.shape)}, sin {tuple(sin.shape)}.\n"
            "Pass the same shape twice."
        )
    size = cos.shape[-1]
    if (size != x.shape[-1] and 2 * size != x.shape[-1]) or any(
        c != 1 and c != n for c, n in zip(cos.shape[-2::-1], x.shape[-2::-1], strict=False)
    ):
        raise ValueError(
            f"[mojo::{name}] cos has shape {tuple(cos.shape)}, x {tuple(x.shape)}.\n"
            "Make cos and sin broadcastable to x, with all or half of its features: x.unsqueeze or"
            " cos.unsqueeze(HEADS) may be missing."
        )
    if not x.is_floating_point() or not cos.is_floating_point() or cos.dtype != sin.dtype:
        raise TypeError(
            f"[mojo::{name}] x has dtype {x.dtype}, cos {cos.dtype}, sin {sin.dtype}.\n"
            "Pass floating-point tensors, cos and sin of one dtype."
        )


@kernel(constants={"transposed": False})
def rotary_embedding(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return `x * cos + rotate_half(x) * sin`, where `rotate_half(x)` is `cat(-x[..., D/2:], x[..., :D/2])`.

    Args:
        x: (..., D), D even, floating-point; (batch, heads, seq, D) and (batch, seq, heads, D) alike.
        cos, sin: one shape, broadcastable to that of x, with D or D/2 features; D/2 are used for both halves.
            For x (batch, heads, seq, D) that is (seq, D) or (batch, 1, seq, D), for x (batch, seq, heads, D)
            (seq, 1, D). They may be more precise than x: all is computed in float32 (float64 for float64).

    Returns:
        the shape and dtype of x.

    Raises:
        ValueError: if the shapes do not fit. TypeError: if dtypes do not.

    Source: RoFormer (Su et al., 2021), in the half-split arrangement of Llama models.
    """
    _check("rotary_embedding", x, cos, sin)
    return torch.empty_like(x)


@kernel(kernel="rotary_embedding", file="rotary_embedding", constants={"transposed": True})
def rotary_embedding_backward(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of `rotary_embedding` with respect to its x, of the gradient `x` of its result.

    Args:
        x: the incoming gradient, (..., D).
        cos, sin: as they were given to `rotary_embedding`.

    Returns:
        the shape and dtype of x: `x * cos` plus the transpose of `rotate_half`, applied to `x * sin`.
    """
    _check(_BACKWARD, x, cos, sin)
    return torch.empty_like(x)


def _rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _summed(product: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Sum a gradient of x's shape to that of cos."""
    if like.shape[-1] != product.shape[-1]:
        first, second = product.chunk(2, dim=-1)
        product = first + second
    return summed_to(product, like)


def _save(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    x, cos, sin = inputs
    needs = cos.requires_grad or sin.requires_grad
    ctx.save_for_backward(x if needs else None, cos, sin)


def _tables_gradient(
    ctx: Any, g: torch.Tensor, x: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return the gradients of cos and sin, where g belongs to the result and x to the argument."""
    if x is None or not any(ctx.needs_input_grad[1:]):
        return None, None
    wide = accumulated(x.dtype)
    g, x = g.to(wide), x.to(wide)
    return _summed(g * x, cos), _summed(g * _rotate_half(x), sin)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, cos, sin = ctx.saved_tensors
    needed = ctx.needs_input_grad[0]
    grad_x = rotary_embedding_backward(grad, cos, sin) if needed else None
    return (grad_x, *_tables_gradient(ctx, grad, x, cos, sin))


def _backward_of_backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, cos, sin = ctx.saved_tensors
    needed = ctx.needs_input_grad[0]
    grad_x = rotary_embedding(grad, cos, sin) if needed else None
    if x is None:
        return grad_x, None, None
    return (grad_x, *_tables_gradient(ctx, x, grad, cos, sin))


rotary_embedding.register_autograd(_backward, setup_context=_save)
rotary_embedding_backward.register_autograd(_backward_of_backward, setup_context=_save)


def _batched(function: Any) -> Any:
    """Return a vmap rule: the batch goes first, and behind it cos and sin get the dimensions they lack."""

    def rule(info: Any, in_dims: Any, x: Any, cos: Any, sin: Any) -> tuple[torch.Tensor, int]:
        dim = in_dims[0]
        x = batch_first(x, dim, info.batch_size)
        tables = []
        for table, d in zip((cos, sin), in_dims[1:], strict=True):
            if d is not None:
                table = table.movedim(d, 0)
                table = table[(slice(None), *[None] * (x.dim() - table.dim()))]
            elif any(e is not None for e in in_dims[1:]):  # the other one has a batch
                table = table[(None,) * (x.dim() - table.dim())].expand(
                    info.batch_size, *[-1] * (x.dim() - 1)
                )
            tables.append(table)
        return function(x, *tables), 0

    return rule


rotary_embedding.register_vmap(_batched(rotary_embedding))
rotary_embedding_backward.register_vmap(_batched(rotary_embedding_backward))
