"""Sorting."""

import torch

from torch_mojo.aten.indexing import NAMESPACE
from torch_mojo.functional.builtin import kernel


@kernel(namespace=NAMESPACE, file="aten_sort", kernel="aten_sort")
def sort(
    input: torch.Tensor, dim: int = -1, descending: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the elements along a dimension in order and where they were, as `torch.sort(stable=True)`.

    nan is larger than all else, and -0.0 is 0.0. Equal elements stay in their order, also descending.

    Args:
        input: any strides; a number dtype or bool.
        dim: the dimension, of fewer than 2**32 elements.
        descending: the largest first.
    """
    return (
        torch.empty(input.shape, dtype=input.dtype, device=input.device),
        torch.empty(input.shape, dtype=torch.int64, device=input.device),
    )
