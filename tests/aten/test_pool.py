"""Pooling and its gradients."""

import functools
from typing import Any

import pytest
import torch
from against import agree, strided, traces, values
from cross import cross_build

from torch_mojo import aten as ours

aten = torch.ops.aten
nan, inf = float("nan"), float("inf")
exact = functools.partial(agree, strides=True)
close = functools.partial(agree, strides=True, tolerance=1e-6)
MAX = {2: aten.max_pool2d_with_indices, 3: aten.max_pool3d_with_indices}
MAX_BACK = {2: aten.max_pool2d_with_indices_backward, 3: aten.max_pool3d_with_indices_backward}
AVG = {2: aten.avg_pool2d, 3: aten.avg_pool3d}
AVG_BACK = {2: aten.avg_pool2d_backward, 3: aten.avg_pool3d_backward}
LAYOUTS = ["contiguous", "channels_last", "strided"]
WINDOWS = [  # size, stride, padding, dilation, ceil_mode
    ([2], [], [0], [1], False),
    ([3], [2], [1], [1], True),
    ([2], [1], [0], [2], False),
    ([3], [3], [1], [2], True),
]


def laid(x: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "channels_last":
        last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        return x.contiguous(memory_format=last)
    return strided(x) if layout == "strided" else x


def pictures(dims: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return values(2, 3, *(7, 9, 8)[:dims], dtype=dtype)


def test_max(dims: int = 2, layout: str = "contiguous") -> None:
    torch.manual_seed(0)
    for window in WINDOWS:
        x = laid(pictures(dims).round(), layout)
        exact(MAX[dims].default, x, *window)
        indices = MAX[dims].default(x, *window)[1]
        grad = laid(values(*indices.shape), layout)
        size, *rest = window
        close(MAX_BACK[dims].default, grad, x, size, rest[0] or size, *rest[1:], indices)


@pytest.mark.slow
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_max_layouts(dims: int, layout: str) -> None:
    test_max(dims, layout)


def test_max_of_nan_and_infinities() -> None:
    torch.manual_seed(1)
    x = pictures(2)
    x[x < -2] = -inf
    x[:, 0] = -inf
    x[x > 2.5] = nan
    for padding in (0, 1):
        exact(MAX[2].default, x, [3, 2], [], [padding])
    exact(aten.adaptive_max_pool2d.default, x, [3, 4])


def test_max_of_one_picture_and_of_none() -> None:
    exact(MAX[2].default, pictures(2)[0], [2, 3])
    exact(MAX[2].default, pictures(2)[:0], [2, 3])
    exact(MAX[2].default, pictures(2), [2, 3], [1, 2], [1, 0], [2, 1])


def test_avg(dims: int = 2, layout: str = "contiguous") -> None:
    torch.manual_seed(2)
    for size, stride, padding, _, ceil in WINDOWS:
        for count, divisor in ((True, None), (False, None), (True, 5)):
            x = laid(pictures(dims), layout)
            close(AVG[dims].default, x, size, stride, padding, ceil, count, divisor)
            grad = AVG[dims].default(x, size, stride, padding, ceil)
            grad = laid(values(*grad.shape), layout)
            more = (size, stride or size, padding, ceil, count, divisor)
            close(AVG_BACK[dims].default, grad, x, *more)


@pytest.mark.slow
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_avg_layouts(dims: int, layout: str) -> None:
    test_avg(dims, layout)


def test_avg_of_one_picture_and_of_none() -> None:
    close(AVG[2].default, pictures(2)[0], [2, 3], [1, 2], [1, 0])
    close(AVG[2].default, pictures(2)[:0], [2, 3])


@pytest.mark.parametrize(
    "layout",
    ["contiguous", *[pytest.param(name, marks=pytest.mark.slow) for name in LAYOUTS[1:]]],
)
def test_adaptive(layout: str) -> None:
    torch.manual_seed(3)
    x = laid(pictures(2), layout)
    for sizes in ([3, 4], [1, 1], [9, 10]):
        exact(aten.adaptive_max_pool2d.default, x, sizes)
        close(aten._adaptive_avg_pool2d.default, x, sizes)
        grad = laid(values(2, 3, *sizes), layout)
        indices = aten.adaptive_max_pool2d.default(x, sizes)[1]
        close(aten.adaptive_max_pool2d_backward.default, grad, x, indices)
        close(aten._adaptive_avg_pool2d_backward.default, grad, x)
    exact(aten.adaptive_max_pool2d.default, x[0], [2, 3])
    close(aten._adaptive_avg_pool2d.default, x[0], [2, 3])


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_adaptive_volumes(layout: str) -> None:
    x = laid(pictures(3), layout)
    for sizes in ([3, 4, 5], [1, 1, 1], [9, 10, 2]):
        exact(aten.adaptive_max_pool3d.default, x, sizes)
        close(aten._adaptive_avg_pool3d.default, x, sizes)
        grad = laid(values(2, 3, *sizes), layout)
        indices = aten.adaptive_max_pool3d.default(x, sizes)[1]
        close(aten.adaptive_max_pool3d_backward.default, grad, x, indices)
        close(aten._adaptive_avg_pool3d_backward.default, grad, x)


def test_traces_with_symbolic_sizes() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        value, index = MAX[2].default(x, [3, 3], [2, 2], [1, 1])
        mean = aten.avg_pool2d.default(x, [3, 2], [2])
        back = MAX_BACK[2].default(value, x, [3, 3], [2, 2], [1, 1], [1, 1], False, index)
        return [
            value,
            index,
            mean,
            back,
            torch.nn.functional.adaptive_avg_pool2d(x, (2, 3)),
            *torch.nn.functional.adaptive_max_pool2d(x, (2, 3), return_indices=True),
            torch.nn.functional.avg_pool1d(x[0], 2),
        ]

    # binary fractions, whose sums are exact
    traces(run, (pictures(2).round(),), (values(3, 2, 11, 10).round(),))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_dtypes(dtype: torch.dtype) -> None:
    near = functools.partial(agree, tolerance={torch.float64: 1e-12}.get(dtype, 2e-2))
    x = pictures(2, dtype)
    agree(MAX[2].default, x, [3], [2])
    near(AVG[2].default, x, [3], [2], [1])
    value, index = MAX[2].default(x, [3], [2])
    near(MAX_BACK[2].default, value, x, [3], [2], [0], [1], False, index)
    near(AVG_BACK[2].default, value, x, [3], [2], [0], False, True, None)


@pytest.mark.slow
def test_integers() -> None:
    agree(MAX[2].default, pictures(2, torch.int32), [3], [2])
    for divisor in (None, 3, -4):
        x = pictures(2, torch.int64)
        agree(AVG[2].default, x, [3], [2], [1], False, True, divisor)


@pytest.mark.slow
def test_builds_for_a_gpu() -> None:
    x = pictures(3)
    windows = [2, 2, 2, 2, 2, 2, 0, 0, 0]
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (ours.max_pool, (x, *windows, 1, 1, 1, False)),
        (ours.avg_pool, (x, *windows, 1, 0, False)),
        (ours.avg_pool_backward, (x, x, *windows, 1, 0)),
        (ours.max_pool_backward, (x, x.long(), x, *windows, 1, 1, 1)),
        (ours.adaptive_max_pool, (x, [2, 2, 2])),
        (ours.adaptive_avg_pool_backward, (x, x)),
    ]
    for function, args in calls:
        _ = function.op
        assert b".target sm_90" in cross_build(function._overload, *args).read_bytes()
