"""What the device reads and writes at indices: Python around kernels/torch/places.mojo."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_mojo import torch_private
from torch_mojo.aten.index_rules import Places, places_of
from torch_mojo.aten.rules import HALVES
from torch_mojo.device.composed import composed, wide
from torch_mojo.device.fallback import run_on_cpu
from torch_mojo.device.libraries import opened, words
from torch_mojo.device.ranges import NUMBERS

aten = torch.ops.aten
_DTYPES = (*NUMBERS, torch.bool)  # as in places.mojo
_MOVED = -1
_PIECE = 1 << 16  # bytes of a row that are worth a thread


def _places(
    native: Any,
    index: torch.Tensor,
    size: int,
    wrap: bool,
    before: torch.Tensor | None,
    wrong: str,
) -> torch.Tensor:
    """Return before * size + index as int64; `wrong` is told of an index out of range."""
    index = index.contiguous()
    into = torch.zeros_like(index, dtype=torch.int64) if before is None else before
    at = native.tm_places(
        words(
            *(_DTYPES.index(index.dtype), index.data_ptr(), index.numel(), size),
            *(wrap, into.data_ptr()),
        )
    )
    if at >= 0:
        raise IndexError(wrong.format(index.reshape(-1)[at].item(), size))
    return into


def _rows(native: Any, x: torch.Tensor, places: torch.Tensor, dims: tuple[int, int]) -> Any:
    """Return a contiguous tensor's rows at places: dimensions first to end are the ones they count."""
    first, end = dims
    before, behind = math.prod(x.shape[:first]), math.prod(x.shape[end:])
    count = places.numel()
    made = torch.empty(before, count, behind, dtype=x.dtype, device=x.device)
    native.tm_take(
        words(
            *(0, before, math.prod(x.shape[first:end]), count, behind * x.element_size()),
            *(places.data_ptr(), x.data_ptr(), made.data_ptr()),
        )
    )
    return made


def _put(
    native: Any,
    x: torch.Tensor,
    places: torch.Tensor,
    dims: tuple[int, int],
    values: torch.Tensor,
    add: bool,
) -> None:
    """Write rows into a contiguous tensor, or add them, in the order of the places."""
    first, end = dims
    behind = math.prod(x.shape[end:]) * x.element_size()
    native.tm_put(
        words(
            *(_DTYPES.index(x.dtype) if add else _MOVED, math.prod(x.shape[:first])),
            *(math.prod(x.shape[first:end]), places.numel(), behind),
            *(places.data_ptr(), x.data_ptr(), values.data_ptr()),
            max(1, min(torch.get_num_threads(), behind // _PIECE)),
        )
    )


def _chosen(
    native: Any, self: torch.Tensor, indices: Sequence[torch.Tensor | None]
) -> Places | None:
    """Return what indices and masks select, or None if it is not for these kernels."""
    given: list[torch.Tensor | None] = []
    for index in indices:
        if index is None:
            given.append(None)
            continue
        index = index.to(self.device) if index.device.type == "cpu" else index
        if index.dtype != torch.bool:
            given.append(index)
            continue
        d = len(given)
        if index.shape != self.shape[d : d + index.dim()] or index.dim() == 0:
            return None
        given.extend(index.nonzero().unbind(1))

    def checked(
        index: torch.Tensor, of: torch.Tensor, dim: int, wrap: bool, n: int, base: Any
    ) -> torch.Tensor:
        wrong = f"index {{}} is out of bounds for dimension {dim} with size {{}}"
        return _places(native, index, of.shape[dim], wrap, base, wrong)

    return places_of(self, given, checked) if len(given) <= self.dim() else None


@composed("index.Tensor", "_unsafe_index.Tensor")
def _index(self: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    native = opened("places", aten.index.Tensor)
    chosen = None if native is None else _chosen(native, self, indices)
    if chosen is None:
        return run_on_cpu(aten.index.Tensor, self, indices)
    ordered = self.permute(chosen.order).contiguous()
    found = _rows(native, ordered, chosen.places, (chosen.first, chosen.end))
    return found.reshape(chosen.selected(ordered.shape))


def _memory(t: torch.Tensor) -> int:
    return t.untyped_storage().data_ptr()


@composed("_index_put_impl_")
def _index_put(
    self: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> torch.Tensor:
    op = aten._index_put_impl_.default
    native = opened("places", op)
    given = [i for i in indices if i is not None]
    plain = (
        native is not None
        and values.dtype == self.dtype
        and self.dtype in _DTYPES
        and all(n < 2 or step for n, step in zip(self.shape, self.stride(), strict=True))
        and all(_memory(t) != _memory(self) or t.numel() == 0 for t in (values, *given))
    )
    if plain and values.dim() == 0 and values.device != self.device:
        values = values.to(self.device)
    masked = plain and not accumulate and values.numel() == 1 and len(given) == 1
    if masked and given[0].dtype == torch.bool and given[0].device == self.device:
        mask, first = given[0], next(i for i, t in enumerate(indices) if t is not None)
        end = first + mask.dim()
        if mask.shape == self.shape[first:end]:
            mask = mask.reshape([1] * first + list(mask.shape) + [1] * (self.dim() - end))
            return self.masked_fill_(mask, values.reshape(()))
    chosen = _chosen(native, self, indices) if plain else None
    if chosen is None or values.device != self.device:
        return run_on_cpu(op, self, indices, values, accumulate, unsafe)
    ordered = self.permute(chosen.order)
    goal = ordered.contiguous()
    rows = values.expand(chosen.selected(ordered.shape)).contiguous()
    _put(native, goal, chosen.places, (chosen.first, chosen.end), rows, accumulate)
    if goal.data_ptr() != ordered.data_ptr():
        ordered.copy_(goal)
    return self


@composed("index_put", "_unsafe_index_put")
def _index_put_new(
    self: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
) -> torch.Tensor:
    copy = self.clone(memory_format=torch.contiguous_format)
    return _index_put(copy, indices, values, accumulate)


_OUT_OF_SELF = "index out of range in self"


def _one_index(native: Any, self: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
    """Return the places of an index along a dimension, and that dimension, or None."""
    rank = max(self.dim(), 1)
    plain = index.dtype in (torch.int32, torch.int64) and index.device == self.device
    if native is None or not plain or index.dim() > 1 or not -rank <= dim < rank:
        return None
    size = self.shape[dim] if self.dim() else 1
    return _places(native, index.reshape(-1), size, False, None, _OUT_OF_SELF), dim % rank


@composed("index_select")
def _index_select(self: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    native = opened("places", aten.index_select.default)
    found = _one_index(native, self, dim, index)
    if found is None:
        return run_on_cpu(aten.index_select.default, self, dim, index)
    places, dim = found
    x = self.contiguous() if self.dim() else self.reshape(1)
    made = _rows(native, x, places, (dim, dim + 1))
    shape = (*x.shape[:dim], places.numel(), *x.shape[dim + 1 :])
    return made.reshape(shape if self.dim() else ())


@composed("embedding")
def _embedding(
    weight: torch.Tensor,
    indices: torch.Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> torch.Tensor:
    native = opened("places", aten.embedding.default)
    found = _one_index(native, weight, 0, indices.reshape(-1)) if weight.dim() == 2 else None
    if found is None:
        return run_on_cpu(aten.embedding.default, weight, indices, padding_idx)
    made = _rows(native, weight.contiguous(), found[0], (0, 1))
    return made.reshape(*indices.shape, weight.shape[1])


@composed("embedding_dense_backward")
def _embedding_backward(
    grad_output: torch.Tensor,
    indices: torch.Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> torch.Tensor:
    op = aten.embedding_dense_backward.default
    native = opened("places", op)
    width = grad_output.shape[-1] if grad_output.dim() else 1
    made = torch.zeros(
        *(num_weights, width), dtype=wide(grad_output).dtype, device=grad_output.device
    )
    found = None if scale_grad_by_freq else _one_index(native, made, 0, indices.reshape(-1))
    if found is None or grad_output.dtype not in _DTYPES:
        given = (num_weights, padding_idx, scale_grad_by_freq)
        return run_on_cpu(op, grad_output, indices, *given)
    _put(native, made, found[0], (0, 1), wide(grad_output).contiguous(), True)
    if padding_idx >= 0:
        made[padding_idx].zero_()
    return made.to(grad_output.dtype)


@composed("index_add")
def _index_add(
    self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: Any = 1
) -> torch.Tensor:
    op = aten.index_add.default
    native = opened("places", op)
    alike = self.dtype == source.dtype and self.dtype in _DTYPES and self.dim() == source.dim()
    fits = alike and (
        _fits(self, dim, index, source) if self.dim() else source.device == self.device
    )
    found = _one_index(native, self, dim, index) if fits else None
    if found is None or (alpha != 1 and self.dtype == torch.bool):
        return run_on_cpu(op, self, dim, index, source, alpha=alpha)
    places, dim = found
    half = self.dtype in HALVES  # their sums are rounded once
    made = self.float() if half else self.clone(memory_format=torch.contiguous_format)
    more = source.float() if half else source
    more = (more if alpha == 1 else more * alpha).contiguous()
    made = made.contiguous()
    _put(native, made if made.dim() else made.reshape(1), places, (dim, dim + 1), more, True)
    return made.to(self.dtype)


def _fits(self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> bool:
    """Tell whether source has a slice for each index."""
    if source.device != self.device or not -self.dim() <= dim < self.dim():
        return False
    wanted = list(self.shape)
    wanted[dim] = index.numel()
    return list(source.shape) == wanted


@composed("index_add.out")
def _index_add_out(
    self: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    *,
    alpha: Any = 1,
    out: torch.Tensor,
) -> torch.Tensor:
    made = _index_add(self, dim, index, source, alpha=alpha)
    return torch_private.resized_output(out, made.shape).copy_(made)


@composed("index_copy")
def _index_copy(
    self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> torch.Tensor:
    op = aten.index_copy.default
    native = opened("places", op)
    if self.dim() == 0 and source.dim() == 0 and index.numel() == 1 and dim in (0, -1):
        return _index_copy(self.reshape(1), dim, index, source.reshape(1)).reshape(())
    alike = self.dtype == source.dtype and self.dim() == source.dim() and self.dim() > 0
    fits = alike and index.dtype == torch.int64 and _fits(self, dim, index, source)
    found = _one_index(native, self, dim, index) if fits else None
    if found is None:
        return run_on_cpu(op, self, dim, index, source)
    places, dim = found
    made = self.clone(memory_format=torch.contiguous_format)
    _put(native, made, places, (dim, dim + 1), source.contiguous(), False)
    return made


@composed("index_copy.out")
def _index_copy_out(
    self: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    made = _index_copy(self, dim, index, source)
    return torch_private.resized_output(out, made.shape).copy_(made)
