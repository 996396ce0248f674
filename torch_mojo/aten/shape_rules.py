"""Decompositions of what only moves elements, or adds up those that come to the same place."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_mojo import torch_private
from torch_mojo.aten import convolution, indexing, scattering
from torch_mojo.aten.rules import Rules, served, volume, whole

aten = torch.ops.aten
RULES = Rules()
Numbers = Sequence[int]


def _columns(self: torch.Tensor, *windows: Numbers) -> bool:
    return served(self) and self.dtype.is_floating_point and whole(*windows)


@RULES.add(aten.im2col.default)
def im2col(
    self: torch.Tensor, kernel_size: Numbers, dilation: Numbers, padding: Numbers, stride: Numbers
) -> torch.Tensor:
    """Return the windows of pictures as columns."""
    if not _columns(self, kernel_size, dilation, padding, stride):
        return NotImplemented
    numbers = convolution.window_numbers(2, kernel_size, stride, padding, dilation)
    found = convolution.windows_to_columns(volume(self, 2), *numbers)
    return found if self.dim() == 4 else found.squeeze(0)


@RULES.add(aten.col2im.default)
def col2im(
    self: torch.Tensor,
    output_size: Sequence[Any],
    kernel_size: Numbers,
    dilation: Numbers,
    padding: Numbers,
    stride: Numbers,
) -> torch.Tensor:
    """Return pictures in which the columns of windows are added up."""
    if not _columns(self, kernel_size, dilation, padding, stride):
        return NotImplemented
    numbers = convolution.window_numbers(2, kernel_size, stride, padding, dilation)
    columns = self if self.dim() == 3 else self.unsqueeze(0)
    channels = columns.shape[1] // (numbers[1] * numbers[2])
    like = columns.new_empty([columns.shape[0], channels, 1, *output_size])
    found = convolution.columns_to_windows(columns, like, *numbers).squeeze(2)
    return found if self.dim() == 3 else found.squeeze(0)


def _elements(
    self: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any
) -> torch.Tensor | None:
    """Return which elements of a row-major tensor a view of its memory has, or None for another tensor."""
    if not served(self) or not self.is_contiguous():
        return None
    begin = 0 if storage_offset is None else storage_offset - self.storage_offset()
    places = torch.full([1] * len(size), begin, dtype=torch.int64, device=self.device)
    for d, (n, s) in enumerate(zip(size, stride, strict=True)):
        along = torch.arange(n, dtype=torch.int64, device=self.device) * s
        places = places + along.reshape([-1 if d == e else 1 for e in range(len(size))])
    return indexing.checked_position(places.reshape(-1), self, 0, False, 0)


def _is_itself(
    self: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any
) -> bool:
    return (
        len(size) == self.dim()
        and all(torch_private.known(a == b) for a, b in zip(size, self.shape, strict=True))
        and all(torch_private.known(a == b) for a, b in zip(stride, self.stride(), strict=True))
        and (storage_offset is None or torch_private.known(storage_offset == self.storage_offset()))
    )


@RULES.add(aten.as_strided.default)
def as_strided(
    self: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None
) -> torch.Tensor:
    """Return the elements that a view of the tensor's memory has; leave the tensor itself a view."""
    if _is_itself(self, size, stride, storage_offset):
        return NotImplemented
    return as_strided_copy(self, size, stride, storage_offset)


@RULES.add(aten.as_strided_copy.default)
def as_strided_copy(
    self: torch.Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None
) -> torch.Tensor:
    """Return the elements that a view of the tensor's memory has."""
    if _is_itself(self, size, stride, storage_offset):
        return self.clone()
    places = _elements(self, size, stride, storage_offset)
    if places is None or self.dim() == 0:
        return NotImplemented
    return indexing.take_rows(self.reshape(1, -1, 1), 1, places).reshape(size)


@RULES.add(aten.as_strided_scatter.default)
def as_strided_scatter(
    self: torch.Tensor,
    src: torch.Tensor,
    size: Sequence[Any],
    stride: Sequence[Any],
    storage_offset: Any = None,
) -> torch.Tensor:
    """Return the tensor with other elements where a view of its memory has them."""
    places = _elements(self, size, stride, storage_offset)
    if places is None or self.dim() == 0 or src.dtype != self.dtype:
        return NotImplemented
    flat, rows = self.reshape(1, -1, 1), src.reshape(1, -1, 1)
    return scattering.put_rows(flat, 1, places, rows, False).reshape(self.shape)


@RULES.add(aten.masked_scatter.default)
def masked_scatter(self: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Return the tensor with source's elements, in order, where the mask is true."""
    if not served(self, mask, source) or mask.dtype != torch.bool or source.dtype != self.dtype:
        return NotImplemented
    mask, self = torch.broadcast_tensors(mask, self)
    number = mask.reshape(-1).to(torch.int64).cumsum(0)
    # an element of zeros in front, for where the mask is false
    flat = torch.cat([source.new_zeros(1), source.reshape(-1)])
    chosen = torch.where(mask.reshape(-1), number, 0)
    found = indexing.index_select(flat, 0, chosen)
    return torch.where(mask, found.reshape(self.shape), self)


def _replication_backward(dims: int) -> Any:
    def rule(grad_output: torch.Tensor, self: torch.Tensor, padding: Sequence[Any]) -> torch.Tensor:
        """Return the gradient of a tensor whose border elements were repeated."""
        if not served(grad_output, self) or not grad_output.dtype.is_floating_point:
            return NotImplemented
        grad = grad_output
        for d in range(dims):
            axis = self.dim() - 1 - d
            n = self.shape[axis]
            places = torch.arange(grad.shape[axis], device=grad.device) - padding[2 * d]
            zeros = torch.zeros_like(indexing.sized(grad, axis, n))
            grad = scattering.index_add(zeros, axis, places.clamp(0, n - 1), grad)
        return grad

    return rule


for _dims in (1, 2, 3):
    RULES.add(getattr(aten, f"replication_pad{_dims}d_backward").default)(
        _replication_backward(_dims)
    )


@RULES.add(aten.diagonal_scatter.default)
def diagonal_scatter(
    self: torch.Tensor, src: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    """Return the tensor with another one on a diagonal."""
    if not served(self):
        return NotImplemented
    dims = (dim1 % self.dim(), dim2 % self.dim())
    along = torch.arange(src.shape[-1], device=self.device)
    rows, columns = along + max(-offset, 0), along + max(offset, 0)
    values = src.to(self.dtype).movedim(-1, 0)
    found = aten.index_put(self.movedim(dims, (0, 1)), [rows, columns], values)
    return found.movedim((0, 1), dims).contiguous()


@RULES.add(aten.copy.default)
def copy(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Return what writing `src` into `self` leaves there."""
    if self.device != src.device or not (served(self) and served(src)):
        return NotImplemented
    return src.to(self.dtype).expand(self.shape).clone(memory_format=torch.contiguous_format)
