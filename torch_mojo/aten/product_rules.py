"""Decompositions of what sums products."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_mojo.aten.rules import Rules, served

aten = torch.ops.aten
RULES = Rules()


@RULES.add(aten.addbmm.default)
def addbmm(
    self: torch.Tensor,
    batch1: torch.Tensor,
    batch2: torch.Tensor,
    *,
    beta: Any = 1,
    alpha: Any = 1,
) -> torch.Tensor:
    """Return `beta * self + alpha * (batch1 @ batch2).sum(0)`, without self if beta is 0.

    Shapes: self broadcasts to (n, m); batch1 (b, n, k), batch2 (b, k, m).
    """
    if not served(self, batch1, batch2) or not self.dtype.is_floating_point:
        return NotImplemented
    b, n, k = batch1.shape
    # the sum over the batch is part of one product's sum
    left = batch1.transpose(0, 1).reshape(n, b * k)
    return aten.addmm(self, left, batch2.reshape(b * k, batch2.shape[2]), beta=beta, alpha=alpha)


@RULES.add(aten._trilinear.default)
def trilinear(
    i1: torch.Tensor,
    i2: torch.Tensor,
    i3: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> torch.Tensor:
    """Return the sum over some dimensions of the product of three tensors, each with dimensions of 1 put in."""
    if not served(i1, i2, i3) or i1.dtype != i2.dtype or i1.dtype != i3.dtype:
        return NotImplemented
    rank = i1.dim() + len(expand1)
    letters = "".join(chr(ord("a") + d) for d in range(rank))

    def of(without: Sequence[int]) -> str:
        return "".join(letters[d] for d in range(rank) if d not in without)

    # two products of pairs, where the definition makes a tensor of all the dimensions
    return torch.einsum(f"{of(expand1)},{of(expand2)},{of(expand3)}->{of(sumdim)}", i1, i2, i3)
