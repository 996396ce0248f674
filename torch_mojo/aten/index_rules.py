"""Decompositions of the operators that read and write at indices."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from torch_mojo.aten import indexing, scattering
from torch_mojo.aten.rules import HALVES, INDICES, Rules, at_least_1d, in_range, number, served

aten = torch.ops.aten
RULES = Rules()


def _along(dim: int, index: torch.Tensor, *others: torch.Tensor) -> bool:
    """Tell whether the kernels take an index along a dimension of these tensors."""
    return (
        index.dtype in INDICES
        and served(*others, index)
        and in_range(dim, others[0])
        and all(t.dtype == others[0].dtype for t in others)
    )


@RULES.add(aten.gather.default)
def gather(
    self: torch.Tensor, dim: int, index: torch.Tensor, *, sparse_grad: bool = False
) -> torch.Tensor:
    """Return elements at indices along a dimension."""
    if not _along(dim, index, self):
        return NotImplemented
    found = indexing.gather(at_least_1d(self), dim, at_least_1d(index))
    return found.reshape(()) if index.dim() == 0 else found


@RULES.add(aten.index_select.default)
def index_select(self: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Return slices at indices."""
    if not _along(dim, index, self):
        return NotImplemented
    found = indexing.index_select(at_least_1d(self), dim, at_least_1d(index))
    return found.reshape(()) if self.dim() == 0 else found


@RULES.add(aten.embedding.default)
def embedding(
    weight: torch.Tensor,
    indices: torch.Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> torch.Tensor:
    """Return rows of a table."""
    if weight.dim() != 2 or not _along(0, indices, weight):
        return NotImplemented
    return indexing.embedding(weight, indices)


@RULES.add(aten.scatter.src)
def scatter(self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """Return self with src's elements at the indices."""
    if not _along(dim, index, self, src):
        return NotImplemented
    made = scattering.scatter(at_least_1d(self), dim, at_least_1d(index), at_least_1d(src))
    return made.reshape(()) if self.dim() == 0 else made


@RULES.add(aten.scatter.value)
def scatter_value(self: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> torch.Tensor:
    """Return self with a number at the indices."""
    if not _along(dim, index, self):
        return NotImplemented
    one = number(value, self)
    made = scattering.scatter_value(at_least_1d(self), dim, at_least_1d(index), one)
    return made.reshape(()) if self.dim() == 0 else made


@RULES.add(aten.scatter_reduce.two)
def scatter_reduce(
    self: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    """Return self reduced with src's elements at the indices."""
    if not _along(dim, index, self, src) or (reduce == "mean" and self.dtype == torch.bool):
        return NotImplemented
    given = (at_least_1d(self), dim, at_least_1d(index), at_least_1d(src))
    made = scattering.scatter_reduce(*given, reduce, include_self)
    return made.reshape(()) if self.dim() == 0 else made


@RULES.add(aten.scatter_add.default)
def scatter_add(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor
) -> torch.Tensor:
    """Return self with src's elements added at the indices."""
    return scatter_reduce(self, dim, index, src, "sum")


_OLD_NAMES = {"add": "sum", "multiply": "prod"}


@RULES.add(aten.scatter.reduce)
def scatter_old(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, *, reduce: str
) -> torch.Tensor:
    """Return self added to or multiplied with src's elements at the indices."""
    return scatter_reduce(self, dim, index, src, _OLD_NAMES[reduce])


@RULES.add(aten.scatter.value_reduce)
def scatter_value_old(
    self: torch.Tensor, dim: int, index: torch.Tensor, value: Any, *, reduce: str
) -> torch.Tensor:
    """Return self added to or multiplied with a number at the indices."""
    src = number(value, self).expand(index.shape)
    return scatter_reduce(self, dim, index, src, _OLD_NAMES[reduce])


@RULES.add(aten.index_add.default)
def index_add(
    self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: Any = 1
) -> torch.Tensor:
    """Return self with alpha times source's slices added at the indices."""
    if not _along(dim, index, self, source):
        return NotImplemented
    plain = isinstance(alpha, (int, float)) and alpha == 1
    if not plain:
        if self.dtype == torch.bool or (
            not self.dtype.is_floating_point and not isinstance(alpha, (int, torch.SymInt))
        ):
            return NotImplemented
        # of halves, product and sum are rounded together
        source = (source.float() if self.dtype in HALVES else source) * alpha
    given = (at_least_1d(self), dim, at_least_1d(index), at_least_1d(source))
    return scattering.index_add(*given).reshape(self.shape)


@RULES.add(aten.index_copy.default)
def index_copy(
    self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> torch.Tensor:
    """Return self with source's slices copied to the indices."""
    if not _along(dim, index, self, source) or index.dtype != torch.int64:
        return NotImplemented
    given = (at_least_1d(self), dim, at_least_1d(index), at_least_1d(source))
    if given[0].dim() != given[3].dim():
        return NotImplemented
    return scattering.index_copy(*given).reshape(self.shape)


@RULES.add(aten.index_fill.int_Scalar)
def index_fill(self: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> torch.Tensor:
    """Return self with a number in the slices at the indices."""
    return index_fill_tensor(self, dim, index, number(value, self))


@RULES.add(aten.index_fill.int_Tensor)
def index_fill_tensor(
    self: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """Return self with a 0-d tensor's value in the slices at the indices."""
    if not _along(dim, index, self) or index.dtype != torch.int64 or not served(self, value):
        return NotImplemented
    given = (at_least_1d(self), dim, at_least_1d(index), value.to(self.dtype))
    return scattering.index_fill(*given).reshape(self.shape)


class Places(NamedTuple):
    """What indices of several dimensions select: one index of the dimensions `first` to `end`, taken together.

    Attributes:
        order: the dimensions as they are to be ordered first.
        first, end: the indexed ones, in that order.
        places: in one dimension, as row numbers.
        shape: that the places have.
    """

    order: list[int]
    first: int
    end: int
    places: torch.Tensor
    shape: Sequence[int]

    def rows(self, x: torch.Tensor, end: int) -> torch.Tensor:
        """Return a tensor in the right order as (before, places, behind); the places are dimensions first to end."""
        return x.reshape(
            math.prod(x.shape[: self.first]),
            math.prod(x.shape[self.first : end]),
            math.prod(x.shape[end:]),
        )

    def selected(self, shape: Sequence[int]) -> list[int]:
        """Return the shape of what is selected from one in the right order."""
        return [*shape[: self.first], *self.shape, *shape[self.end :]]


def places_of(
    self: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    checked: Callable[..., torch.Tensor] = indexing.checked_index,
) -> Places | None:
    """Return what the indices select, or None if it is not for these kernels; `checked` is `indexing.checked_index`."""
    dims = [d for d, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if not given or not served(self, *given) or any(t.dtype not in INDICES for t in given):
        return None
    if len(given) > 1:
        given = list(torch.broadcast_tensors(*given))
    flat = None
    for n, (dim, index) in enumerate(zip(dims, given, strict=True)):
        flat = checked(index.reshape(-1), self, dim, True, n, flat)
    assert flat is not None
    others = [d for d in range(self.dim()) if d not in dims]
    if dims[-1] - dims[0] == len(dims) - 1:
        order, first = list(range(self.dim())), dims[0]
    else:
        order, first = [*dims, *others], 0
    return Places(order, first, first + len(dims), flat, given[0].shape)


@RULES.add(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(self: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Return the elements that indices of several dimensions select together."""
    chosen = places_of(self, indices)
    if chosen is None:
        return NotImplemented
    ordered = self.permute(chosen.order)
    found = indexing.take_rows(chosen.rows(ordered, chosen.end), 1, chosen.places)
    return found.reshape(chosen.selected(ordered.shape))


@RULES.add(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(
    self: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
) -> torch.Tensor:
    """Return self with values put or added where indices of several dimensions select together."""
    if values.dtype != self.dtype or not served(self, values):
        return NotImplemented
    chosen = places_of(self, indices)
    if chosen is None:
        return NotImplemented
    ordered = self.permute(chosen.order)
    values = values.expand(chosen.selected(ordered.shape))
    made = scattering.put_rows(
        chosen.rows(ordered, chosen.end),
        1,
        chosen.places,
        chosen.rows(values, chosen.first + len(chosen.shape)),
        accumulate,
    )
    back = [chosen.order.index(d) for d in range(self.dim())]
    return made.reshape(ordered.shape).permute(back)


@RULES.add(aten.take.default)
def take(self: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return elements by their number in the whole tensor."""
    if index.dtype != torch.int64 or not served(self, index):
        return NotImplemented
    rows = indexing.checked_position(index.reshape(-1), self, 0, True, 0)
    return indexing.take_rows(self.reshape(1, -1, 1), 1, rows).reshape(index.shape)


@RULES.add(aten.put.default)
def put(
    self: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    """Return self with elements put or added by their number in the whole tensor."""
    if index.dtype != torch.int64 or not served(self, index, source) or source.dtype != self.dtype:
        return NotImplemented
    rows = indexing.checked_position(index.reshape(-1), self, 0, True, 0)
    flat = self.reshape(1, -1, 1)
    made = scattering.put_rows(flat, 1, rows, source.reshape(1, -1, 1), accumulate)
    return made.reshape(self.shape)
