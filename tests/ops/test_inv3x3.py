"""inv3x3."""

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F


def matrices(*leading: int) -> torch.Tensor:
    """Matrices that are far from singular."""
    noise = torch.randn(*leading, 3, 3, generator=torch.Generator().manual_seed(3))
    return noise + 4 * torch.eye(3)


SAMPLES = [Sample((matrices(2, 5),)), Sample((matrices(0, 5),)), Sample((matrices(1, 1),))]


@pytest.mark.parametrize("device", checks.DEVICES)
def test_values(device: str) -> None:
    checks.check_values(F.inv3x3, torch.linalg.inv, SAMPLES, device)


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype: torch.dtype, device: str) -> None:
    checks.check_values(F.inv3x3, torch.linalg.inv, SAMPLES[:1], device, dtype, ["contiguous"])


@pytest.mark.parametrize("device", checks.DEVICES)
def test_one_matrix(device: str) -> None:
    checks.check_values(
        F.inv3x3, torch.linalg.inv, [Sample((matrices(),))], device, None, ["contiguous"]
    )


@pytest.mark.parametrize("device", checks.DEVICES)
def test_any_scale(device: str) -> None:
    a = matrices(1, 4).to(device)
    for scale in (1e-30, 1e-15, 1e15, 1e30):
        checks.close(F.inv3x3(a * scale) * scale, torch.linalg.inv(a))


@pytest.mark.parametrize("device", checks.DEVICES)
def test_singular_matrices_have_no_finite_inverse(device: str) -> None:
    a = torch.zeros(1, 3, 3, 3, device=device)
    a[0, 1] = torch.arange(3.0)
    a[0, 2] = torch.diag(torch.tensor([1.0, 2.0, 0.0]))
    assert not F.inv3x3(a).isfinite().any()


@pytest.mark.parametrize("device", checks.DEVICES)
def test_large(device: str) -> None:
    a = matrices(100, 1031).to(device)
    checks.close(F.inv3x3(a), torch.linalg.inv(a))


@pytest.mark.parametrize("device", checks.DEVICES)
def test_gradients(device: str) -> None:
    checks.check_gradients(F.inv3x3, torch.linalg.inv, SAMPLES, device)


def test_gradcheck() -> None:
    checks.check_gradcheck(F.inv3x3, [Sample((matrices(1, 2),))])
    a = matrices(1, 1).double().requires_grad_()
    assert torch.autograd.gradgradcheck(F.inv3x3, (a,))


def test_operator() -> None:
    checks.check_operator(torch.ops.mojo.inv3x3.default, SAMPLES[:1])


def test_vmap() -> None:
    a = matrices(4, 5)
    checks.check_vmap(F.inv3x3, torch.linalg.inv, [((a,), (0,)), ((a,), (1,))])


def test_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert F.inv3x3(matrices(1, 1).bfloat16()).dtype == torch.float32


def test_errors() -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"\[mojo::inv3x3\].*\(3, 4\)"):
        F.inv3x3(torch.ones(3, 4))
    with pytest.raises((TypeError, RuntimeError), match=r"\[mojo::inv3x3\].*int64"):
        F.inv3x3(torch.ones(3, 3, dtype=torch.int64))


def test_builds_for_a_gpu() -> None:
    a = matrices(2, 5)
    for op, args in [
        (torch.ops.mojo.inv3x3.default, (a,)),
        (torch.ops.mojo.inv3x3_backward.default, (a, a)),
    ]:
        assert b".target sm_90" in cross_build(op, *args).read_bytes()
