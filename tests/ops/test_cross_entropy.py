"""cross_entropy and its gradient."""

from typing import Any

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F

torch_ce = torch.nn.functional.cross_entropy
devices = pytest.mark.parametrize("device", checks.DEVICES)


def logits(*shape: int, ignore: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    classes = shape[1] if len(shape) > 1 else shape[0]
    labels = torch.randint(0, classes, [*shape[:1], *shape[2:]] if len(shape) > 1 else [])
    if ignore and labels.numel() > 2:
        labels.view(-1)[1] = -100
    return torch.randn(shape) * 3, labels


def mean(x: torch.Tensor, labels: torch.Tensor) -> Any:
    return F.cross_entropy(x, labels)


@devices
def test_values_in_every_layout(device: str) -> None:
    samples = [Sample(logits(7, 37)), Sample(logits(33, 5)), Sample(logits(1, 1, ignore=False))]
    checks.check_values(mean, torch_ce, samples, device, torch.float32)


@devices
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weight"])
@pytest.mark.parametrize("reduction", ["mean", pytest.param("sum", marks=pytest.mark.slow), "none"])
def test_reductions_weights_smoothing(reduction: str, weighted: bool, device: str) -> None:
    if weighted and reduction == "none":
        pytest.skip("the weights are the same code for every reduction")
    x, labels = logits(40, 37)
    weight = torch.rand(37, device=device) if weighted else None
    for smoothing in (0.0, 0.2):
        how = {"reduction": reduction, "label_smoothing": smoothing, "weight": weight}

        def ours(x: Any, y: Any, how: Any = how) -> Any:
            return F.cross_entropy(x, y, **how)

        def theirs(x: Any, y: Any, how: Any = how) -> Any:
            return torch_ce(x, y, **how)

        given = [Sample((x, labels))]
        checks.check_values(ours, theirs, given, device, torch.float32, ["contiguous"])
        checks.check_gradients(ours, theirs, given, device, scale=2)


@devices
def test_images(device: str) -> None:
    given = [Sample(logits(2, 11, 19)), Sample(logits(3, 4, 1)), Sample(logits(2, 5, 40))]
    checks.check_values(mean, torch_ce, given, device, torch.float32, ["contiguous"])
    checks.check_gradients(mean, torch_ce, given, device)


@devices
def test_another_number_to_ignore(device: str) -> None:
    x, labels = logits(40, 37)
    labels[3] = 5
    x, labels = x.to(device).requires_grad_(), labels.to(device).clamp(min=5)
    found, wanted = (f(x, labels, ignore_index=5) for f in (F.cross_entropy, torch_ce))
    checks.close(found, wanted)
    checks.close(*(torch.autograd.grad(y, x)[0] for y in (found, wanted)))


@pytest.mark.slow
@devices
def test_one_item(device: str) -> None:
    given = [Sample(logits(37))]
    checks.check_values(mean, torch_ce, given, device, torch.float32, ["contiguous"])
    checks.check_gradients(mean, torch_ce, given, device)


@devices
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)]
)
def test_halves(dtype: torch.dtype, device: str) -> None:
    given = [Sample(logits(9, 40))]
    checks.check_values(mean, torch_ce, given, device, dtype, ["contiguous"])
    checks.check_gradients(mean, torch_ce, given, device, dtype)


@devices
def test_masked_and_empty(device: str) -> None:
    x, labels = (t.to(device) for t in logits(6, 37, ignore=False))
    x[0, :20] = float("-inf")
    x[2] = float("-inf")
    x[4, 3] = float("nan")
    labels[0] = 30
    found = F.cross_entropy(x, labels, reduction="none")
    checks.close(found, torch_ce(x, labels, reduction="none"))
    assert F.cross_entropy(x[:0], labels[:0]).isnan()
    assert F.cross_entropy(x, torch.full_like(labels, -100)).isnan()
    assert F.cross_entropy(x[:0], labels[:0], reduction="none").shape == (0,)


def test_finite_differences() -> None:
    x, labels = logits(4, 5)
    for smoothing in (0.0, 0.3):
        checks.check_gradcheck(
            lambda x, s=smoothing: F.cross_entropy(x, labels, label_smoothing=s), [Sample((x,))]
        )


@devices
def test_operators(device: str) -> None:
    x, labels = logits(7, 37)
    ops = torch.ops.mojo
    given = (x, labels, None, -100, "mean", 0.0)
    checks.check_operator(ops.cross_entropy_forward.default, [Sample(given)], device)
    lse, total = x.logsumexp(1), torch.tensor([6.0, 37.0])
    back = Sample((torch.tensor(1.0), x, labels, None, lse, total, -100, "mean", 0.0))
    checks.check_operator(ops.cross_entropy_backward.default, [back], device, grad=False)


def test_vmap() -> None:
    x, labels = torch.randn(3, 7, 37), torch.randint(0, 37, (3, 7))
    checks.check_vmap(mean, torch_ce, [((x, labels), (0, 0)), ((x, labels[0]), (0, None))])


def test_autocast_computes_in_float32() -> None:
    x, labels = logits(7, 37)
    with torch.autocast("cpu", torch.bfloat16):
        assert F.cross_entropy(x.bfloat16(), labels).dtype == torch.float32


def test_what_is_refused() -> None:
    x, labels = logits(7, 37)
    errors = (ValueError, TypeError, NotImplementedError, RuntimeError)
    for call, text in (
        (lambda: F.cross_entropy(x, labels.clamp(min=37)), "class 37"),
        (lambda: F.cross_entropy(x, -labels.clamp(min=1)), "class -"),
        (lambda: F.cross_entropy(x, x.softmax(1)), "probabilities"),
        (lambda: F.cross_entropy(x, labels[1:]), r"target \[6\]"),
        (lambda: F.cross_entropy(x, labels, torch.ones(3)), "37 classes"),
        (lambda: F.cross_entropy(x, labels, reduction="max"), "reduction='max'"),
        (lambda: F.cross_entropy(x, labels, label_smoothing=1.5), "label_smoothing=1.5"),
    ):
        with pytest.raises(errors, match=text):
            call()


@devices
@pytest.mark.parametrize("classes", [50257, 4096])
def test_large(classes: int, device: str) -> None:
    given = [Sample(logits(300000 // classes, classes))]
    checks.check_values(mean, torch_ce, given, device, None, ["contiguous"])
    checks.check_gradients(mean, torch_ce, given, device)


def test_builds_for_a_gpu() -> None:
    x, labels = logits(7, 37)
    ops = torch.ops.mojo
    forward = cross_build(ops.cross_entropy_forward.default, x, labels, None, -100, "mean", 0.1)
    lse, total = x.logsumexp(1), torch.ones(2)
    given = (torch.tensor(1.0), x, labels, None, lse, total, -100, "mean", 0.1)
    backward = cross_build(ops.cross_entropy_backward.default, *given)
    assert b".target sm_90" in forward.read_bytes() and b".target sm_90" in backward.read_bytes()
