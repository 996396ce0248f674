"""Decompositions of what sums products."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_mojo.aten.indexing import NAMESPACE
from torch_mojo.aten.rules import INDICES, Rules, served
from torch_mojo.functional.builtin import kernel

aten = torch.ops.aten
RULES = Rules()


@kernel(namespace=NAMESPACE, file="aten_grouped", kernel="aten_grouped_mm")
def grouped_matmul(
    input: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor
) -> torch.Tensor:
    """Return each row times the matrix of its group, summed in float32 (float64 in float64).

    Args:
        input: (rows, inner), contiguous; the rows of a group side by side.
        weight: (groups, inner, columns), contiguous, of the dtype of input.
        offsets: (groups,), int32 or int64: where each group ends. Rows behind the last end are zero.

    Returns:
        (rows, columns).
    """
    return torch.empty(input.shape[0], weight.shape[2], dtype=input.dtype, device=input.device)


@RULES.add(aten._grouped_mm.default)
def grouped_mm(
    self: torch.Tensor,
    mat2: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return rows times the matrices of their groups."""
    known = offs is not None and bias is None and out_dtype in (None, self.dtype)
    if not known or self.dim() != 2 or mat2.dim() != 3 or self.dtype != mat2.dtype:
        return NotImplemented
    assert offs is not None
    if not served(self, mat2, offs) or not self.is_floating_point() or offs.dtype not in INDICES:
        return NotImplemented
    return grouped_matmul(self.contiguous(), mat2.contiguous(), offs)


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
