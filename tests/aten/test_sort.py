"""sort, argsort, topk, kthvalue."""

import pytest
import torch
from against import DTYPES, agree, same, strided, traces, values
from cross import cross_build

from torch_mojo import aten as ours
from torch_mojo.aten.decompositions import DECOMPOSITIONS

aten = torch.ops.aten
nan, inf = float("nan"), float("inf")


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
def test_sort(layout: str) -> None:
    torch.manual_seed(0)
    for seed, n in enumerate((1, 2, 31, 32, 33, 100, 300, 0)):
        for dim in range(3):
            shape = [3, 2, 2]
            shape[dim] = n
            x = values(*shape).round()
            x = strided(x) if layout == "strided" else x
            agree(aten.sort.stable, x, stable=True, dim=dim - 3 * (seed % 2), descending=n % 2 == 0)


def test_nan_zeros_and_infinities() -> None:
    x = torch.tensor([1.0, nan, 0.0, -0.0, inf, -inf, nan, -0.0, 0.0, 1.0]).repeat(2, 1, 7)
    for descending in (False, True):
        found, places = DECOMPOSITIONS[aten.sort.default](x, -1, descending)
        same(places, x.sort(stable=True, descending=descending)[1])
        same(found.signbit(), x.gather(2, places).signbit())


def test_sort_without_a_promise() -> None:
    x = torch.randperm(60).reshape(4, 3, 5).float()
    agree(aten.sort.default, x)
    agree(aten.sort.default, x, 1, True)
    agree(aten.argsort.default, x, 0)
    agree(aten.argsort.stable, x.round(), stable=True, dim=2, descending=True)
    agree(aten.msort.default, x)
    for keepdim in (False, True):
        agree(aten.kthvalue.default, x, 2, 1, keepdim)


def test_topk() -> None:
    x = torch.randperm(60).reshape(4, 3, 5).float()
    agree(aten.topk.default, x, 2)
    agree(aten.topk.default, x, 3, 0, False)


def test_a_long_row_is_merged() -> None:
    torch.manual_seed(1)
    for n in (70001, 131072):
        x = torch.randint(0, 1000, (1, 1, n)).float()
        agree(aten.sort.stable, x, stable=True)
        agree(aten.sort.stable, x, stable=True, descending=True)


def test_traces_with_symbolic_sizes() -> None:
    def order(x: torch.Tensor) -> list[torch.Tensor]:
        return [*x.sort(1), x.argsort(0), *x.topk(2), *x.kthvalue(2)]

    traces(order, (torch.randperm(60).reshape(4, 3, 5).float(),), (torch.rand(2, 7, 6),))


def test_what_is_left_to_torch() -> None:
    x = values(3).to(torch.complex64)
    assert DECOMPOSITIONS[aten.msort.default](x) is NotImplemented


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_dtypes(dtype: torch.dtype) -> None:
    for n in (20, 300):
        x = values(2, 3, n, dtype=dtype)
        agree(aten.sort.stable, x, stable=True)
        agree(aten.sort.stable, x, stable=True, descending=True)
    if not dtype.is_floating_point and dtype != torch.bool:
        edges = torch.tensor([[[torch.iinfo(dtype).max, 0, torch.iinfo(dtype).min, 1]]])
        agree(aten.sort.stable, edges.to(dtype), stable=True)


@pytest.mark.slow
def test_ranks() -> None:
    agree(aten.sort.default, torch.tensor(2.0))
    agree(aten.sort.stable, values(9), stable=True, dim=0)
    agree(aten.sort.stable, values(2, 3, 4, 5), stable=True, dim=1)


@pytest.mark.slow
def test_builds_for_a_gpu() -> None:
    _ = ours.sort.op
    for x in (values(4, 3, 5), values(4, 3, 5).long()):
        assert b".target sm_90" in cross_build(ours.sort._overload, x).read_bytes()
