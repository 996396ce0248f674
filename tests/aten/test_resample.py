"""Upsampling and grid_sample."""

import functools
from typing import Any

import pytest
import torch
from against import agree, same, strided, traces, values
from cross import cross_build

from torch_mojo.aten import resampling
from torch_mojo.aten.decompositions import DECOMPOSITIONS

aten = torch.ops.aten
close = functools.partial(agree, strides=True, tolerance=1e-5)
SIZES = [(9, 5, 11), (4, 13, 3), (7, 9, 8), (1, 1, 1), (14, 18, 16)]
NEAREST = [
    (f"{kind}{d}d", d)
    for d in (1, 2, 3)
    for kind in ("upsample_nearest", "_upsample_nearest_exact")
]
LINEAR = [
    ("upsample_linear1d", 1),
    ("upsample_bilinear2d", 2),
    ("upsample_bicubic2d", 2),
    ("upsample_trilinear3d", 3),
]
QUICK = {"upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d"}


def quick(ops: list[tuple[str, int]]) -> list[Any]:
    return [o if o[0] in QUICK else pytest.param(*o, marks=pytest.mark.slow) for o in ops]


def pictures(dims: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return values(2, 3, *(7, 9, 8)[:dims], dtype=dtype)


def check(name: str, x: torch.Tensor, sizes: tuple[int, ...], *rest: Any) -> None:
    op, back = getattr(aten, name).default, getattr(aten, f"{name}_backward").default
    close(op, x, sizes, *rest)
    grad = values(*x.shape[:2], *sizes, dtype=x.dtype)
    close(back, grad, sizes, x.shape, *rest)


@pytest.mark.parametrize(("name", "dims"), quick(NEAREST))
def test_nearest(name: str, dims: int) -> None:
    torch.manual_seed(0)
    for sizes in SIZES:
        check(name, pictures(dims), sizes[:dims])
    scales = (1.3, 0.6, 2.7)[:dims]
    sizes = tuple(int(n * s) for n, s in zip((7, 9, 8), scales, strict=False))
    check(name, pictures(dims), sizes, *scales)


@pytest.mark.parametrize(("name", "dims"), quick(LINEAR))
def test_linear_and_cubic(name: str, dims: int) -> None:
    torch.manual_seed(1)
    for align in (False, True):
        for sizes in SIZES:
            check(name, pictures(dims), sizes[:dims], align)
        scales = (1.3, 0.6, 2.7)[:dims]
        sizes = tuple(int(n * s) for n, s in zip((7, 9, 8), scales, strict=False))
        check(name, pictures(dims), sizes, align, *scales)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dims"), [*NEAREST, *LINEAR])
def test_layouts(name: str, dims: int) -> None:
    rest = () if "nearest" in name else (False,)
    x = pictures(dims)
    sizes = SIZES[0][:dims]
    found = DECOMPOSITIONS[getattr(aten, name).default](strided(x), sizes, *rest)
    same(found, getattr(aten, name)(x, sizes, *rest), 1e-5)
    if dims > 1:
        last = torch.channels_last if dims == 2 else torch.channels_last_3d
        x = x.contiguous(memory_format=last)
        close(getattr(aten, name).default, x, sizes, *rest)
        grad = values(2, 3, *sizes).contiguous(memory_format=last)
        close(getattr(aten, f"{name}_backward").default, grad, sizes, x.shape, *rest)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype) -> None:
    near = functools.partial(agree, tolerance={torch.float64: 1e-12}.get(dtype, 3e-2))
    near(aten.upsample_bilinear2d.default, pictures(2, dtype), (9, 5), False)
    near(aten.upsample_bicubic2d.default, pictures(2, dtype), (9, 5), True)
    near(aten.upsample_nearest2d.default, pictures(2, dtype), (9, 5))


@pytest.mark.slow
def test_bytes() -> None:
    agree(aten.upsample_nearest2d.default, pictures(2, torch.uint8), (9, 5))
    bilinear = DECOMPOSITIONS[aten.upsample_bilinear2d.default]
    assert bilinear(pictures(2, torch.uint8), (9, 5), False) is NotImplemented


def test_grid_sample() -> None:
    torch.manual_seed(2)
    x, grid = torch.randn(2, 3, 5, 6), torch.rand(2, 4, 7, 2) * 2.4 - 1.2
    grad = torch.randn(2, 3, 4, 7)
    agree(aten.grid_sampler_2d.default, x, grid, 0, 1, False, tolerance=1e-5)
    back = aten.grid_sampler_2d_backward.default
    agree(back, grad, x, grid, 0, 1, False, [True, True], tolerance=1e-4)


def test_traces_with_symbolic_sizes() -> None:
    # torch's Python dispatcher has the forward ones as pointwise code before a table is asked
    linear = DECOMPOSITIONS[aten.upsample_bilinear2d.default]
    nearest = DECOMPOSITIONS[aten.upsample_nearest2d.default]

    def run(x: torch.Tensor) -> list[torch.Tensor]:
        sizes = [x.shape[2] + 3, 8]
        made = nearest(x, sizes)
        back = aten.upsample_nearest2d_backward.default(made, sizes, list(x.shape))
        return [linear(x, sizes, False), made, back]

    traces(run, (values(2, 3, 4, 8),), (values(3, 2, 8, 4),))


@pytest.mark.slow
@pytest.mark.parametrize("mode", resampling.MODES)
def test_builds_for_a_gpu(mode: str) -> None:
    x = pictures(3)
    for function, args in (
        (resampling.FORWARD[mode], (x, 0.0, 0.0, 0.0, 0, 3, [2, 2, 2], None)),
        (resampling.BACKWARD[mode], (x, 0.0, 0.0, 0.0, 0, [2, 2, 2], None)),
    ):
        _ = function.op
        assert b".target sm_90" in cross_build(function._overload, *args).read_bytes()
