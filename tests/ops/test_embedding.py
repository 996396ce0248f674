"""embedding_dense_backward."""

from typing import Any

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F

devices = pytest.mark.parametrize("device", checks.DEVICES)
ours = F.embedding_dense_backward
theirs = torch.ops.aten.embedding_dense_backward


def sample(*shape: int, rows: int = 20, padding: int = -1, scale: bool = False) -> Sample:
    return Sample((torch.randn(shape), torch.randint(0, rows, shape[:-1]), rows, padding, scale))


def reference(grad: torch.Tensor, indices: torch.Tensor, *how: Any) -> torch.Tensor:
    return theirs(grad.contiguous(), indices.contiguous(), *how)


@devices
def test_values_in_every_layout(device: str) -> None:
    samples = [
        sample(5, 9, 37),
        sample(3, 70, 8, padding=4),
        sample(0, 3, 4),
        sample(2, 1, 1, rows=1),
        sample(2, 3, 4, rows=90),
    ]
    checks.check_values(ours, reference, samples, device, torch.float32)


@devices
def test_means(device: str) -> None:
    given = [sample(5, 9, 37, scale=True), sample(3, 50, 8, padding=4, scale=True)]
    checks.check_values(ours, reference, given, device, torch.float32, ["contiguous"])


@devices
@pytest.mark.parametrize(
    "dtype",
    [
        torch.bfloat16,
        *(pytest.param(d, marks=pytest.mark.slow) for d in (torch.float64, torch.float16)),
    ],
)
def test_other_dtypes(dtype: torch.dtype, device: str) -> None:
    given = [sample(5, 90, 40, rows=7)]
    checks.check_values(ours, reference, given, device, dtype, ["contiguous"], scale=4)


def test_gradients() -> None:
    grad, indices, *how = sample(2, 7, 5, rows=6, padding=2).args
    for scale in (False, True):
        checks.check_gradcheck(
            lambda g, scale=scale: ours(g, indices, how[0], how[1], scale), [Sample((grad,))]
        )


@devices
def test_operator(device: str) -> None:
    grad, indices, rows, *_ = sample(2, 7, 5).args
    numbers, order = indices.reshape(-1).sort(stable=True)
    overload = torch.ops.mojo.embedding_sum.default
    grad = grad.reshape(-1, 5)
    given = Sample((grad, numbers, order, rows, -1, False))
    checks.check_operator(overload, [given], device)


def test_vmap() -> None:
    grad, indices = torch.randn(3, 4, 5, 8), torch.randint(0, 9, (3, 4, 5))
    checks.check_vmap(
        lambda g, i: ours(g, i, 9, -1, False),
        lambda g, i: reference(g, i, 9, -1, False),
        [((grad, indices), (0, 0))],
    )


def test_what_is_refused() -> None:
    grad, indices, *_ = sample(2, 7, 5).args
    for call, text in (
        (lambda: ours(grad, indices[:1], 20, -1, False), "one row for each index"),
        (lambda: ours(grad, indices + 20, 20, -1, False), "num_weights is 20"),
        (lambda: ours(grad, indices - 20, 20, -1, False), "num_weights is 20"),
    ):
        with pytest.raises((ValueError, RuntimeError), match=text):
            call()


@devices
@pytest.mark.parametrize("columns", [64, 6000])
def test_large(columns: int, device: str) -> None:
    given = [sample(2, 500, columns, rows=100)]
    checks.check_values(ours, reference, given, device, None, ["contiguous"], scale=4)
    one = Sample((torch.randn(2, 500, columns), torch.zeros(2, 500).long(), 100, -1, False))
    checks.check_values(ours, reference, [one], device, None, ["contiguous"], scale=4)


@devices
def test_few(device: str) -> None:
    def few(*args: Any) -> torch.Tensor:
        return F.embedding_sum_few(*args)[0]

    given = [sample(5, 9, 37), sample(3, 70, 8, padding=4, scale=True), sample(0, 3, 4)]
    checks.check_values(few, reference, given, device, torch.float32)
    checks.check_operator(torch.ops.mojo.embedding_sum_few.default, given[:1], device)
    grad, indices, *how = given[1].on(device).args
    _, numbers, order = F.embedding_sum_few(grad, indices, *how)
    for found, wanted in zip((numbers, order), indices.flatten().sort(stable=True), strict=True):
        assert torch.equal(found, wanted)
    indices[1, 2] = 20
    if device == "cpu":
        with pytest.raises(RuntimeError, match="num_weights is 20"):
            few(grad, indices, *how)


def test_builds_for_a_gpu() -> None:
    grad, indices, rows, *_ = sample(2, 7, 5).args
    numbers, order = indices.reshape(-1).sort(stable=True)
    built = cross_build(torch.ops.mojo.embedding_sum.default, grad, numbers, order, rows, -1, False)
    few = cross_build(torch.ops.mojo.embedding_sum_few.default, grad, indices, rows, -1, False)
    assert b".target sm_90" in built.read_bytes() and b".target sm_90" in few.read_bytes()
