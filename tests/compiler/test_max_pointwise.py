"""Elementwise lowerings against eager torch, at the values where implementations differ."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from packing import Case, check, compile_max
from torch.nn import functional as F

nan, inf = float("nan"), float("inf")
X = torch.tensor(
    [nan, -inf, inf, -0.0, 0.0, 1.5, -2.5, 2.5, 0.5, 3.0, -7.0, 88.5, 1e-8, -87.0, 1.0]
)
Y = torch.tensor([1.0, nan, 2.0, 0.0, -0.0, -2.5, 2.0, -2.0, 3.0, -3.0, inf, 2.0, -5.0, -inf, nan])

UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "relu": torch.relu,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "exp2": torch.exp2,
    "log": torch.log,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "log10": torch.log10,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "silu": F.silu,
    # not at inf: there eager torch has nan where the CPU has AVX-512, and inf elsewhere
    "gelu": lambda x: F.gelu(x.clamp(max=1e4)),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "square": torch.square,
    "leaky": F.leaky_relu,
    "hardtanh": F.hardtanh,
    "softplus": F.softplus,
    "elu": F.elu,
    "not": torch.logical_not,
    "x==x": lambda x: x == x,
    "x>=x": lambda x: x >= x,
    "x!=x": lambda x: x != x,
    "x-x": lambda x: x - x,
    "x/x": lambda x: x / x,
    "x*0": lambda x: x * 0,
    "clamp": lambda x: x.clamp(-1, 2.25),
    "clamp_min": lambda x: x.clamp(min=0.75),
    "nan_to_num": lambda x: torch.nan_to_num(x, 1.0, 2.0, 3.0),
    "pow2": lambda x: x**2,
    "pow3": lambda x: x**3,
    "pow-1": lambda x: x**-1,
    "pow-2": lambda x: x**-2,
    "pow.5": lambda x: x**0.5,
    "pow-.5": lambda x: x**-0.5,
    "pow0": lambda x: x**0,
    "rpow": lambda x: 2.0**x,
    "pow2.5": lambda x: x**2.5,
    "+0.1": lambda x: x + 0.1,
    "1-": lambda x: 1 - x,
    "/3": lambda x: x / 3,
    "3/": lambda x: 3 / x,
    "sub_alpha": lambda x: x.sub(1, alpha=2),
    "to_bool": lambda x: x.bool(),
    ">0.5": lambda x: x > 0.5,
    "<=1": lambda x: x <= 1,
}

BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "add_alpha": lambda x, y: torch.add(x, y, alpha=3),
    "sub": torch.sub,
    "rsub": lambda x, y: torch.rsub(x, y, alpha=2),
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "pow": torch.pow,
    "where": lambda x, y: torch.where(x > y, x, y),
    "clamp_t": lambda x, y: x.clamp(y, y + 1),
    "and": torch.logical_and,
    "or": torch.logical_or,
    "xor": torch.logical_xor,
    "lerp": lambda x, y: x.lerp(y, 0.3),
}


def float_cases(dtype: torch.dtype) -> list[Case]:
    """Return every case in one dtype; the closures cast, so that all dtypes share one graph."""

    def unary(fn: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda x, y: fn(x.to(dtype))

    def binary(fn: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda x, y: fn(x.to(dtype), y.to(dtype))

    cases = [(f"{name} {dtype}", unary(fn)) for name, fn in UNARY.items()]
    return cases + [(f"{name} {dtype}", binary(fn)) for name, fn in BINARY.items()]


def test_float32() -> None:
    """Special values, in the dtype that is used most."""
    check(float_cases(torch.float32), X, Y)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_floats(dtype: torch.dtype) -> None:
    """The same in the other floats."""
    check(float_cases(dtype), X.to(dtype), Y.to(dtype))


@pytest.mark.slow
def test_every_float16_root() -> None:
    """Roots of float16 are torch's to the last bit, also where it calls C's pow, not sqrt."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.float16)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x**0.5, torch.sqrt(x)

    for got, right in zip(compile_max(f)(x), f(x), strict=True):
        bits = [torch.nan_to_num(t, 1.0, inf, -inf).view(torch.int16) for t in (got, right)]
        assert torch.equal(got.isnan(), right.isnan()) and torch.equal(*bits)


I = torch.tensor([7, -7, 0, 5, -5, 2**31 - 1, -(2**31), 100, -1], dtype=torch.int32)  # noqa: E741
J = torch.tensor([3, 3, 2, 10, 10, 2, 3, -7, -1], dtype=torch.int32)
B = torch.tensor([True, False, True, False, True, True, False, False, True])
H = torch.tensor([1.0078125, -3.3, 0.1, 256.0, 7.0, -0.5, 2.0, 3.0, 1.0])

INTEGER: list[Case] = [
    ("add", lambda i, j, b, h: i + j),
    ("sub", lambda i, j, b, h: i - j),
    ("mul", lambda i, j, b, h: i * j),
    ("neg", lambda i, j, b, h: -j),
    ("abs", lambda i, j, b, h: j.abs()),
    ("sign", lambda i, j, b, h: j.sign()),
    ("relu", lambda i, j, b, h: torch.relu(j)),
    ("floor", lambda i, j, b, h: j.floor()),
    ("true div", lambda i, j, b, h: i / j),
    ("floor div", lambda i, j, b, h: i // 3),
    ("floor div neg", lambda i, j, b, h: i // -3),
    ("floor div -1", lambda i, j, b, h: j // -1),
    ("trunc div", lambda i, j, b, h: torch.div(i, -4, rounding_mode="trunc")),
    ("remainder", lambda i, j, b, h: i % 4),
    ("remainder neg", lambda i, j, b, h: i % -4),
    ("fmod", lambda i, j, b, h: torch.fmod(i, 4)),
    ("fmod neg", lambda i, j, b, h: torch.fmod(i, -4)),
    ("pow 2", lambda i, j, b, h: j**2),
    ("pow 0", lambda i, j, b, h: j**0),
    ("pow 5", lambda i, j, b, h: j**5),
    ("int * 2.5", lambda i, j, b, h: j * 2.5),
    ("int + True", lambda i, j, b, h: j + True),
    ("int + bool", lambda i, j, b, h: j + b),
    ("int * float", lambda i, j, b, h: j * h),
    ("int32 + int64", lambda i, j, b, h: i + j.long()),
    ("u8 wrap", lambda i, j, b, h: j.to(torch.uint8) + 200),
    ("i8 wrap", lambda i, j, b, h: i.to(torch.int8) * 3),
    ("uint8 max", lambda i, j, b, h: torch.maximum(i.to(torch.uint8), j.to(torch.uint8))),
    ("int16", lambda i, j, b, h: i.to(torch.int16) - 5),
    ("sin int", lambda i, j, b, h: torch.sin(j)),
    ("cmp int float", lambda i, j, b, h: j > h),
    ("cmp scalar", lambda i, j, b, h: j >= 2.5),
    ("eq", lambda i, j, b, h: j == 3),
    ("bool +", lambda i, j, b, h: b + b),
    ("bool *", lambda i, j, b, h: b * ~b),
    ("bool &", lambda i, j, b, h: b & (j > 2)),
    ("bool |", lambda i, j, b, h: b | (j > 2)),
    ("bool ^", lambda i, j, b, h: b ^ (j > 2)),
    ("bool >", lambda i, j, b, h: b > (j > 2)),
    ("bool max", lambda i, j, b, h: torch.maximum(b, j > 2)),
    ("bool + 1", lambda i, j, b, h: b + 1),
    ("bool to float", lambda i, j, b, h: b.float() * 3),
    ("where mixed", lambda i, j, b, h: torch.where(b, j, h)),
    ("where scalar", lambda i, j, b, h: torch.where(b, 1.5, j)),
    ("masked_fill", lambda i, j, b, h: h.masked_fill(b, -inf)),
    ("clamp int", lambda i, j, b, h: i.clamp(-6, 50)),
    ("int to bool", lambda i, j, b, h: i.bool()),
    ("float to int", lambda i, j, b, h: h.to(torch.int32) + h.to(torch.int64)),
    ("float to u8", lambda i, j, b, h: h.abs().clamp(max=99).to(torch.uint8)),
    ("isnan int", lambda i, j, b, h: torch.isnan(j)),
    ("0-d", lambda i, j, b, h: h[0] * j),
    ("float32 + 0-d float64", lambda i, j, b, h: h + h[2].double()),
    ("float64 + 0.1", lambda i, j, b, h: h.double() + 0.1),
    ("bf16 + 0.1", lambda i, j, b, h: h.bfloat16() + 0.1),
    ("f16 * 3.3", lambda i, j, b, h: h.half() * 3.3),
    ("bf16 + f32", lambda i, j, b, h: h.bfloat16() + h),
    ("bf16 * f16", lambda i, j, b, h: h.bfloat16() * h.half()),
    ("int64 big", lambda i, j, b, h: i.long() * i.long()),
    ("int64 2**40", lambda i, j, b, h: j.long() + 2**40),
    ("broadcast", lambda i, j, b, h: i[:, None] * j[None, :]),
]


@pytest.mark.slow
def test_integers_bools_and_promotion() -> None:
    """Rounding, wrap-around and torch's type promotion."""
    check(INTEGER, I, J, B, H)
