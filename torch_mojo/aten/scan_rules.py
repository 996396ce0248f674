"""Decompositions of running results, medians and modes."""

from collections.abc import Callable
from typing import Any

import torch

from torch_mojo.aten import scanning, sorting
from torch_mojo.aten.rules import Rules, in_range, served

aten = torch.ops.aten
RULES = Rules()
Pair = tuple[torch.Tensor, torch.Tensor]


_COMPLEX = (torch.complex32, torch.complex64, torch.complex128)


def running(of: Callable[[torch.Tensor, int], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a rule for running sums or products."""

    def rule(self: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Return running results, of integers in int64."""
        integral = not self.dtype.is_floating_point and not self.dtype.is_complex
        wanted = dtype or (torch.int64 if integral else self.dtype)
        if not served(self) or not in_range(dim, self) or wanted in (torch.bool, *_COMPLEX):
            return NotImplemented
        return of(self.to(wanted), dim)

    return rule


RULES.add(aten.cumprod.default)(running(scanning.cumprod))


@RULES.add(aten.logcumsumexp.default)
def logcumsumexp(self: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the running logarithm of summed exponentials."""
    if not served(self) or not in_range(dim, self) or not self.dtype.is_floating_point:
        return NotImplemented
    return scanning.logcumsumexp(self, dim)


def _extreme(of: Callable[..., Pair]) -> Callable[..., Pair]:
    def rule(self: torch.Tensor, dim: int) -> Pair:
        """Return running extremes and their places."""
        if not served(self) or not in_range(dim, self):
            return NotImplemented
        return of(self, dim)

    return rule


RULES.add(aten.cummax.default)(_extreme(scanning.cummax))
RULES.add(aten.cummin.default)(_extreme(scanning.cummin))


def _from_sorted(of: Callable[..., Pair]) -> Callable[..., Pair]:
    def rule(self: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Pair:
        """Return what stands in sorted rows, and its place."""
        if not served(self) or not in_range(dim, self) or self.dim() == 0:
            return NotImplemented
        value, index = of(*sorting.sort(self, dim), dim)
        return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))

    return rule


def _of_all(of: Callable[..., Pair]) -> Callable[..., Any]:
    def rule(self: torch.Tensor) -> torch.Tensor:
        """Return the median of all elements."""
        if not served(self):
            return NotImplemented
        return of(*sorting.sort(self.reshape(-1), 0), 0)[0].reshape(())

    return rule


RULES.add(aten.median.dim)(_from_sorted(scanning.median_of_sorted))
RULES.add(aten.nanmedian.dim)(_from_sorted(scanning.nanmedian_of_sorted))
RULES.add(aten.mode.default)(_from_sorted(scanning.mode_of_sorted))
RULES.add(aten.median.default)(_of_all(scanning.median_of_sorted))
RULES.add(aten.nanmedian.default)(_of_all(scanning.nanmedian_of_sorted))
