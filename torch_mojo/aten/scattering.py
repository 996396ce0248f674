"""What puts elements and rows at given places. The results are new tensors.

Of several writers of one place the last wins, and sums are taken in the order of the indices, on the CPU. On a GPU
writers race, and sums of float32, float64, int32 and int64 are atomic, so their last bits may differ from call to call.
"""

import torch

from torch_mojo.aten.indexing import NAMESPACE
from torch_mojo.functional.builtin import kernel


def _like(input: torch.Tensor) -> torch.Tensor:
    return torch.empty(input.shape, dtype=input.dtype, device=input.device)


@kernel(namespace=NAMESPACE, file="aten_scatter", kernel="aten_scatter")
def scatter(input: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """Return input with src's elements at the indices along a dimension, as `torch.scatter`.

    Args:
        input: any dtype and strides.
        dim: the dimension.
        index: int32 or int64, of the rank of input, and in the other dimensions not larger. One outside of the
            dimension raises an error on the CPU and stops the kernel on a GPU.
        src: of input's dtype, at least as large as index.
    """
    return _like(input)


@kernel(namespace=NAMESPACE, file="aten_scatter", kernel="aten_scatter_value")
def scatter_value(
    input: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor
) -> torch.Tensor:
    """Return input with one element, the 0-d tensor src, at the indices along a dimension."""
    return _like(input)


@kernel(namespace=NAMESPACE, file="aten_scatter", kernel="aten_scatter_reduce")
def scatter_reduce(
    input: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor,
    reduce: str,
    include_self: bool = True,
) -> torch.Tensor:
    """Return input reduced with src's elements at the indices along a dimension, as `torch.scatter_reduce`.

    Args:
        input: any dtype and strides; halves are reduced in float32 and rounded once.
        dim: the dimension.
        index: as for `scatter`.
        src: of input's dtype, at least as large as index.
        reduce: "sum", "prod", "mean" (integers are rounded down), "amax" or "amin" (nan wins).
        include_self: whether input's elements take part where there is an index.
    """
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise ValueError(
            f"[mojo_aten::scatter_reduce] reduce is {reduce!r}.\n"
            "Pass 'sum', 'prod', 'mean', 'amax' or 'amin'."
        )
    return _like(input)


@kernel(
    namespace=NAMESPACE,
    file="aten_scatter",
    kernel="aten_put_rows",
    constants={"how": "index_add", "accumulate": True},
)
def index_add(
    input: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> torch.Tensor:
    """Return input with source's slices added to those at the indices along a dimension, as `torch.index_add`.

    Args:
        input: any dtype and strides.
        dim: the dimension.
        index: one dimension, int32 or int64, checked.
        source: input's shape with as many slices as there are indices. A wider dtype is rounded with each sum.
    """
    return _like(input)


@kernel(
    namespace=NAMESPACE,
    file="aten_scatter",
    kernel="aten_put_rows",
    constants={"how": "index_copy", "accumulate": False},
)
def index_copy(
    input: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> torch.Tensor:
    """Return input with source's slices copied to those at the indices along a dimension, as `torch.index_copy`."""
    return _like(input)


@kernel(
    namespace=NAMESPACE,
    file="aten_scatter",
    kernel="aten_put_rows",
    constants={"how": "put_rows"},
)
def put_rows(
    input: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    accumulate: bool,
) -> torch.Tensor:
    """Return input with source's slices at indices that `checked_index` returned, copied or added."""
    return _like(input)


@kernel(namespace=NAMESPACE, file="aten_scatter", kernel="aten_index_fill")
def index_fill(
    input: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """Return input with the 0-d tensor value in the slices at the indices, as `torch.index_fill`.

    Negative indices count from the end.
    """
    return _like(input)
