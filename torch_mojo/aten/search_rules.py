"""Decompositions of searches in sorted rows."""

import torch

from torch_mojo.aten import indexing, searching
from torch_mojo.aten.rules import Rules, served

aten = torch.ops.aten
RULES = Rules()


@RULES.add(aten.searchsorted.Tensor)
def searchsorted(
    sorted_sequence: torch.Tensor,
    self: torch.Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return where elements belong in sorted rows."""
    if not served(sorted_sequence, self) or self.dtype != sorted_sequence.dtype:
        return NotImplemented
    if self.dtype == torch.bool or sorted_sequence.dim() == 0 or (right and side == "left"):
        return NotImplemented
    if sorter is not None:
        sorted_sequence = indexing.gather(sorted_sequence, -1, sorter)
    if sorted_sequence.dim() > 1:
        rows, given = sorted_sequence.flatten(0, -2), self.flatten(0, -2)
    else:
        rows, given = sorted_sequence.unsqueeze(0), self.reshape(1, -1)
    dtype = torch.int32 if out_int32 else torch.int64
    found = searching.searchsorted(rows, given, int(right or side == "right"), dtype)
    return found.reshape(self.shape)


@RULES.add(aten.bucketize.Tensor)
def bucketize(
    self: torch.Tensor,
    boundaries: torch.Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
) -> torch.Tensor:
    """Return between which boundaries elements lie."""
    return searchsorted(boundaries, self, out_int32=out_int32, right=right)
