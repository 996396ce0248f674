"""Running results, medians and modes."""

from typing import Any

import pytest
import torch
from against import DTYPES, agree, same, strided, traces, values
from cross import cross_build

from torch_mojo import aten as ours
from torch_mojo.aten.decompositions import DECOMPOSITIONS

aten = torch.ops.aten
nan, inf = float("nan"), float("inf")
PRECISE = {torch.float64: 1e-12, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def special() -> torch.Tensor:
    return torch.tensor([1.0, 2.0, nan, 3.0, inf, -inf, -inf, 2.0, 2.0, -1.0]).repeat(2, 2, 1)


@pytest.mark.parametrize("op", [aten.cumprod.default, aten.logcumsumexp.default], ids=str)
def test_sums(op: Any) -> None:
    torch.manual_seed(0)
    x = values(3, 70, 2)
    for dim in (0, 1, -1):
        agree(op, x, dim, tolerance=1e-6)
        agree(op, strided(x), dim, tolerance=1e-6)
    agree(op, special(), 2, tolerance=1e-6)
    agree(op, special().flip(2), 2, tolerance=1e-6)
    agree(op, torch.full((1, 1, 4), -inf), 2)
    agree(op, x[:, :0], 1)


def test_cumsum_in_order() -> None:
    x = values(3, 70, 2)
    same(ours.cumsum(x, 1), x.cumsum(1), 1e-6)


@pytest.mark.parametrize("op", [aten.cummax.default, aten.cummin.default], ids=str)
def test_extremes(op: Any) -> None:
    torch.manual_seed(1)
    x = values(3, 70, 2).round()
    for dim in (0, 1, -1):
        agree(op, x, dim)
        agree(op, strided(x), dim)
    agree(op, special(), 2)
    agree(op, x[:, :0], 1)


def test_medians_and_modes() -> None:
    torch.manual_seed(2)
    for n in (1, 2, 7, 40):
        x = torch.stack([torch.randperm(n) for _ in range(6)], 1).reshape(n, 3, 2).float()
        y = x.clone()
        y[0, 0, 0] = nan
        for keepdim in (False, True):
            agree(aten.median.dim, x, 0, keepdim)
            agree(aten.median.dim, y, -3, keepdim)
            agree(aten.nanmedian.dim, y, 0, keepdim)
        modes = x // 3
        value, index = DECOMPOSITIONS[aten.mode.default](modes, 0)
        same(value, modes.mode(0)[0])
        same(modes.gather(0, index[None])[0], value)
        agree(aten.median.default, x)
        agree(aten.median.default, y)
        agree(aten.nanmedian.default, y)
    agree(aten.median.default, torch.empty(0, 2, 3))


def test_traces_with_symbolic_sizes() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            *x.cummax(1),
            x.cumprod(0),
            x.logcumsumexp(-1),
            *x.median(1),
            x.nanmedian(),
            x.mode(2)[0],
        ]

    traces(
        run,
        (torch.randperm(60).reshape(4, 3, 5) / 60,),
        (torch.randperm(84).reshape(2, 7, 6) / 84,),
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_dtypes(dtype: torch.dtype) -> None:
    x = values(3, 10, 2, dtype=dtype)
    agree(aten.cummax.default, x, 1)
    if dtype.is_floating_point:
        agree(aten.cumprod.default, x, 1, tolerance=PRECISE[dtype])
        agree(aten.logcumsumexp.default, x, 1, tolerance=PRECISE[dtype])
    elif dtype != torch.bool:
        agree(aten.cumprod.default, x, 1)
        agree(aten.cumprod.default, x, 1, dtype=torch.float32)
    if dtype != torch.bool:
        same(DECOMPOSITIONS[aten.median.dim](x, 1)[0], x.median(1)[0])


@pytest.mark.slow
def test_builds_for_a_gpu() -> None:
    x = values(4, 3, 5)
    for function in (ours.cummax, ours.logcumsumexp, ours.cumprod):
        _ = function.op
        assert b".target sm_90" in cross_build(function._overload, x, 1).read_bytes()
    _ = ours.mode_of_sorted.op
    library = cross_build(ours.mode_of_sorted._overload, x, x.long(), 1)
    assert b".target sm_90" in library.read_bytes()
