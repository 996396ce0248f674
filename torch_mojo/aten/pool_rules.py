"""Decompositions of pooling."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_mojo import functional
from torch_mojo.aten import pooling
from torch_mojo.aten.rules import Rule, Rules, laid_out, of_volume, served, three, volume, whole
from torch_mojo.functional import pooling as pictures

aten = torch.ops.aten
RULES = Rules()
Pair = tuple[torch.Tensor, torch.Tensor]
Numbers = Sequence[int]


def _numbers(value: int | Numbers) -> Numbers:
    return [value] if isinstance(value, int) else value


def _windows(
    dims: int,
    kernel_size: int | Numbers,
    stride: int | Numbers,
    padding: int | Numbers,
    dilation: int | Numbers | None = None,
) -> list[int]:
    """Return a window's numbers for D, H and W; no stride is the window's size."""
    size = _numbers(kernel_size)
    found = [
        *three(size, dims, 1),
        *three(_numbers(stride) or size, dims, 1),
        *three(_numbers(padding), dims, 0),
    ]
    return found if dilation is None else [*found, *three(_numbers(dilation), dims, 1)]


def _numeric(*tensors: torch.Tensor) -> bool:
    return served(*tensors) and tensors[0].dtype != torch.bool


def _floating(*tensors: torch.Tensor) -> bool:
    return served(*tensors) and tensors[0].dtype.is_floating_point


def _pictures(found: torch.Tensor, dims: int, like: torch.Tensor) -> torch.Tensor:
    """Return volumes as they were given; torch keeps the memory format of pictures alone."""
    found = of_volume(found, dims, like)
    return laid_out(found, like) if dims == 2 else found


def _max_pool(dims: int) -> Rule:
    def rule(
        self: torch.Tensor,
        kernel_size: Numbers,
        stride: Numbers = (),
        padding: int | Numbers = 0,
        dilation: int | Numbers = 1,
        ceil_mode: bool = False,
    ) -> Pair:
        """Return the largest elements of windows, and their places."""
        if not _numeric(self) or not whole(kernel_size, stride, padding, dilation):
            return NotImplemented
        numbers = _windows(dims, kernel_size, stride, padding, dilation)
        value, index = pooling.max_pool(volume(self, dims), *numbers, ceil_mode)
        value, index = (of_volume(t, dims, self) for t in (value, index))
        return laid_out(value, self), laid_out(index, self)

    return rule


def _max_pool_backward(dims: int) -> Rule:
    def rule(
        grad_output: torch.Tensor,
        self: torch.Tensor,
        kernel_size: Numbers,
        stride: Numbers,
        padding: int | Numbers,
        dilation: int | Numbers,
        ceil_mode: bool,
        indices: torch.Tensor,
    ) -> torch.Tensor:
        """Return the gradient of the largest elements of windows."""
        if not _floating(grad_output, self, indices):
            return NotImplemented
        if not whole(kernel_size, stride, padding, dilation):
            return NotImplemented
        tensors = [volume(t, dims) for t in (grad_output, indices, self)]
        numbers = _windows(dims, kernel_size, stride, padding, dilation)
        found = pooling.max_pool_backward(*tensors, *numbers)
        return laid_out(of_volume(found, dims, self), self)

    return rule


def _avg_pool(dims: int) -> Rule:
    def rule(
        self: torch.Tensor,
        kernel_size: Numbers,
        stride: Numbers = (),
        padding: int | Numbers = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> torch.Tensor:
        """Return the means of windows."""
        if not _floating(self) and self.dtype != torch.int64:
            return NotImplemented
        if not whole(kernel_size, stride, padding, divisor_override or 0):
            return NotImplemented
        numbers = _windows(dims, kernel_size, stride, padding)
        numbers += [int(count_include_pad), divisor_override or 0]
        found = pooling.avg_pool(volume(self, dims), *numbers, ceil_mode)
        return _pictures(found, dims, self)

    return rule


def _avg_pool_backward(dims: int) -> Rule:
    def rule(
        grad_output: torch.Tensor,
        self: torch.Tensor,
        kernel_size: Numbers,
        stride: Numbers,
        padding: int | Numbers,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> torch.Tensor:
        """Return the gradient of the means of windows."""
        if not _floating(grad_output, self):
            return NotImplemented
        if not whole(kernel_size, stride, padding, divisor_override or 0):
            return NotImplemented
        numbers = _windows(dims, kernel_size, stride, padding)
        numbers += [int(count_include_pad), divisor_override or 0]
        found = pooling.avg_pool_backward(volume(grad_output, dims), volume(self, dims), *numbers)
        return _pictures(found, dims, self)

    return rule


def _adaptive_max_pool(dims: int) -> Rule:
    def rule(self: torch.Tensor, output_size: Numbers) -> Pair:
        """Return the largest elements of windows that cover the input evenly, and their places."""
        if not _floating(self) or not whole(output_size):
            return NotImplemented
        found = pooling.adaptive_max_pool(volume(self, dims), three(output_size, dims, 1))
        value, index = found
        return _pictures(value, dims, self), _pictures(index, dims, self)

    return rule


def _adaptive_max_pool_backward(dims: int) -> Rule:
    def rule(grad_output: torch.Tensor, self: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        """Return the gradient of those largest elements."""
        if not _floating(grad_output, self, indices):
            return NotImplemented
        tensors = [volume(t, dims) for t in (grad_output, indices, self)]
        found = pooling.adaptive_max_pool_backward(*tensors)
        return _pictures(found, dims, self)

    return rule


for _dims, _ops in (
    (2, [aten.max_pool2d_with_indices, aten.avg_pool2d, aten.adaptive_max_pool2d]),
    (3, [aten.max_pool3d_with_indices, aten.avg_pool3d, aten.adaptive_max_pool3d]),
):
    for _op, _rule in zip(_ops, (_max_pool, _avg_pool, _adaptive_max_pool), strict=True):
        RULES.add(_op.default)(_rule(_dims))
for _dims, _ops in (
    (
        2,
        [
            aten.max_pool2d_with_indices_backward,
            aten.avg_pool2d_backward,
            aten.adaptive_max_pool2d_backward,
        ],
    ),
    (
        3,
        [
            aten.max_pool3d_with_indices_backward,
            aten.avg_pool3d_backward,
            aten.adaptive_max_pool3d_backward,
        ],
    ),
):
    _rules = (_max_pool_backward, _avg_pool_backward, _adaptive_max_pool_backward)
    for _op, _rule in zip(_ops, _rules, strict=True):
        RULES.add(_op.default)(_rule(_dims))


@RULES.add(aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool3d(self: torch.Tensor, output_size: Any) -> torch.Tensor:
    """Return the means of windows that cover volumes evenly."""
    if not _floating(self) or not whole(output_size):
        return NotImplemented
    found = pooling.adaptive_avg_pool(volume(self, 3), three(output_size, 3, 1))
    return of_volume(found, 3, self)


@RULES.add(aten._adaptive_avg_pool3d_backward.default)
def adaptive_avg_pool3d_backward(grad_output: torch.Tensor, self: torch.Tensor) -> torch.Tensor:
    """Return the gradient of those means."""
    if not _floating(grad_output, self):
        return NotImplemented
    found = pooling.adaptive_avg_pool_backward(volume(grad_output, 3), volume(self, 3))
    return of_volume(found, 3, self)


@RULES.add(aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(self: torch.Tensor, output_size: Any) -> torch.Tensor:
    """Return the means of windows that cover pictures evenly."""
    if not _floating(self) or not whole(output_size):
        return NotImplemented
    pair = three(output_size, 2, 1)[1:]
    return laid_out(functional.adaptive_avg_pool2d(self, pair), self)


@RULES.add(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool2d_backward(grad_output: torch.Tensor, self: torch.Tensor) -> torch.Tensor:
    """Return the gradient of those means."""
    if not _floating(grad_output, self):
        return NotImplemented
    return laid_out(pictures.adaptive_avg_pool2d_backward(grad_output, self), self)
