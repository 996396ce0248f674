"""topk and its gradient."""

from typing import Any

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F

devices = pytest.mark.parametrize("device", checks.DEVICES)


def different(*shape: int) -> torch.Tensor:
    """No two elements are equal, also in half precision: then torch's order is ours."""
    count = torch.Size(shape).numel()
    return ((torch.randperm(count) - count // 2) / 8).reshape(shape)


def first_of_equals(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True) -> Any:
    """What topk promises: equal elements come in their order."""
    values, indices = x.sort(dim=dim, descending=largest, stable=True)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


SAMPLES = [
    Sample((different(3, 5, 37), 4)),
    Sample((different(3, 19, 2), 3, 1)),
    Sample((different(9, 2, 5), 9, 0, False)),
    Sample((different(2, 3, 16), 1)),
    Sample((different(2, 3, 16), 0)),
    Sample((torch.empty(0, 3, 4), 2)),
]


@devices
def test_values_in_every_layout(device: str) -> None:
    for layout in checks.LAYOUTS:
        given = [s for s in SAMPLES if layout != "expanded" or s.args[2:3] != (0,)]
        checks.check_values(F.topk, first_of_equals, given, device, torch.float32, [layout])


@devices
def test_torch_agrees(device: str) -> None:
    checks.check_values(F.topk, torch.topk, SAMPLES, device, torch.float32, ["contiguous"])


@devices
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        torch.bfloat16,
        torch.int32,
        *(
            pytest.param(d, marks=pytest.mark.slow)
            for d in (torch.float16, torch.int64, torch.uint8)
        ),
    ],
)
def test_other_dtypes(dtype: torch.dtype, device: str) -> None:
    for k in (3, 60):
        x = different(2, 2, 60).to(device, dtype)
        for f, w in zip(F.topk(x, k), first_of_equals(x, k), strict=True):
            assert torch.equal(f, w)


@devices
def test_nan_equal_and_infinite(device: str) -> None:
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[[1.0, nan, 2.0, 2.0, -inf, nan, inf, 0.0, -0.0, 2.0]]], device=device)
    values, indices = F.topk(x, 10)
    assert indices.flatten().tolist() == [1, 5, 6, 2, 3, 9, 0, 7, 8, 4]
    checks.close(values, torch.topk(x, 10)[0])
    values, indices = F.topk(x, 10, largest=False)
    assert indices.flatten().tolist() == [4, 7, 8, 0, 2, 3, 9, 6, 1, 5]
    checks.close(values, torch.topk(x, 10, largest=False)[0])
    assert F.topk(torch.zeros(1, 1, 3000, device=device), 5)[1].flatten().tolist() == [
        0,
        1,
        2,
        3,
        4,
    ]


@devices
def test_gradients(device: str) -> None:
    checks.check_gradients(
        lambda x, *how: F.topk(x, *how)[0],
        lambda x, *how: torch.topk(x, *how)[0],
        SAMPLES[:3],
        device,
    )


def test_finite_differences() -> None:
    checks.check_gradcheck(lambda x: F.topk(x, 2, 1)[0], [Sample((different(2, 4, 2),))])
    x = different(2, 4, 2).double().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: F.topk(x * x, 2, 1)[0], (x,))


@devices
def test_operators(device: str) -> None:
    checks.check_operator(torch.ops.mojo.topk.default, SAMPLES[:1], device)
    back = Sample((torch.randn(2, 3, 4), torch.randint(0, 9, (2, 3, 4)), -1, 9))
    checks.check_operator(torch.ops.mojo.topk_backward.default, [back], device, grad=False)


def test_vmap() -> None:
    x = different(3, 4, 5)
    cases = [((x,), (0,)), ((x,), (2,))]
    checks.check_vmap(lambda x: F.topk(x, 2, 0), lambda x: torch.topk(x, 2, 0), cases)
    checks.check_vmap(lambda x: F.topk(x, 2), lambda x: torch.topk(x, 2), cases)


def test_what_is_refused() -> None:
    x = torch.randn(2, 3, 4)
    for call, text in (
        (lambda: F.topk(x, 5), "k=5"),
        (lambda: F.topk(x, -1), "k=-1"),
        (lambda: F.topk(x, 1, 3), "dim=3"),
        (lambda: F.topk(x.to(torch.complex64), 1), "complex"),
    ):
        with pytest.raises((ValueError, IndexError, TypeError, RuntimeError), match=text):
            call()


@devices
@pytest.mark.parametrize("k", [1, 50, 3000])
def test_large(k: int, device: str) -> None:
    x = torch.randn(2, 3, 50257, device=device)
    x[0, 0] = torch.arange(50257.0)  # each is better than all before
    x[1, 1] = x[1, 1].round()
    for f, w in zip(F.topk(x, k), first_of_equals(x, k), strict=True):
        assert torch.equal(f, w)


def test_builds_for_a_gpu() -> None:
    x = torch.randn(2, 3, 9)
    forward = cross_build(torch.ops.mojo.topk.default, x, 4)
    backward = cross_build(torch.ops.mojo.topk_backward.default, x, x.long(), -1, 20)
    assert b".target sm_90" in forward.read_bytes() and b".target sm_90" in backward.read_bytes()
