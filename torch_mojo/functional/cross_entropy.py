"""Cross entropy."""

from typing import Any

import torch

from torch_mojo.dtypes import accumulated, short
from torch_mojo.functional.builtin import composition, kernel

_REDUCTIONS = ("none", "mean", "sum")


def _check(
    input: torch.Tensor,
    labels: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: str,
    label_smoothing: float,
) -> None:
    name = "[mojo::cross_entropy]"
    if labels.dtype.is_floating_point:
        raise NotImplementedError(
            f"{name} target has dtype {short(labels.dtype)}: class probabilities are not implemented.\n"
            "Pass class numbers (int64), or use torch.nn.functional.cross_entropy."
        )
    if labels.dtype not in (torch.int64, torch.int32, torch.uint8):
        raise TypeError(f"{name} target has dtype {short(labels.dtype)}.\nPass int64.")
    if not input.dtype.is_floating_point:
        raise TypeError(f"{name} input has dtype {short(input.dtype)}.\nPass logits.")
    if input.dim() == 0:
        raise ValueError(f"{name} input has no dimensions.\nPass (C), (N, C) or (N, C, d1, ...).")
    rest = [*input.shape[:1], *input.shape[2:]] if input.dim() > 1 else []
    if labels.dim() != len(rest) or any(a != b for a, b in zip(labels.shape, rest, strict=True)):
        raise ValueError(
            f"{name} input has shape {list(input.shape)}, target {list(labels.shape)}.\n"
            "Pass input (N, C, d1, ...) and target (N, d1, ...), or (C) and ()."
        )
    classes = input.shape[1 if input.dim() > 1 else 0]
    if weight is not None and (weight.dim() != 1 or weight.shape[0] != classes):
        raise ValueError(
            f"{name} weight has shape {list(weight.shape)}, and there are {classes} classes.\n"
            "Pass one weight for each class."
        )
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{name} reduction={reduction!r}.\nPass 'none', 'mean' or 'sum'.")


@kernel(file="cross_entropy", autocast=torch.float32)
def cross_entropy_forward(
    input: torch.Tensor,
    labels: torch.Tensor,
    weight: torch.Tensor | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the loss of cross_entropy with what its gradient needs.

    Args:
        input, weight, ignore_index, reduction, label_smoothing: as for cross_entropy.
        labels: class numbers.

    Returns:
        the loss; log(sum(exp(input))) of each row, in float32 (float64 for float64); the rows' losses and weights
        (empty for "none"); the sums of the latter and of the weights of all classes.
    """
    _check(input, labels, weight, reduction, label_smoothing)
    wide = accumulated(input.dtype)
    device = input.device
    loss = torch.empty(
        labels.shape if reduction == "none" else (), dtype=input.dtype, device=device
    )
    rows = 0 if reduction == "none" else labels.numel()
    return (
        loss,
        torch.empty(labels.shape, dtype=wide, device=device),
        torch.empty((2, rows), dtype=wide, device=device),
        torch.empty((2,), dtype=wide, device=device),
    )


@kernel(file="cross_entropy")
def cross_entropy_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    labels: torch.Tensor,
    weight: torch.Tensor | None,
    lse: torch.Tensor,
    total: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> torch.Tensor:
    """Return the gradient of cross_entropy for its input.

    Args:
        grad_output: the gradient of the loss.
        lse, total: the second and the last result of cross_entropy_forward.
        input, labels, weight, ignore_index, reduction, label_smoothing: as in the forward call.

    Returns:
        shape and dtype of input; zero where the label is ignore_index.
    """
    return torch.empty(input.shape, dtype=input.dtype, device=input.device)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    input, labels, weight, *rest = inputs
    _, lse, terms, total = output
    ctx.mark_non_differentiable(lse, terms, total)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(input, labels, weight, lse, total)
    ctx.rest = rest


def _grads(ctx: Any, grad: torch.Tensor | None, *others: object) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * 6
    input, labels, weight, lse, total = ctx.saved_tensors
    found = cross_entropy_backward(grad, input, labels, weight, lse, total, *ctx.rest)
    return found, None, None, None, None, None


cross_entropy_forward.register_autograd(_grads, setup_context=_save)


@composition
def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Return the cross entropy of logits against class numbers, as `torch.nn.functional.cross_entropy`.

    The softmax is never written: the forward call reads the logits once, the backward call once more.

    Args:
        input: logits, (C), (N, C) or (N, C, d1, ...); any strides.
        target: class numbers, (), (N) or (N, d1, ...). On the CPU one out of range is an error; on a GPU its loss
            and gradient are nan. Class probabilities are refused.
        weight: one for each class; default: 1. It gets no gradient.
        ignore_index: targets that do not count.
        reduction: "none", "mean" (by the weights of the targets) or "sum".
        label_smoothing: in [0, 1], how much of each target goes evenly to all classes.

    Returns:
        the loss in the dtype of input. Sums are taken in float32 (float64 for float64), in a fixed order.
    """
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(
            f"[mojo::cross_entropy] label_smoothing={label_smoothing}.\nPass a number from 0 to 1."
        )
    return cross_entropy_forward(input, target, weight, ignore_index, reduction, label_smoothing)[0]
