"""Convolutions, transposed ones and their gradients, as products with columns of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_mojo.aten.rules import HALVES, Rules, laid_out, three, volume, whole
from torch_mojo.functional.builtin import kernel

aten = torch.ops.aten
RULES = Rules()
NAMESPACE = "mojo_aten"


@kernel(namespace=NAMESPACE, file="aten_columns", kernel="aten_im2col")
def windows_to_columns(
    x: torch.Tensor,
    k0: int,
    k1: int,
    k2: int,
    s0: int,
    s1: int,
    s2: int,
    p0: int,
    p1: int,
    p2: int,
    d0: int,
    d1: int,
    d2: int,
) -> torch.Tensor:
    """Return (N, C * K, L): for each of L windows its K = k0 * k1 * k2 positions in each channel.

    Args:
        x: (N, C, D, H, W), floating-point.
        k0, k1, k2: how many positions a window has; s: its stride; p: zeros around x; d: the dilation.
    """
    n, c, *sizes = x.shape
    count: Any = 1
    for size, k, s, p, d in zip(
        sizes, (k0, k1, k2), (s0, s1, s2), (p0, p1, p2), (d0, d1, d2), strict=True
    ):
        count = count * ((size + 2 * p - (k - 1) * d - 1) // s + 1)
    return x.new_empty((n, c * (k0 * k1 * k2), count))


@kernel(namespace=NAMESPACE, file="aten_columns", kernel="aten_col2im")
def columns_to_windows(
    columns: torch.Tensor,
    like: torch.Tensor,
    k0: int,
    k1: int,
    k2: int,
    s0: int,
    s1: int,
    s2: int,
    p0: int,
    p1: int,
    p2: int,
    d0: int,
    d1: int,
    d2: int,
) -> torch.Tensor:
    """Return the sums of what `columns` has for each place of `like`: the transpose of windows_to_columns.

    Args:
        columns: (N, C * K, L). like: (N, C, D, H, W); only its shape counts.
    """
    return columns.new_empty(like.shape)


def window_numbers(
    dims: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    """Return what the two kernels take, for windows over 1 to 3 dimensions."""
    return [
        *three(kernel, dims, 1),
        *three(stride, dims, 1),
        *three(padding, dims, 0),
        *three(dilation, dims, 1),
    ]


class _Windows:
    """What the two kernels take, for a filter over 1 to 3 dims."""

    def __init__(
        self,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
    ) -> None:
        self.dims = len(kernel)
        self.numbers = window_numbers(self.dims, kernel, stride, padding, dilation)
        self.taps = math.prod(kernel)

    def columns(self, x: torch.Tensor, groups: int) -> torch.Tensor:
        """Return (N, groups, channels * K, L)."""
        if self.numbers == [1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1]:
            return _by_group(x, groups)
        found = windows_to_columns(volume(x, self.dims), *self.numbers)
        return found.view(x.shape[0], groups, x.shape[1] // groups * self.taps, found.shape[2])

    def sums(self, columns: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Return columns (N, groups, channels * K, L) added up in the shape of `like`."""
        flat = columns.reshape(columns.shape[0], -1, columns.shape[3])
        return columns_to_windows(flat, volume(like, self.dims), *self.numbers).view(like.shape)


def _served(weight: torch.Tensor, *lists: Sequence[Any]) -> bool:
    return whole(*lists, weight.shape[2:]) and weight.is_floating_point() and 3 <= weight.dim() <= 5


def _wide(t: torch.Tensor) -> torch.Tensor:
    return t.float() if t.dtype in HALVES else t


def _by_group(t: torch.Tensor, groups: int) -> torch.Tensor:
    """Return (N, C, ...) as (N, groups, C / groups, places)."""
    places: Any = 1
    for size in t.shape[2:]:
        places = places * size
    return t.reshape(t.shape[0], groups, t.shape[1] // groups, places)


def _filters(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """Return (A, B, k...) as (groups, A / groups, B * K)."""
    return weight.reshape(groups, weight.shape[0] // groups, -1)


def _product(filters: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Return filters (groups, A, B) times columns (N, groups, B, L)."""
    if filters.shape[0] == 1:  # one product for all windows of the batch
        n, _, inner, places = columns.shape
        flat = columns.reshape(n, inner, places).transpose(0, 1).reshape(inner, n * places)
        return (filters[0] @ flat).view(-1, n, places).transpose(0, 1).contiguous().unsqueeze(1)
    if filters.shape[1] == 1:  # depthwise
        return (filters[:, 0, :, None] * columns).sum(2, keepdim=True)
    return torch.matmul(filters, columns)


@RULES.add(aten.convolution.default)
def convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """Return a convolution or a transposed one, in float32 for the halves."""
    if not _served(weight, stride, padding, dilation, output_padding):
        return NotImplemented
    n = weight.dim() - 2
    w = _Windows(weight.shape[2:], stride, padding, dilation)
    k, s, p, d = (w.numbers[i + 3 - n : i + 3] for i in (0, 3, 6, 9))
    extra = three(output_padding, n, 0)[3 - n :]
    wide, filters = _wide(x), _filters(_wide(weight), groups)
    if transposed:
        sizes = [
            (size - 1) * s[i] - 2 * p[i] + d[i] * (k[i] - 1) + 1 + extra[i]
            for i, size in enumerate(x.shape[2:])
        ]
        columns = torch.matmul(filters.mT, _by_group(wide, groups))
        like = wide.new_zeros((x.shape[0], weight.shape[1] * groups, *sizes))
        out = w.sums(columns, like)
    else:
        sizes = [
            (size + 2 * p[i] - d[i] * (k[i] - 1) - 1) // s[i] + 1
            for i, size in enumerate(x.shape[2:])
        ]
        out = _product(filters, w.columns(wide, groups))
        out = out.reshape(x.shape[0], weight.shape[0], *sizes)
    if bias is not None:
        out = out + _wide(bias).view(-1, *[1] * n)
    return laid_out(out.to(x.dtype), x, weight)


@RULES.add(aten.convolution_backward.default)
def convolution_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Return the gradients of input, weight and bias, those that are wanted."""
    if not _served(weight, stride, padding, dilation, output_padding):
        return NotImplemented
    w = _Windows(weight.shape[2:], stride, padding, dilation)
    grad, x = _wide(grad_output), _wide(input)
    filters = _filters(_wide(weight), groups)
    into = of_weight = of_bias = None
    # a convolution reads windows of `wide` and makes `narrow`; a transposed one the other way round
    wide, narrow = (grad, x) if transposed else (x, grad)
    columns = w.columns(wide, groups) if output_mask[1] or (output_mask[0] and transposed) else None
    small = _by_group(narrow, groups)
    if output_mask[0] and transposed:
        assert columns is not None
        into = torch.matmul(filters, columns).reshape(input.shape)
    elif output_mask[0]:
        into = w.sums(torch.matmul(filters.mT, small), x)
    if output_mask[1]:
        assert columns is not None
        of_weight = torch.matmul(small, columns.mT).sum(0).reshape(weight.shape)
    if output_mask[2]:
        of_bias = grad.sum([0, *range(2, grad.dim())])
    return tuple(None if g is None else g.to(input.dtype) for g in (into, of_weight, of_bias))  # type: ignore[return-value]
