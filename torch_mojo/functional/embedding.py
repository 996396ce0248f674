"""The gradient of an embedding."""

from typing import Any

import torch

from torch_mojo.functional.builtin import composition, kernel

_FEW = 16384  # indices that a GPU compares with each other in less time than torch sorts them


@kernel(file="embedding")
def embedding_sum(
    grad_output: torch.Tensor,
    sorted: torch.Tensor,
    order: torch.Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> torch.Tensor:
    """Sum the rows that belong to each number.

    Args:
        grad_output: (..., D), any strides.
        sorted: the number of each row, in order; order: where it stood before, so that order[i] is its row.
        num_weights: how many numbers there are.
        padding_idx: the number whose sum stays zero; -1 for none.
        scale_grad_by_freq: whether to return means instead of sums.

    Returns:
        (num_weights, D). Rows are added in float32 (float64 for float64), in the order given.
    """
    return torch.empty(
        (num_weights, grad_output.shape[-1]), dtype=grad_output.dtype, device=grad_output.device
    )


@kernel(file="embedding")
def embedding_sum_few(
    grad_output: torch.Tensor,
    indices: torch.Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what `embedding_dense_backward` does, for so few indices that each is compared with all others.

    Args:
        grad_output, indices, num_weights, padding_idx, scale_grad_by_freq: as for `embedding_dense_backward`.

    Returns:
        (num_weights, D); the indices in order; where each stood before.
    """
    count = indices.numel()
    device = grad_output.device
    return (
        torch.empty((num_weights, grad_output.shape[-1]), dtype=grad_output.dtype, device=device),
        torch.empty((count,), dtype=torch.int64, device=device),
        torch.empty((count,), dtype=torch.int64, device=device),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    grad_output, numbers, order, _, padding, scale = inputs
    ctx.save_for_backward(numbers, order)
    ctx.shape, ctx.padding, ctx.scale = grad_output.shape, padding, scale


def _rows(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    """Return the rows of a gradient that belong to the numbers, where these were."""
    numbers, order = ctx.saved_tensors
    rows = grad[numbers].masked_fill((numbers == ctx.padding)[:, None], 0)
    if ctx.scale:
        rows = rows / numbers.bincount(minlength=grad.shape[0])[numbers][:, None]
    found = torch.empty_like(rows)
    found[order] = rows
    return found.reshape(ctx.shape)


def _grads(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    return _rows(ctx, grad), None, None, None, None, None


def _save_few(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    grad_output, _, _, padding, scale = inputs
    _, numbers, order = output
    ctx.mark_non_differentiable(numbers, order)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(numbers, order)
    ctx.shape, ctx.padding, ctx.scale = grad_output.shape, padding, scale


def _grads_few(ctx: Any, grad: torch.Tensor | None, *others: object) -> tuple[Any, ...]:
    return None if grad is None else _rows(ctx, grad), None, None, None, None


embedding_sum.register_autograd(_grads, setup_context=_save)
embedding_sum_few.register_autograd(_grads_few, setup_context=_save_few)


@composition
def embedding_dense_backward(
    grad_output: torch.Tensor,
    indices: torch.Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> torch.Tensor:
    """Return the gradient of an embedding's weight, as `aten.embedding_dense_backward`.

    The indices are sorted (stable), by torch unless a GPU has few of them, and the rows of each are added in their
    order, in float32: the result is deterministic on every device. There are no atomic additions.

    Args:
        grad_output: the gradient of the embedding, indices' shape and D more.
        indices: any shape, integers in [0, num_weights). On the CPU others are an error; on a GPU they are left out.
        num_weights: rows of the weight.
        padding_idx: the row without a gradient; -1 for none.
        scale_grad_by_freq: whether to divide each row by how often it was looked up.

    Returns:
        (num_weights, D), dtype of grad_output.
    """
    if grad_output.shape[:-1] != indices.shape:
        raise ValueError(
            f"[mojo::embedding_dense_backward] grad_output has shape {list(grad_output.shape)}, indices "
            f"{list(indices.shape)}.\nPass one row for each index."
        )
    if indices.device.type == "cuda" and indices.numel() <= _FEW and num_weights < 2**31 - 1:
        few = embedding_sum_few(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)
        return few[0]
    numbers, order = indices.reshape(-1).long().sort(stable=True)
    return embedding_sum(grad_output, numbers, order, num_weights, padding_idx, scale_grad_by_freq)
