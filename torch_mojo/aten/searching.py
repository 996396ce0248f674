"""Where numbers belong in sorted rows."""

import torch

from torch_mojo.aten.indexing import NAMESPACE
from torch_mojo.functional.builtin import kernel


@kernel(namespace=NAMESPACE, file="aten_search", kernel="aten_searchsorted")
def searchsorted(
    sequence: torch.Tensor, values: torch.Tensor, right: int, dtype: torch.dtype
) -> torch.Tensor:
    """Return for each number how many of its sorted row are less, as `torch.searchsorted`.

    Args:
        sequence: (rows, n), each row sorted.
        values: (rows, m), of the same dtype.
        right: 1 to count those that are equal too.
        dtype: the result's, int64 or int32.
    """
    return torch.empty(values.shape, dtype=dtype, device=values.device)
