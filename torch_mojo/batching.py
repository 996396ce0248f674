"""vmap rules for kernels."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

Rule = Callable[..., Any]


def _is_batched(dim: object) -> bool:
    return isinstance(dim, int)


def batch_first(tensor: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    """Return a tensor with its batch dimension first, expanded to one of `size` if it has none."""
    return tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def pointwise(op: Callable[..., Any]) -> Rule:
    """Return a rule for an operator whose tensors broadcast: batch dims go first, ranks are made equal behind them."""

    def batched(info: Any, in_dims: Sequence[Any], *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        del info
        rank = max(
            a.dim() - _is_batched(d)
            for a, d in zip(args, in_dims, strict=True)
            if isinstance(a, torch.Tensor)
        )
        moved = []
        for value, dim in zip(args, in_dims, strict=True):
            if isinstance(value, torch.Tensor) and _is_batched(dim):
                value = value.movedim(dim, 0)
                value = value[(slice(None), *[None] * (rank + 1 - value.dim()))]
            moved.append(value)
        return _at_front(op(*moved, **kwargs))

    return batched


def rule(op: Callable[..., Any], names: Sequence[str], leading: Sequence[str]) -> Rule:
    """Return a rule for any operator.

    Args:
        op: the operator.
        names: its arguments.
        leading: those that may have more leading dimensions. If all batched arguments are among them, one call
            does; the unbatched ones among them are expanded. Else there is one call for each item of the batch.
    """

    def batched(info: Any, in_dims: Sequence[Any], *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        named = list(zip(names, args, in_dims, strict=False))
        if not all(n in leading for n, _, d in named if _is_batched(d)):
            return _at_front(_loop(op, info.batch_size, in_dims, args, kwargs))
        moved = []
        for name, value, dim in named:
            if isinstance(value, torch.Tensor) and name in leading:
                value = batch_first(value, dim, info.batch_size)
            moved.append(value)
        return _at_front(op(*moved, **kwargs))

    return batched


def _loop(
    op: Callable[..., Any],
    size: int,
    in_dims: Sequence[Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    results = [
        op(
            *(a.select(d, i) if _is_batched(d) else a for a, d in zip(args, in_dims, strict=True)),
            **kwargs,
        )
        for i in range(size)
    ]
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results)
    return tuple(torch.stack(r) for r in zip(*results, strict=True))


def _at_front(result: Any) -> tuple[Any, Any]:
    return result, 0 if isinstance(result, torch.Tensor) else (0,) * len(result)
