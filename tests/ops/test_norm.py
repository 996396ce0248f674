"""rms_norm, add_rms_norm, layer_norm and their gradients."""

from typing import Any

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F

devices = pytest.mark.parametrize("device", checks.DEVICES)


def rms(x: torch.Tensor, weight: torch.Tensor, eps: float | None = None) -> Any:
    return F.rms_norm(x, weight.shape, weight, eps)


def torch_rms(x: torch.Tensor, weight: torch.Tensor, eps: float | None = None) -> Any:
    return torch.nn.functional.rms_norm(x, weight.shape, weight.to(x.dtype), eps)


def add_rms(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> Any:
    return F.add_rms_norm(x, residual, weight)


def torch_add_rms(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> Any:
    return torch_rms(x + residual, weight), x + residual


def layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    return F.layer_norm(x, weight.shape, weight, bias)


def torch_layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias)


def sample(*shape: int, tensors: int = 1, weights: int = 1, dims: int = 1) -> Sample:
    return Sample(
        (
            *(torch.randn(shape) + 0.5 for _ in range(tensors)),
            *(torch.randn(shape[-dims:]) for _ in range(weights)),
        )
    )


ALL = [
    pytest.param(rms, torch_rms, 1, 1, id="rms_norm"),
    pytest.param(add_rms, torch_add_rms, 2, 1, id="add_rms_norm"),
    pytest.param(layer, torch_layer, 1, 2, id="layer_norm"),
]
every = pytest.mark.parametrize(("ours", "theirs", "tensors", "weights"), ALL)


@devices
@every
def test_values_in_layouts(ours: Any, theirs: Any, tensors: int, weights: int, device: str) -> None:
    shapes = [(3, 5, 37), (2, 3, 64), (0, 2, 8), (4, 1, 1)]
    samples = [sample(*s, tensors=tensors, weights=weights) for s in shapes]
    layouts = list(checks.LAYOUTS) if ours is rms else ["contiguous", "strided"]
    checks.check_values(ours, theirs, samples, device, torch.float32, layouts)


@devices
@every
def test_gradients(ours: Any, theirs: Any, tensors: int, weights: int, device: str) -> None:
    # more rows than there are groups of rows, and fewer
    samples = [sample(*s, tensors=tensors, weights=weights) for s in [(7, 11, 37), (2, 3, 64)]]
    checks.check_gradients(ours, theirs, samples, device, scale=5)


@devices
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_values_of_other_dtypes(dtype: torch.dtype, device: str) -> None:
    checks.check_values(rms, torch_rms, [sample(2, 3, 37)], device, dtype, ["contiguous"])


@pytest.mark.slow
@devices
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every
def test_halves(
    ours: Any, theirs: Any, tensors: int, weights: int, dtype: torch.dtype, device: str
) -> None:
    given = [sample(4, 9, 40, tensors=tensors, weights=weights)]
    if ours is not add_rms:  # the reference does not round the sum that it normalizes
        checks.check_values(ours, theirs, given, device, dtype, ["contiguous"])
        checks.check_gradients(ours, theirs, given, device, dtype, scale=2)


@pytest.mark.slow
def test_a_sum_is_rounded_before_it_is_normalized() -> None:
    x, residual, weight = sample(2, 3, 40, tensors=2).on("cpu", torch.bfloat16).args
    found, total = F.add_rms_norm(x, residual, weight)
    assert torch.equal(total, x + residual)
    checks.close(found, torch_rms(total.float(), weight).bfloat16())


@devices
def test_a_weight_of_another_dtype(device: str) -> None:
    x, weight = sample(2, 3, 40).on(device).args
    found = F.rms_norm(x.bfloat16(), (40,), weight)
    checks.close(found, torch_rms(x.bfloat16().float(), weight).bfloat16())


@devices
def test_several_dimensions(device: str) -> None:
    given = [sample(3, 4, 5, dims=2)]
    checks.check_values(rms, torch_rms, given, device, torch.float32)
    checks.check_gradients(rms, torch_rms, given, device)


@devices
def test_without_weight_and_with_eps(device: str) -> None:
    x = torch.randn(2, 3, 33, device=device, requires_grad=True)
    torch_rms_norm, torch_layer_norm = (
        torch.nn.functional.rms_norm,
        torch.nn.functional.layer_norm,
    )
    g = torch.randn(2, 3, 33, device=device)
    for ours, theirs in (
        (F.rms_norm(x, [33], None, 0.1), torch_rms_norm(x, [33], None, 0.1)),
        (F.layer_norm(x, [33], eps=0.1), torch_layer_norm(x, [33], eps=0.1)),
    ):
        checks.close(ours, theirs)
        found, wanted = (torch.autograd.grad(y, x, g)[0] for y in (ours, theirs))
        checks.close(found, wanted, 5)


@every
def test_finite_differences(ours: Any, theirs: Any, tensors: int, weights: int) -> None:
    checks.check_gradcheck(ours, [sample(2, 2, 5, tensors=tensors, weights=weights)])


@devices
def test_operators(device: str) -> None:
    x, weight = sample(2, 3, 37).args
    given = Sample((x, [37], weight))
    checks.check_operator(torch.ops.mojo.rms_norm.default, [given], device)
    backward = torch.ops.mojo.rms_norm_backward.default
    checks.check_operator(backward, [Sample((x, x, weight))], device, grad=False)


@pytest.mark.slow
@devices
def test_other_operators(device: str) -> None:
    x, y, weight = sample(2, 3, 37, tensors=2).args
    ops = torch.ops.mojo
    checks.check_operator(ops.add_rms_norm.default, [Sample((x, y, weight))], device)
    checks.check_operator(ops.layer_norm.default, [Sample((x, [37], weight, weight))], device)
    given = Sample((x, y, weight, weight, 1e-5))
    checks.check_operator(ops.layer_norm_backward.default, [given], device, grad=False)


def test_vmap() -> None:
    x, weight = sample(4, 3, 37).args
    cases = [((x, weight), (0, None)), ((x, weight), (1, None))]
    weights = torch.randn(4, 37)
    checks.check_vmap(rms, torch_rms, [*cases, ((x, weights), (0, 0))])


def test_autocast_computes_in_float32() -> None:
    x, weight = sample(2, 3, 37).on("cpu", torch.bfloat16).args
    with torch.autocast("cpu", torch.bfloat16):
        assert F.rms_norm(x, [37], weight).dtype == torch.float32


def test_what_is_refused() -> None:
    x = torch.randn(2, 3, 4)
    errors = (ValueError, TypeError, NotImplementedError, RuntimeError)
    for call, text in (
        (lambda: F.rms_norm(x, [5]), r"normalized_shape=\[5\]"),
        (lambda: F.rms_norm(x, []), r"normalized_shape=\[\]"),
        (lambda: F.layer_norm(x, [4], torch.ones(3)), r"weight has shape \[3\]"),
        (lambda: F.rms_norm(x, [3, 4]), "without a weight"),
        (lambda: F.add_rms_norm(x, x[0]), "residual"),
        (lambda: F.layer_norm(x.long(), [4]), "int64"),
    ):
        with pytest.raises(errors, match=text):
            call()


@devices
@pytest.mark.parametrize("columns", [70000, 1000, 4096, 8200])
def test_large(columns: int, device: str) -> None:
    given = [sample(2, 300000 // columns, columns)]
    checks.check_values(rms, torch_rms, given, device, None, ["contiguous"])
    checks.check_gradients(rms, torch_rms, given, device, scale=20)


def test_the_same_for_any_number_of_threads() -> None:
    x, weight = sample(64, 20, 640).args
    weight.requires_grad_()
    threads = torch.get_num_threads()
    found = []
    for count in (1, 2):
        torch.set_num_threads(count)
        found += torch.autograd.grad(rms(x, weight).square().sum(), weight)
    torch.set_num_threads(threads)
    assert torch.equal(*found)


def test_builds_for_a_gpu() -> None:
    x, weight = sample(2, 3, 37).args
    ops = torch.ops.mojo
    backward = cross_build(ops.layer_norm_backward.default, x, x, weight, weight, 1e-5)
    forward = cross_build(ops.rms_norm.default, x, [37], weight)
    assert b".target sm_90" in forward.read_bytes() and b".target sm_90" in backward.read_bytes()
