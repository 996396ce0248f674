"""silu_mul."""

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F

SAMPLES = [
    Sample((torch.randn(3, 7) * 3, torch.randn(3, 7))),
    Sample((torch.randn(3, 1), torch.randn(3, 7))),
    Sample((torch.randn(0, 7), torch.randn(1, 7))),
]


def reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate) * up


@pytest.mark.parametrize("device", checks.DEVICES)
def test_values(device: str) -> None:
    checks.check_values(F.silu_mul, reference, SAMPLES, device)
    far = torch.tensor([[-1e30, -200.0, -90.0, 0.0, 90.0, 1e30, float("inf"), float("nan")]])
    checks.check_values(F.silu_mul, reference, [Sample((far, far))], device, layouts=["contiguous"])


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)],
)
def test_dtypes(dtype: torch.dtype, device: str) -> None:
    checks.check_values(F.silu_mul, reference, SAMPLES[:1], device, dtype, ["contiguous"])
    checks.check_gradients(F.silu_mul, reference, SAMPLES[:1], device, dtype)


@pytest.mark.parametrize("device", checks.DEVICES)
def test_large(device: str) -> None:
    gate, up = torch.randn(700, 1031, device=device), torch.randn(700, 1031, device=device)
    checks.close(F.silu_mul(gate, up), reference(gate, up))


@pytest.mark.parametrize("device", checks.DEVICES)
def test_gradients(device: str) -> None:
    checks.check_gradients(F.silu_mul, reference, SAMPLES, device)


def test_gradcheck() -> None:
    checks.check_gradcheck(F.silu_mul, [Sample((torch.randn(2, 1), torch.randn(2, 3)))])


def test_operator() -> None:
    checks.check_operator(torch.ops.mojo.silu_mul.default, SAMPLES[:2])
    x = torch.randn(3, 7)
    checks.check_operator(torch.ops.mojo.silu_mul_backward.default, [Sample((x, x, x))], grad=False)


def test_vmap() -> None:
    gate, up = torch.randn(3, 4), torch.randn(4, 3)
    checks.check_vmap(F.silu_mul, reference, [((gate, up), (0, 1)), ((gate, up[:, 0]), (0, None))])


def test_errors() -> None:
    x = torch.ones(3)
    with pytest.raises((TypeError, RuntimeError), match=r"\[mojo::silu_mul\].*int64"):
        F.silu_mul(x.long(), x.long())


def test_builds_for_a_gpu() -> None:
    x = torch.randn(3, 5)
    for op, args in [
        (torch.ops.mojo.silu_mul.default, (x, x)),
        (torch.ops.mojo.silu_mul_backward.default, (x, x, x)),
    ]:
        assert b".target sm_90" in cross_build(op, *args).read_bytes()
