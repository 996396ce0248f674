"""The k largest or smallest elements."""

from typing import Any

import torch

from torch_mojo.functional.builtin import kernel


@kernel()
def topk(
    input: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k largest (or smallest) elements along a dimension and where they were, as `torch.topk`.

    nan is larger than all else. Of equal elements the first ones are taken, and they come in their order: the result
    is the same on every device, which torch does not promise.

    Args:
        input: any strides; a number dtype or bool.
        k: how many, at most the size of the dimension.
        dim: the dimension.
        largest: False for the smallest.
        sorted: torch's argument: the results are always sorted.

    Returns:
        (values, indices), best first; their size along dim is k. A k near the size is better served by torch.sort.
    """
    rank = max(input.dim(), 1)
    if dim < -rank or dim >= rank:
        raise IndexError(
            f"[mojo::topk] dim={dim} is out of range: input has {input.dim()} dimension(s).\n"
            f"Pass a dim from {-rank} to {rank - 1}."
        )
    size = input.shape[dim] if input.dim() else 1
    if k < 0 or k > size:
        raise ValueError(
            f"[mojo::topk] k={k}, and dimension {dim} has {size} element(s).\nPass a k from 0 to {size}."
        )
    if input.dtype.is_complex:
        raise TypeError("[mojo::topk] input is complex: it has no order.\nTake its absolute value.")
    axis = dim if dim >= 0 else dim + input.dim()
    shape = [k if d == axis else n for d, n in enumerate(input.shape)]
    if input.dim() == 0 and k == 0:
        shape = [0]
    return (
        torch.empty(shape, dtype=input.dtype, device=input.device),
        torch.empty(shape, dtype=torch.int64, device=input.device),
    )


@kernel(file="topk")
def topk_backward(
    grad_output: torch.Tensor, indices: torch.Tensor, dim: int, size: int
) -> torch.Tensor:
    """Return the gradient of topk's input: each gradient where its value came from, zero elsewhere.

    Args:
        grad_output: the gradient of the values, any strides.
        indices: the second result of topk.
        dim: the dimension; size: the input's size along it.
    """
    axis = dim if dim >= 0 else dim + grad_output.dim()
    shape = [size if d == axis else n for d, n in enumerate(grad_output.shape)]
    return torch.empty(shape, dtype=grad_output.dtype, device=grad_output.device)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1])
    ctx.dim, ctx.size = inputs[2], inputs[0].shape[inputs[2]] if inputs[0].dim() else 1


def _grads(ctx: Any, grad: torch.Tensor | None, of_indices: object) -> tuple[Any, ...]:
    if grad is None:
        return None, None, None, None, None
    (indices,) = ctx.saved_tensors
    return topk_backward(grad, indices, ctx.dim, ctx.size), None, None, None, None


def _save_indices(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.dim = inputs[2]


def _gather(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    (indices,) = ctx.saved_tensors
    return grad.gather(ctx.dim, indices), None, None, None


topk.register_autograd(_grads, setup_context=_save)
topk_backward.register_autograd(_gather, setup_context=_save_indices)


@topk.register_vmap
def _batched(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, tuple[int, int]]:
    input, k, dim, *rest = (*args, -1)[: max(len(args), 3)]
    moved = input.movedim(in_dims[0], 0)
    if moved.dim() == 1:  # each item is one number
        values, indices = topk.op(moved[:, None], k, 1, *rest)
        return ((values, indices) if k == 0 else (values[:, 0], indices[:, 0])), (0, 0)
    return topk.op(moved, k, dim if dim < 0 else dim + 1, *rest), (0, 0)
