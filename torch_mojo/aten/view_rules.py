"""Decompositions of operators that move elements."""

from collections.abc import Sequence

import torch

from torch_mojo.aten import indexing
from torch_mojo.aten.rules import Rules, served

aten = torch.ops.aten
RULES = Rules()


@RULES.add(aten.flip.default)
def flip(self: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """Return self with dimensions the other way round."""
    if not served(self):
        return NotImplemented
    for dim in dims if self.dim() else ():
        last = self.shape[dim] - 1
        places = last - torch.arange(last + 1, device=self.device)
        self = indexing.index_select(self, dim, places)
    return self.clone() if not dims or not self.dim() else self
