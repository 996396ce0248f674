"""How a decomposition is written: a function with the operator's signature, filed under its overloads."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_mojo import torch_private
from torch_mojo.dtypes import TO_MOJO

Rule = Callable[..., Any]

INDICES = (torch.int32, torch.int64)
HALVES = (torch.float16, torch.bfloat16)


class Rules(dict[torch._ops.OpOverload, Rule]):
    """Decompositions by overload."""

    def add(self, *overloads: torch._ops.OpOverload) -> Callable[[Rule], Rule]:
        """Return a decorator that files a decomposition under these overloads."""

        def file(rule: Rule) -> Rule:
            for overload in overloads:
                assert overload not in self, f"{overload} has two decompositions"
                self[overload] = rule
            return rule

        return file


def served(*tensors: torch.Tensor) -> bool:
    """Tell whether the kernels take these tensors: their dtypes, all on one device."""
    return all(t.dtype in TO_MOJO and t.device == tensors[0].device for t in tensors)


def at_least_1d(tensor: torch.Tensor) -> torch.Tensor:
    """Return a 0-d tensor as one element in one dimension."""
    return tensor.reshape(1) if tensor.dim() == 0 else tensor


def in_range(dim: int, tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has this dimension; a 0-d one has 0 and -1."""
    rank = max(tensor.dim(), 1)
    return -rank <= dim < rank


def number(value: Any, like: torch.Tensor) -> torch.Tensor:
    """Return a number as a 0-d tensor of the dtype of another."""
    return torch.full((), value, dtype=like.dtype, device=like.device)


def whole(*values: Any) -> bool:
    """Tell whether numbers and lists of numbers are known: a kernel's number cannot depend on a size."""
    flat = [v for value in values for v in (value if isinstance(value, Sequence) else [value])]
    return all(isinstance(v, int) for v in flat)


def three(values: Sequence[int], dims: int, fill: int) -> list[int]:
    """Return the numbers of 1 to 3 dimensions, or one for all of them, as those of volumes."""
    given = list(values) * dims if len(values) == 1 else list(values)
    return [fill] * (3 - dims) + given


def volume(x: torch.Tensor, dims: int) -> torch.Tensor:
    """Return (C, ...) or (N, C, ...) with 1 to 3 dimensions behind as (N, C, D, H, W)."""
    x = x if x.dim() == dims + 2 else x.unsqueeze(0)
    for _ in range(3 - dims):
        x = x.unsqueeze(2)
    return x


def of_volume(x: torch.Tensor, dims: int, like: torch.Tensor) -> torch.Tensor:
    """Return (N, C, D, H, W) with the dimensions that another had before `volume`."""
    for _ in range(3 - dims):
        x = x.squeeze(2)
    return x if like.dim() == dims + 2 else x.squeeze(0)


def laid_out(x: torch.Tensor, *like: torch.Tensor) -> torch.Tensor:
    """Return a result in the memory format of the first input that has one of its own."""
    found = [torch_private.suggest_memory_format(t) for t in like]
    own = [f for f in found if f is not torch.contiguous_format]
    return x.contiguous(memory_format=own[0] if own else torch.contiguous_format)
