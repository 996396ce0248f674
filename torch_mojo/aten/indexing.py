"""What reads elements and rows at given places, and the places themselves."""

import torch

from torch_mojo.functional.builtin import kernel

NAMESPACE = "mojo_aten"


def sized(like: torch.Tensor, dim: int, size: int | torch.SymInt) -> torch.Tensor:
    """Return an empty tensor like another, of another size in one dimension."""
    axis = dim if dim >= 0 else dim + like.dim()
    shape = [size if d == axis else n for d, n in enumerate(like.shape)]
    return torch.empty(shape or [size], dtype=like.dtype, device=like.device)


@kernel(namespace=NAMESPACE, file="aten_index", kernel="aten_gather")
def gather(input: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Return input's elements at the indices along a dimension, as `torch.gather`.

    Args:
        input: any dtype and strides; of the rank of index, and in the other dimensions at least as large.
        dim: the dimension.
        index: int32 or int64. One outside of the dimension raises an error on the CPU and stops the kernel on a GPU.

    Returns:
        the shape of index.
    """
    return torch.empty(index.shape, dtype=input.dtype, device=input.device)


@kernel(
    namespace=NAMESPACE,
    file="aten_index",
    kernel="aten_index_select",
    constants={"how": "index_select"},
)
def index_select(input: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Return input's slices at the indices along a dimension, as `torch.index_select`.

    Args:
        input: any dtype and strides.
        dim: the dimension.
        index: one dimension, int32 or int64.
    """
    return sized(input, dim, index.numel())


@kernel(
    namespace=NAMESPACE,
    file="aten_index",
    kernel="aten_index_select",
    constants={"how": "take_rows"},
)
def take_rows(input: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Return input's slices at indices that `checked_index` returned; they are not checked again."""
    return sized(input, dim, index.numel())


@kernel(namespace=NAMESPACE, file="aten_index", kernel="aten_embedding")
def embedding(weight: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Return weight's rows at the indices, as `torch.nn.functional.embedding`.

    Args:
        weight: (rows, columns).
        indices: any shape, int32 or int64.

    Returns:
        the shape of indices with the columns behind it.
    """
    shape = (*indices.shape, weight.shape[1])
    return torch.empty(shape, dtype=weight.dtype, device=weight.device)


@kernel(
    namespace=NAMESPACE,
    file="aten_index",
    kernel="aten_checked_index",
    constants={"how": "index"},
)
def checked_index(
    index: torch.Tensor,
    of: torch.Tensor,
    dim: int,
    wrap: bool,
    named: int,
    base: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return indices of a dimension, in range, as int64.

    Args:
        index: any shape, int32 or int64. One outside of the dimension raises an error on the CPU and stops the kernel
            on a GPU.
        of: the tensor that is indexed; only its shape counts.
        dim: its dimension.
        wrap: whether negative indices count from the end.
        named: the dimension that an error tells.
        base: places in the dimensions before, of the shape of index: the result is then base * size + index.
    """
    return torch.empty(index.shape, dtype=torch.int64, device=index.device)


@kernel(
    namespace=NAMESPACE,
    file="aten_index",
    kernel="aten_checked_index",
    constants={"how": "take"},
)
def checked_position(
    index: torch.Tensor,
    of: torch.Tensor,
    dim: int,
    wrap: bool,
    named: int,
    base: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return positions among all elements, in range, as int64: `checked_index` with torch.take's error."""
    return torch.empty(index.shape, dtype=torch.int64, device=index.device)
