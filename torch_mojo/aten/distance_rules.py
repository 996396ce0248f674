"""Decompositions of distances between rows, and of histograms."""

from typing import Any

import torch

from torch_mojo.aten import indexing, scattering
from torch_mojo.aten.rules import Rules, served, whole

aten = torch.ops.aten
RULES = Rules()
DOUBLES = (torch.float32, torch.float64)


def _norm(difference: torch.Tensor, p: float) -> torch.Tensor:
    """Return the p-norms of rows."""
    if p == 0:
        return (difference != 0).to(difference.dtype).sum(-1)
    size = difference.abs()
    if p == 1:
        return size.sum(-1)
    if p == 2:
        return (difference * difference).sum(-1).sqrt()
    if p == float("inf"):
        return size.amax(-1)
    return size.pow(p).sum(-1).pow(1 / p)


def _rows(x: torch.Tensor, *others: torch.Tensor) -> bool:
    return x.dtype in DOUBLES and served(x, *others) and all(t.dtype == x.dtype for t in others)


@RULES.add(aten._cdist_forward.default)
def cdist(x1: torch.Tensor, x2: torch.Tensor, p: float, compute_mode: int | None) -> torch.Tensor:
    """Return the distances of each row of one matrix to each of another."""
    if not _rows(x1, x2) or not whole(x1.shape[-1]) or x1.shape[-1] == 0:
        return NotImplemented
    return _norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


@RULES.add(aten._cdist_backward.default)
def cdist_backward(
    grad: torch.Tensor, x1: torch.Tensor, x2: torch.Tensor, p: float, cdist: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of those distances with respect to the first matrix."""
    if not _rows(x1, x2, grad, cdist):
        return NotImplemented
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    sign, size = difference.sign(), difference.abs()
    far, pull = cdist.unsqueeze(-1), grad.unsqueeze(-1)
    if p == 0:
        each = torch.zeros_like(difference)
    elif p == 1:
        each = pull * sign
    elif p == float("inf"):
        each = pull * sign * (size == far)
    else:
        share = (size / far).pow(p - 1)
        each = torch.where((far == 0) | (size == 0), 0.0, pull * sign * share)
    return each.sum(-2)


@RULES.add(aten._pdist_forward.default)
def pdist(self: torch.Tensor, p: float = 2) -> torch.Tensor:
    """Return the distances of each row to those behind it."""
    if not _rows(self) or not whole(*self.shape) or self.shape[0] < 2 or self.shape[1] == 0:
        return NotImplemented
    count = int(self.shape[0])
    first, second = torch.triu_indices(count, count, 1, device=self.device)
    rows = indexing.index_select(self, 0, first) - indexing.index_select(self, 0, second)
    return _norm(rows, p)


@RULES.add(aten.histc.default)
def histc(self: torch.Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> torch.Tensor:
    """Return how many elements lie in each of `bins` parts between two numbers."""
    if (
        not _rows(self)
        or not whole(bins)
        or not all(isinstance(v, (int, float)) for v in (min, max))
    ):
        return NotImplemented
    if min > max or (min == max and (min != 0 or not whole(*self.shape) or self.numel() == 0)):
        return NotImplemented
    x = self.reshape(-1)
    low: Any = float(min)
    high: Any = float(max)
    if min == max:
        low, high = x.amin(), x.amax()
        alike = low == high
        low, high = torch.where(alike, low - 1, low), torch.where(alike, high + 1, high)
    place = ((x - low) / (high - low) * bins).to(torch.int64).clamp(0, bins - 1)
    inside = ((x >= low) & (x <= high)).to(self.dtype)
    return scattering.index_add(self.new_zeros(bins), 0, place, inside)
