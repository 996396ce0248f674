"""Variances, norms, roundings and copies between dtypes, against the CPU's."""

import itertools
import math
from typing import Any

import pytest
import torch
from against_cpu import agree

F = torch.nn.functional
X = torch.randn(4, 6, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_variances(name: str) -> None:
    function = getattr(torch, name)
    for dim, correction, keepdim in itertools.product(
        (None, 0, -1, (0, 2)), (0, 1, 2.5), (False, True)
    ):
        for x in (X, X.transpose(0, 2), X.double()):
            given = {"dim": dim, "correction": correction, "keepdim": keepdim}
            agree(lambda x, given=given: function(x, **given), x)
    agree(lambda x: function(x, 1), X.bfloat16(), tolerance=1e-2)
    with pytest.warns(UserWarning, match="degrees of freedom"):
        agree(lambda x: function(x, 1), X[:, :1], on_cpu=True)


@pytest.mark.parametrize("order", [1, 2, 2.0, math.inf, -math.inf])
def test_vector_norms(order: Any) -> None:
    for dim, keepdim in itertools.product((None, 0, (1, 2)), (False, True)):
        agree(lambda x, d=dim, k=keepdim: torch.linalg.vector_norm(x, order, d, k), X)
    agree(lambda x: torch.linalg.vector_norm(x, order), X.half(), tolerance=1e-2)
    agree(lambda x: torch.linalg.vector_norm(x, 3), X, on_cpu=True)


def test_clipped_gradients() -> None:
    def clipped(x: torch.Tensor) -> torch.Tensor:
        parameter = torch.nn.Parameter(x)
        parameter.grad = x.clone()
        torch.nn.utils.clip_grad_norm_([parameter], 1.0)
        return parameter.grad

    agree(clipped, X)


def test_group_norm_with_gradients() -> None:
    def gradients(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        given = [t.detach().clone().requires_grad_() for t in (x, w, b)]
        F.group_norm(given[0], 3, *given[1:]).square().sum().backward()
        return [t.grad for t in given]

    agree(gradients, X, torch.rand(6), torch.rand(6), tolerance=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_outer_products_round_as_on_the_cpu(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    m, a, b = (torch.randn(s, generator=generator).to(dtype) for s in ((40, 30), (40,), (30,)))
    tolerance = 0 if dtype == torch.bfloat16 else 1e-5
    for beta, alpha in ((1, 1), (0.5, -1.7), (0.6, 0.2), (0, 2)):
        for own in (m, m[0, 0], m[:, :1]):
            agree(
                lambda m, a, b, n=beta, k=alpha: torch.addr(m, a, b, beta=n, alpha=k),
                *(own, a, b),
                tolerance=tolerance,
            )
    agree(lambda a, b: torch.addr(torch.full_like(b, math.nan), a, b, beta=0), a, b)


def test_gradients_that_are_zeros_without_memory() -> None:
    def gradient(x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        return torch.autograd.grad(x.sgn().square().sum(), x)[0]

    agree(gradient, X, on_cpu=True)


def test_floor_and_scalar_powers() -> None:
    for function in (
        lambda x: x // 2,
        lambda x: torch.div(x, x.flip(0), rounding_mode="floor"),
        lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
        lambda x: 2.5**x,
        lambda x: torch.xlogy(x, x.abs()),
        lambda x: torch.atanh(x),
    ):
        agree(function, X, on_cpu=True)
    edges = torch.tensor([-1.0, -0.999, -0.0, 0.0, 0.5, 0.999, 1.0, 2.0, math.nan])
    agree(torch.atanh, edges)
    agree(
        torch.xlogy,
        torch.tensor([0.0, 0.0, 1.0, math.nan]),
        torch.tensor([0.0, math.nan, 0.0, 1.0]),
    )


DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)


@pytest.mark.parametrize("source", DTYPES)
def test_copies_between_dtypes(source: torch.dtype) -> None:
    whole = (torch.arange(-30, 30).view(6, 10) * (2 if source.is_floating_point else 1)).abs()
    values = (whole / 4 if source.is_floating_point else whole).to(source)
    for to in DTYPES:
        for x in (values, values.t(), values[:, ::3], values[2, 3], values[:0]):
            agree(lambda x, to=to: x.to(to), x, tolerance=0)
        agree(
            lambda x, to=to: torch.zeros(6, 10, dtype=to, device=x.device).copy_(x[:1]),
            values,
            tolerance=0,
        )
        out = torch.zeros(10, 6, dtype=to, device="mojo").t()
        out.copy_(values)  # from the CPU
        torch.testing.assert_close(out.cpu(), values.to(to))
        back = torch.zeros(6, 10, dtype=to)
        back.copy_(values.to("mojo"))
        torch.testing.assert_close(back, values.to(to))
    odd = torch.tensor([math.nan, math.inf, -math.inf, -1.5, 1e9, 1e-8])
    if source.is_floating_point:
        for to in (torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64):
            agree(lambda x, to=to: x.to(to), odd.to(source), tolerance=0)
