"""ceil."""

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F

SAMPLES = [
    Sample((torch.tensor([-1.5, -0.2, 0.0, 0.2, 1.0, 2.7, float("inf"), float("nan")]),)),
    Sample((torch.randn(3, 5) * 4,)),
    Sample((torch.empty(0, 3),)),
    Sample((torch.tensor(1.25),)),
]


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize("dtype", [*checks.FLOATS])
def test_values(dtype: torch.dtype, device: str) -> None:
    checks.check_values(F.ceil, torch.ceil, SAMPLES, device, dtype)


def test_integers_stay_and_bool_is_refused() -> None:
    x = torch.arange(-3, 3)
    assert torch.equal(F.ceil(x), x)
    with pytest.raises((TypeError, RuntimeError), match="bool"):
        F.ceil(torch.tensor([True]))


def test_gradients() -> None:
    checks.check_gradients(F.ceil, torch.ceil, SAMPLES[1:2], "cpu")


def test_operator() -> None:
    checks.check_operator(torch.ops.mojo.ceil.default, SAMPLES[1:3])


def test_vmap() -> None:
    x = torch.randn(3, 4)
    checks.check_vmap(F.ceil, torch.ceil, [((x,), (0,)), ((x,), (1,))])


def test_builds_for_a_gpu() -> None:
    assert (
        b".target sm_90" in cross_build(torch.ops.mojo.ceil.default, torch.randn(3, 5)).read_bytes()
    )


def test_dimensions_of_one_element() -> None:
    """A stride that nobody steps over changes nothing."""
    for x in (
        torch.randn(173, 2)[:, :1],
        torch.randn(20, 3)[:, 1:2],
        torch.randn(4, 6, 3)[:, ::2, :1],
        torch.randn(1, 6, 3)[:, ::2, 1:2],
    ):
        assert torch.equal(F.ceil(x), x.ceil())
