"""adaptive_avg_pool2d."""

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F

reference = torch.nn.functional.adaptive_avg_pool2d
SAMPLES = [
    Sample((torch.randn(2, 3, 8, 6), 2)),
    Sample((torch.randn(2, 3, 7, 13), (3, 5))),
    Sample((torch.randn(1, 2, 5, 4), (7, 9))),
    Sample((torch.randn(2, 3, 5, 33), (None, 1))),
    Sample((torch.randn(2, 1, 1, 1), (3, 1))),
]
EMPTY = [Sample((torch.randn(0, 3, 4, 4), 2)), Sample((torch.randn(1, 3, 4, 4), (0, 2)))]


@pytest.mark.parametrize("device", checks.DEVICES)
def test_values(device: str) -> None:
    checks.check_values(F.adaptive_avg_pool2d, reference, [*SAMPLES, *EMPTY], device)


@pytest.mark.parametrize("device", checks.DEVICES)
def test_one_picture(device: str) -> None:
    one = [Sample((torch.randn(3, 7, 13), (3, 5)))]
    checks.check_values(F.adaptive_avg_pool2d, reference, one, device, layouts=["contiguous"])


@pytest.mark.parametrize("device", checks.DEVICES)
def test_channels_last(device: str) -> None:
    x = torch.randn(2, 19, 7, 13, device=device).to(memory_format=torch.channels_last)
    checks.close(F.adaptive_avg_pool2d(x, (3, 5)), reference(x, (3, 5)))


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)],
)
def test_dtypes(dtype: torch.dtype, device: str) -> None:
    some = SAMPLES[1:2]
    checks.check_values(F.adaptive_avg_pool2d, reference, some, device, dtype, ["contiguous"])


@pytest.mark.parametrize("device", checks.DEVICES)
def test_large(device: str) -> None:
    x = torch.randn(8, 32, 100, 101, device=device, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    for size in (1, 7, (50, 101), (120, 110)):
        ours, theirs = F.adaptive_avg_pool2d(x, size), reference(y, size)
        checks.close(ours, theirs)
        grad = torch.randn_like(theirs)
        checks.close(*(torch.autograd.grad(r, t, grad)[0] for r, t in ((ours, x), (theirs, y))))


@pytest.mark.parametrize("device", checks.DEVICES)
def test_gradients(device: str) -> None:
    checks.check_gradients(F.adaptive_avg_pool2d, reference, SAMPLES, device)


def test_gradcheck() -> None:
    for size in ((3, 5), (1, 2)):
        small = torch.randn(1, 2, 4, 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(F.adaptive_avg_pool2d, (small, size))
        assert torch.autograd.gradgradcheck(F.adaptive_avg_pool2d, (small, size))


def test_operator() -> None:
    x, grad = torch.randn(2, 3, 7, 13), torch.randn(2, 3, 3, 5)
    checks.check_operator(torch.ops.mojo.adaptive_avg_pool2d.default, [Sample((x, [3, 5]))])
    back = torch.ops.mojo.adaptive_avg_pool2d_backward.default
    checks.check_operator(back, [Sample((grad, x))], grad=False)


def test_vmap() -> None:
    x = torch.randn(2, 3, 7, 13)
    for dim in (0, 1):
        checks.check_vmap(F.adaptive_avg_pool2d, reference, [((x, (3, 5)), (dim, None))])


def test_errors() -> None:
    for x, size, message in [
        (torch.ones(2, 3), 1, r"\(2, 3\)"),
        (torch.ones(1, 1, 4, 4), (1, 2, 3), r"\[1, 2, 3\]"),
        (torch.ones(1, 1, 4, 4), (-1, 2), r"\[-1, 2\]"),
        (torch.ones(1, 1, 0, 4), 1, "only the batch"),
        (torch.ones(1, 1, 4, 4).int(), 1, "int32"),
    ]:
        with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
            F.adaptive_avg_pool2d(x, size)
    with pytest.raises((ValueError, RuntimeError), match=r"\[mojo::adaptive_avg_pool2d_backward\]"):
        F.adaptive_avg_pool2d_backward(torch.ones(2, 1, 2, 2), torch.ones(1, 1, 4, 4))


def test_builds_for_a_gpu() -> None:
    x, grad = torch.randn(2, 3, 7, 13), torch.randn(2, 3, 3, 5)
    for op, args in [
        (torch.ops.mojo.adaptive_avg_pool2d.default, (x, [3, 5])),
        (torch.ops.mojo.adaptive_avg_pool2d_backward.default, (grad, x)),
    ]:
        assert b".target sm_90" in cross_build(op, *args).read_bytes()
