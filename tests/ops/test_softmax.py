"""softmax, log_softmax and their gradients."""

from typing import Any

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F

PAIRS = [(F.softmax, torch.softmax), (F.log_softmax, torch.log_softmax)]
both = pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=["softmax", "log_softmax"])

SAMPLES = [
    Sample((torch.randn(3, 5, 37) * 4, -1)),
    Sample((torch.randn(3, 19, 21) * 4, 1)),
    Sample((torch.randn(9, 2, 5) * 4, 0)),
]
EDGES = [
    Sample((torch.empty(0, 3, 4), -1)),
    Sample((torch.empty(2, 0, 4), 1)),
    Sample((torch.randn(4, 1, 1), 1)),
    Sample(
        (
            torch.tensor(
                [[[1.0, float("-inf"), 3.0], [float("-inf")] * 3, [1.0, float("nan"), 2.0]]]
            ),
            2,
        )
    ),
    Sample((torch.tensor([[[1.0e30, -1.0e30, 0.0], [float("inf"), 0.0, 1.0]]]), -1)),
]


@pytest.mark.parametrize("device", checks.DEVICES)
@both
def test_values_in_every_layout(ours: Any, theirs: Any, device: str) -> None:
    checks.check_values(ours, theirs, SAMPLES, device, torch.float32)
    checks.check_values(ours, theirs, EDGES, device, torch.float32, ["contiguous", "strided"])


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_values_of_other_dtypes(dtype: torch.dtype, device: str) -> None:
    checks.check_values(F.softmax, torch.softmax, SAMPLES, device, dtype, ["contiguous"])


@pytest.mark.slow
@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_logarithms_of_other_dtypes(dtype: torch.dtype, device: str) -> None:
    checks.check_values(F.log_softmax, torch.log_softmax, SAMPLES, device, dtype, ["contiguous"])
    checks.check_gradients(F.log_softmax, torch.log_softmax, SAMPLES[:1], device, dtype)


@pytest.mark.parametrize("device", checks.DEVICES)
def test_a_dtype_to_cast_to(device: str) -> None:
    x = torch.randn(2, 3, 33, device=device, dtype=torch.bfloat16, requires_grad=True)
    y = F.softmax(x, -1, torch.float32)
    checks.close(y, torch.softmax(x, -1, torch.float32))
    g = torch.randn_like(y)
    (found,) = torch.autograd.grad(y, x, g)
    (wanted,) = torch.autograd.grad(torch.softmax(x, -1, torch.float32), x, g)
    checks.close(found, wanted)


@pytest.mark.parametrize("device", checks.DEVICES)
@both
def test_gradients(ours: Any, theirs: Any, device: str) -> None:
    checks.check_gradients(ours, theirs, SAMPLES, device)


@pytest.mark.parametrize("device", checks.DEVICES)
def test_gradients_of_a_half(device: str) -> None:
    checks.check_gradients(F.softmax, torch.softmax, SAMPLES[:1], device, torch.bfloat16)


@both
def test_finite_differences(ours: Any, theirs: Any) -> None:
    checks.check_gradcheck(lambda x: ours(x, 1), [Sample((torch.randn(2, 3, 4),))])


def test_second_derivatives() -> None:
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: F.softmax(x, 1), (x,))
    assert torch.autograd.gradgradcheck(lambda x: F.log_softmax(x, 1), (x,))


@pytest.mark.parametrize("device", checks.DEVICES)
def test_operator(device: str) -> None:
    checks.check_operator(torch.ops.mojo.softmax.default, SAMPLES[:1], device)
    y = torch.softmax(SAMPLES[1].args[0], 1)
    backward = torch.ops.mojo.softmax_backward.default
    checks.check_operator(backward, [Sample((torch.randn_like(y), y, 1))], device)


def test_vmap() -> None:
    x = torch.randn(3, 4, 5)
    for dim in (0, 1, -1):
        checks.check_vmap(
            lambda x, dim=dim: F.softmax(x, dim),
            lambda x, dim=dim: torch.softmax(x, dim),
            [((x,), (0,)), ((x,), (1,)), ((x,), (-1,))],
        )
    assert torch.equal(torch.vmap(lambda x: F.softmax(x, 0))(torch.randn(3)), torch.ones(3))


def test_autocast_computes_in_float32() -> None:
    x = torch.randn(2, 3, 33, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        assert F.softmax(x, -1).dtype == torch.float32


def test_what_is_refused() -> None:
    x = torch.randn(2, 3, 4)
    with pytest.raises((IndexError, RuntimeError), match="dim=3"):
        F.softmax(x, 3)
    with pytest.raises((TypeError, RuntimeError), match="int64"):
        F.softmax(torch.ones(2, 3, dtype=torch.int64), 0)


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize("columns", [70000, 1000, 4096, 8200])
def test_large(columns: int, device: str) -> None:
    x = torch.randn(2, 200000 // columns, columns)
    checks.check_values(F.softmax, torch.softmax, [Sample((x, -1))], device, None, ["contiguous"])
    checks.check_values(F.softmax, torch.softmax, [Sample((x, 1))], device, None, ["contiguous"])
    checks.check_gradients(F.softmax, torch.softmax, [Sample((x, -1))], device)


def test_builds_for_a_gpu() -> None:
    x = torch.randn(2, 3, 4)
    forward = cross_build(torch.ops.mojo.softmax.default, x, -1)
    backward = cross_build(torch.ops.mojo.softmax_backward.default, x, x, -1)
    assert b".target sm_90" in forward.read_bytes() and b".target sm_90" in backward.read_bytes()
