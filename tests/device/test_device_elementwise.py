"""Elementwise operators of the table: values, layouts, promotion, in-place and out= forms, without the CPU."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from against_cpu import agree

F = torch.nn.functional
X = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
Y = torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) + 0.5
NAN = torch.tensor([float("nan"), 1.0, float("inf"), -2.0, 0.0, -0.0])

ONE = """neg abs sign sgn reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tanh erf floor ceil trunc
round frac sigmoid acos acosh asin asinh atan cosh sinh tan erfc erfinv lgamma digamma logical_not relu square""".split()
TWO = """add sub mul div maximum minimum atan2 hypot copysign fmax fmin remainder fmod pow eq ne lt le gt ge logical_and
logical_or logical_xor""".split()
ACTIVATIONS = """gelu silu mish elu leaky_relu softplus hardtanh hardsigmoid hardswish relu6 selu celu""".split()


@pytest.mark.parametrize("name", ONE)
def test_one_number(name: str) -> None:
    function = getattr(torch, name)
    for x in (X, Y.t(), X[:, ::2], X[1:, 2], torch.tensor(0.5), torch.empty(0, 3), NAN):
        agree(function, x)


@pytest.mark.parametrize("name", TWO)
def test_two_numbers(name: str) -> None:
    function = getattr(torch, name)
    layouts = [(X, Y), (X.t(), Y.t()), (X.t(), Y.reshape(7, 5)), (X[:, ::2], Y[:, 1:5]), (X, Y[0])]
    for a, b in (*layouts, (X[:, :1], Y[:1]), (X, torch.tensor(2.0)), (NAN, NAN.flip(0))):
        agree(function, a, b)
    if name in "add sub mul div remainder fmod pow eq ne lt le gt ge copysign".split():
        agree(lambda a: function(a, 1.5), X)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_and_their_gradients(name: str) -> None:
    function = getattr(F, name)
    agree(function, X * 3)

    def gradient(x: torch.Tensor) -> torch.Tensor:
        x = x.clone().requires_grad_()
        (function(x) * function(x)).sum().backward()
        return x.grad

    agree(gradient, X * 3, on_cpu=name in ("elu", "selu", "celu"))  # elu_backward


def test_gelu_by_tanh() -> None:
    agree(lambda x: F.gelu(x, approximate="tanh"), X)
    agree(lambda x: torch.ops.aten.gelu.out(x, approximate="tanh", out=torch.empty_like(x)), X)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch.add(a, b, alpha=2),
        lambda a, b: torch.sub(a, b, alpha=-0.5),
        lambda a, b: torch.addcmul(a, a, b, value=0.3),
        lambda a, b: torch.addcdiv(a, a, b, value=0.3),
        lambda a, b: torch.lerp(a, b, 0.3),
        lambda a, b: torch.lerp(a, b, b),
        lambda a, b: torch.where(a > 0, a, b),
        lambda a, b: torch.where(a > 0, a, 0.0),
        lambda a, b: a.clamp(-0.5, 0.5) + b.clamp(min=1) + b.clamp(max=0.9),
        lambda a, b: a.masked_fill(a > 0, -1.0),
        lambda a, b: (2 - a) * 3 / b**2 + b**0.5 + b**1.7,
    ],
)
def test_with_numbers(function: Callable[..., Any]) -> None:
    agree(function, X, Y)
    agree(function, NAN, Y.view(-1)[:6])


def test_in_place_and_out() -> None:
    agree(lambda a: a.clone().add_(1).mul_(3).relu_().clamp_(max=4), X)
    agree(lambda a: a.clone().fill_(3).div_(7), X)
    agree(lambda a: a.clone().zero_(), X)
    agree(lambda a, b: torch.add(a, b, out=torch.empty(5, 14, device=a.device)[:, ::2]), X, Y)
    agree(lambda a: a.clone().view(-1)[1:].add_(a.reshape(-1)[:-1]), X)
    base = X.clone().to("mojo")
    alias = base.view(-1)
    alias[::2].add_(1)
    assert torch.equal(base.cpu().view(-1)[1::2], X.view(-1)[1::2])
    with pytest.raises(RuntimeError, match=r"unsupported operation|single memory location"):
        torch.ones(1, device="mojo").expand(3).add_(1)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.ones(2, dtype=torch.int64, device="mojo").add_(0.5)


def test_through_the_operators_themselves() -> None:
    aten = torch.ops.aten
    agree(lambda a: aten.add.Tensor(a, a, alpha=3), X)
    agree(lambda a: aten.add.out(a, a, alpha=3, out=torch.empty_like(a)), X)
    agree(lambda a: aten.relu.default(a), X)
    agree(lambda a: aten.fill_.Scalar(a.clone(), 3), X)
    agree(lambda a: aten.clamp.out(a, None, 0.5, out=torch.empty_like(a)), X)


def test_layouts_of_results() -> None:
    for x in (X.t(), torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)):
        y = x.to("mojo")
        assert y.stride() == x.stride()
        for made in (y + 1, y.exp(), torch.relu(y), torch.where(y > 0, y, y), y > 0):
            assert made.stride() == x.stride()


def test_large_ones() -> None:
    x = torch.randn(300, 400)
    agree(lambda a: a.exp() + 1, x)
    agree(lambda a: a.t() * 2 + a.t(), x)
    agree(lambda a: a[:, ::3] - 1, x)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_floats(dtype: torch.dtype) -> None:
    for name in ("exp", "sqrt", "neg", "sigmoid", "relu", "lgamma"):
        agree(getattr(torch, name), Y.to(dtype), tolerance=1e-2 if dtype.itemsize == 2 else 1e-9)
    agree(
        lambda a: (a + 1) * 2 - a / 3, X.to(dtype), tolerance=2e-2 if dtype.itemsize == 2 else 1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integers(dtype: torch.dtype) -> None:
    a, b = (X * 9).abs().to(dtype), (Y * 9).to(dtype)
    for function in (torch.add, torch.mul, torch.maximum, torch.bitwise_and, torch.eq, torch.lt):
        agree(function, a, b)
    agree(lambda a: ~a, a)
    agree(lambda a: a + 2.5, a, on_cpu=True)


MIXED: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda i: i * i.float(),
    lambda i: i - i.float()[0],
    lambda i: i.half() - i.float()[0],
    lambda i: i.float() > i,
    lambda i: i.float().mul_(i),
    lambda i: torch.where(i > 3, i, i.float()),
    lambda i: torch.where(i > 3, 1.5, i),
    lambda i: i.pow(i.float()),
    lambda i: i & i.int(),
    lambda i: i.logical_and(i.float()),
    lambda i: i / i.int(),
    lambda i: i % (i.float() + 1),
    lambda i: i.sqrt(),
    lambda i: 1 / (i + 1),
    lambda i: (i > 3) + i.float(),
    lambda i: (i > 3) * i.bfloat16(),
    lambda i: i.mean(dtype=torch.float32),
    lambda i: (i + 0.7).sum(0, dtype=torch.int64),
    lambda i: (i + 0.7).prod(1, dtype=torch.int64),
    lambda i: (i > 0).prod(1),
    lambda i: i.t().argmax(),
    lambda i: torch.ones(3, dtype=torch.bool, device=i.device),
    lambda i: torch.ones(3, dtype=torch.int8, device=i.device),
    lambda i: torch.full((3,), float("-inf"), dtype=torch.half, device=i.device),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", range(len(MIXED)))
def test_tensors_of_several_dtypes(case: int) -> None:
    agree(MIXED[case], torch.arange(12).reshape(3, 4))


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(300, torch.int8), (1e6, torch.half), (1e39, torch.float32), (float("nan"), torch.int64)],
)
def test_a_number_that_does_not_fit_fills_nothing(number: float, dtype: torch.dtype) -> None:
    for device in ("cpu", "mojo"):
        with pytest.raises(RuntimeError, match=r"^value cannot be converted to type"):
            torch.full((3,), number, dtype=dtype, device=device)
    with pytest.raises(RuntimeError, match="two devices"):
        torch.ones(3, device="mojo") * torch.ones(3)
