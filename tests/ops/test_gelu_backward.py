"""gelu_backward."""

from functools import partial

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F


def aten(grad_output: torch.Tensor, x: torch.Tensor, approximate: str) -> torch.Tensor:
    """torch's, which takes no expanded tensors everywhere."""
    both = torch.broadcast_tensors(grad_output, x)
    return torch.ops.aten.gelu_backward(*(t.contiguous() for t in both), approximate=approximate)


FAR = torch.tensor([[-200.0, -14.0, -5.0, -0.0, 6.0, 90.0]])
SAMPLES = [
    Sample((torch.randn(3, 7), torch.randn(3, 7) * 3)),
    Sample((torch.randn(3, 1), torch.randn(3, 7))),
    Sample((torch.randn(0, 7), torch.randn(1, 7))),
]


def forms(approximate: str) -> tuple[partial[torch.Tensor], partial[torch.Tensor]]:
    return partial(F.gelu_backward, approximate=approximate), partial(aten, approximate=approximate)


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_values(approximate: str, device: str) -> None:
    ours, theirs = forms(approximate)
    checks.check_values(ours, theirs, SAMPLES, device)
    ends = [Sample((torch.ones(1, 6), FAR))]
    checks.check_values(ours, theirs, ends, device, layouts=["contiguous"])
    for end, slope in ((-1e30, 0), (1e30, 1), (float("inf"), 1), (float("nan"), float("nan"))):
        one = torch.ones(1, 1, device=device)  # torch has nan for some of these
        checks.close(ours(one, one * end), one * slope)


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)],
)
def test_dtypes(dtype: torch.dtype, device: str) -> None:
    checks.check_values(*forms("tanh"), SAMPLES[:1], device, dtype, ["contiguous"])


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_large(approximate: str, device: str) -> None:
    ours, theirs = forms(approximate)
    g, x = torch.randn(700, 1031, device=device), torch.randn(700, 1031, device=device)
    checks.close(ours(g, x), theirs(g, x))


@pytest.mark.parametrize("approximate", ["none", pytest.param("tanh", marks=pytest.mark.slow)])
def test_gradients(approximate: str) -> None:
    checks.check_gradients(*forms(approximate), SAMPLES[:2], "cpu")


@pytest.mark.parametrize("approximate", ["tanh", pytest.param("none", marks=pytest.mark.slow)])
def test_gradcheck(approximate: str) -> None:
    checks.check_gradcheck(forms(approximate)[0], [Sample((torch.randn(2, 1), torch.randn(2, 3)))])


def test_operator() -> None:
    checks.check_operator(torch.ops.mojo.gelu_backward.default, SAMPLES[1:2])


def test_vmap() -> None:
    g, x = torch.randn(3, 4), torch.randn(4, 3)
    checks.check_vmap(*forms("none"), [((g, x), (0, 1)), ((g, x[:, 0]), (0, None))])


def test_errors() -> None:
    x = torch.ones(3)
    with pytest.raises((ValueError, RuntimeError), match=r"\[mojo::gelu_backward\].*'exact'"):
        F.gelu_backward(x, x, approximate="exact")
    with pytest.raises((TypeError, RuntimeError), match=r"\[mojo::gelu_backward\].*int64"):
        F.gelu_backward(x.long(), x.long())


def test_builds_for_a_gpu() -> None:
    x = torch.randn(3, 5)
    assert b".target sm_90" in cross_build(torch.ops.mojo.gelu_backward.default, x, x).read_bytes()
