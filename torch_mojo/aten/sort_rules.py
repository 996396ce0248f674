"""Decompositions of what sorts."""

import torch

from torch_mojo import functional
from torch_mojo.aten import sorting
from torch_mojo.aten.rules import Rules, in_range, served

aten = torch.ops.aten
RULES = Rules()


@RULES.add(aten.sort.default)
def sort(
    self: torch.Tensor, dim: int = -1, descending: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the elements in order, and their places."""
    if not served(self) or not in_range(dim, self):
        return NotImplemented
    return sorting.sort(self, dim, descending)


@RULES.add(aten.sort.stable)
def sort_stable(
    self: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the elements in order, and their places."""
    return sort(self, dim, descending)


@RULES.add(aten.argsort.default)
def argsort(self: torch.Tensor, dim: int = -1, descending: bool = False) -> torch.Tensor:
    """Return the places of the elements in order."""
    found = sort(self, dim, descending)
    return found if found is NotImplemented else found[1]


@RULES.add(aten.argsort.stable)
def argsort_stable(
    self: torch.Tensor, *, stable: bool, dim: int = -1, descending: bool = False
) -> torch.Tensor:
    """Return the places of the elements in order."""
    return argsort(self, dim, descending)


@RULES.add(aten.msort.default)
def msort(self: torch.Tensor) -> torch.Tensor:
    """Return the elements in order along the first dimension."""
    found = sort(self, 0)
    return found if found is NotImplemented else found[0]


@RULES.add(aten.topk.default)
def topk(
    self: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k largest or smallest elements, and their places."""
    # a kernel's number cannot depend on a size
    if not served(self) or not in_range(dim, self) or isinstance(k, torch.SymInt):
        return NotImplemented
    return functional.topk(self, k, dim, largest, sorted)


@RULES.add(aten.kthvalue.default)
def kthvalue(
    self: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the element that is the k-th in order, from 1, and its place."""
    if not served(self) or not in_range(dim, self) or self.dim() == 0:
        return NotImplemented
    values, indices = sorting.sort(self, dim)
    if keepdim:
        return values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return values.select(dim, k - 1), indices.select(dim, k - 1)
