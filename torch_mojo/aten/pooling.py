"""Pooling of volumes (N, C, D, H, W). Pictures are volumes of depth 1.

A window's numbers are its size k, stride s, padding p and dilation l, each for D, H and W. Gradients are gathered: they
are the same every time.
"""

import torch

from torch_mojo.aten.indexing import NAMESPACE
from torch_mojo.functional.builtin import kernel

Pair = tuple[torch.Tensor, torch.Tensor]


def count_of(size: int, k: int, s: int, p: int, dilation: int, ceil: bool) -> int:
    """Return how many windows there are; the last one begins inside, or in the padding before."""
    free = size + 2 * p - dilation * (k - 1) - 1
    count = (free + (s - 1 if ceil else 0)) // s + 1
    if ceil and (count - 1) * s >= size + p:
        count -= 1
    return count


def _pair(shape: torch.Size | list[int], like: torch.Tensor) -> Pair:
    return like.new_empty(shape), like.new_empty(shape, dtype=torch.int64)


@kernel(namespace=NAMESPACE, file="aten_pool", kernel="aten_max_pool")
def max_pool(
    input: torch.Tensor,
    k0: int,
    k1: int,
    k2: int,
    s0: int,
    s1: int,
    s2: int,
    p0: int,
    p1: int,
    p2: int,
    l0: int,
    l1: int,
    l2: int,
    ceil_mode: bool,
) -> Pair:
    """Return the largest element of each window and its place in the volume: the first, or the last nan."""
    sizes = input.shape
    return _pair(
        [
            *sizes[:2],
            count_of(sizes[2], k0, s0, p0, l0, ceil_mode),
            count_of(sizes[3], k1, s1, p1, l1, ceil_mode),
            count_of(sizes[4], k2, s2, p2, l2, ceil_mode),
        ],
        input,
    )


@kernel(namespace=NAMESPACE, file="aten_pool", kernel="aten_max_pool_backward")
def max_pool_backward(
    grad_output: torch.Tensor,
    indices: torch.Tensor,
    input: torch.Tensor,
    k0: int,
    k1: int,
    k2: int,
    s0: int,
    s1: int,
    s2: int,
    p0: int,
    p1: int,
    p2: int,
    l0: int,
    l1: int,
    l2: int,
) -> torch.Tensor:
    """Return the gradient of `max_pool` with respect to its input, of which only the shape counts."""
    return grad_output.new_empty(input.shape)


@kernel(namespace=NAMESPACE, file="aten_pool", kernel="aten_avg_pool")
def avg_pool(
    input: torch.Tensor,
    k0: int,
    k1: int,
    k2: int,
    s0: int,
    s1: int,
    s2: int,
    p0: int,
    p1: int,
    p2: int,
    count_padding: int,
    divisor: int,
    ceil_mode: bool,
) -> torch.Tensor:
    """Return the mean of each window.

    Args:
        input: floating-point or int64, which is rounded towards 0.
        k0, k1, k2, s0, s1, s2, p0, p1, p2: the windows.
        count_padding: 1 to divide by all places of a window, 0 by those inside.
        divisor: what to divide by instead, or 0.
        ceil_mode: whether the last window may reach beyond the padding.
    """
    sizes = input.shape
    return input.new_empty(
        [
            *sizes[:2],
            count_of(sizes[2], k0, s0, p0, 1, ceil_mode),
            count_of(sizes[3], k1, s1, p1, 1, ceil_mode),
            count_of(sizes[4], k2, s2, p2, 1, ceil_mode),
        ]
    )


@kernel(namespace=NAMESPACE, file="aten_pool", kernel="aten_avg_pool_backward")
def avg_pool_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    k0: int,
    k1: int,
    k2: int,
    s0: int,
    s1: int,
    s2: int,
    p0: int,
    p1: int,
    p2: int,
    count_padding: int,
    divisor: int,
) -> torch.Tensor:
    """Return the gradient of `avg_pool` with respect to its input, of which only the shape counts."""
    return grad_output.new_empty(input.shape)


@kernel(namespace=NAMESPACE, file="aten_pool", kernel="aten_adaptive_max_pool")
def adaptive_max_pool(input: torch.Tensor, output_size: list[int]) -> Pair:
    """Return the largest element of windows that cover the input evenly, and its place."""
    return _pair([*input.shape[:2], *output_size], input)


@kernel(namespace=NAMESPACE, file="aten_pool", kernel="aten_adaptive_max_pool_backward")
def adaptive_max_pool_backward(
    grad_output: torch.Tensor, indices: torch.Tensor, input: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of `adaptive_max_pool` with respect to its input, of which only the shape counts."""
    return grad_output.new_empty(input.shape)


@kernel(namespace=NAMESPACE, file="aten_pool", kernel="aten_adaptive_avg_pool")
def adaptive_avg_pool(input: torch.Tensor, output_size: list[int]) -> torch.Tensor:
    """Return the mean of windows that cover the input evenly."""
    return input.new_empty([*input.shape[:2], *output_size])


@kernel(namespace=NAMESPACE, file="aten_pool", kernel="aten_adaptive_avg_pool_backward")
def adaptive_avg_pool_backward(grad_output: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
    """Return the gradient of `adaptive_avg_pool` with respect to its input, of which only the shape counts."""
    return grad_output.new_empty(input.shape)
