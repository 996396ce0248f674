"""Pointwise functions."""

from typing import Any

import pytest
import torch
from against import DTYPES, agree, same, strided, traces, values
from cross import cross_build

from torch_mojo.aten import pointwise
from torch_mojo.aten.decompositions import DECOMPOSITIONS

aten = torch.ops.aten
nan, inf = float("nan"), float("inf")
PRECISE = {torch.float64: 1e-13, torch.float16: 2e-3, torch.bfloat16: 1e-2}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, nan, inf, -inf, 3.0, -3.0, 1e-30, 10.0]


def wide(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    drawn = torch.cat([torch.randn(40), 12 * torch.randn(40), torch.rand(40), torch.randn(40) / 99])
    return torch.cat([drawn, torch.tensor(SPECIAL)]).to(dtype)


def pairs(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    a = torch.cat([wide(dtype), torch.tensor(SPECIAL).repeat_interleave(len(SPECIAL)).to(dtype)])
    b = torch.cat([wide(dtype).roll(7), torch.tensor(SPECIAL).repeat(len(SPECIAL)).to(dtype)])
    return a, b


def one(name: str) -> Any:
    return (
        getattr(aten, name).default
        if hasattr(aten, name)
        else getattr(aten, f"special_{name}").default
    )


# where torch's own float32 result is as far from the true one
LOOSE = {"lgamma": 3e-6, "digamma": 2e-5, "erfinv": 2e-6, "bessel_j0": 5e-6, "bessel_j1": 5e-6}
QUICK = ("acos", "erfinv", "digamma", "fmax", "remainder", "pow")  # each is a build


def quick(names: list[str]) -> list[Any]:
    return [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in names]


ALL = [n for n in pointwise.ONE if n != "trigamma"]


@pytest.mark.parametrize("name", quick(ALL))
def test_of_one(name: str) -> None:
    x = wide()
    agree(one(name), x, tolerance=LOOSE.get(name, 2e-6))
    agree(one(name), strided(x[1:].reshape(43, 4)), tolerance=LOOSE.get(name, 2e-6))
    agree(one(name), x[:0])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ALL])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32])
def test_dtypes_of_one(name: str, dtype: torch.dtype) -> None:
    x = values(40, dtype=dtype) if dtype == torch.int32 else wide(dtype)
    if name.startswith("bessel") and dtype == torch.bfloat16:
        pytest.skip("torch has none in halves")
    agree(one(name), x, tolerance=PRECISE.get(dtype, 2e-6) * LOOSE.get(name, 2e-6) / 2e-6 * 10)


def test_signbit() -> None:
    agree(aten.signbit.default, wide())
    agree(aten.signbit.default, values(9, dtype=torch.int32))


EXACT = ["copysign", "fmax", "fmin", "fmod", "remainder"]


@pytest.mark.parametrize("name", quick(EXACT))
def test_exact_of_two(name: str) -> None:
    op = getattr(aten, name)
    op = op.Tensor if hasattr(op, "Tensor") else op.default
    agree(op, *pairs())
    found = DECOMPOSITIONS[op](*pairs())
    number = ~found.isnan()
    same(found[number].signbit(), op(*pairs())[number].signbit())
    if name == "remainder":
        agree(op, values(3, 1), values(4))
        agree(aten.remainder.Scalar, values(9), 1.5)
        agree(aten.remainder.Scalar_Tensor, 7, values(9))


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_rounded_quotients(mode: str) -> None:
    agree(aten.div.Tensor_mode, *pairs(), rounding_mode=mode)
    agree(aten.div.Scalar_mode, wide(), 0.1, rounding_mode=mode)
    if mode == "floor":
        agree(aten.floor_divide.default, *pairs())


def test_others_of_two() -> None:
    agree(aten.atan2.default, *pairs(), tolerance=1e-6)
    agree(aten.hypot.default, *pairs(), tolerance=1e-6)
    agree(aten.nextafter.default, *pairs())


def whole(dtype: torch.dtype = torch.int32) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    low = 0 if dtype == torch.uint8 else -20
    a = torch.randint(low, 21, (200,), dtype=dtype)
    b = torch.randint(low, 7, (200,), dtype=dtype)
    return a, b.masked_fill(b == 0, 3)


INTEGERS = ["fmod", "remainder", "floor_divide", "gcd", "lcm", "pow"]


@pytest.mark.parametrize("name", quick(INTEGERS))
def test_integers(name: str, dtype: torch.dtype = torch.int32) -> None:
    op = {"fmod": aten.fmod.Tensor, "remainder": aten.remainder.Tensor}.get(name)
    op = aten.pow.Tensor_Tensor if name == "pow" else op or getattr(aten, name).default
    a, b = whole(dtype)
    agree(op, a, b)
    agree(op, a.reshape(100, 2), b[:2])
    if name in ("gcd", "lcm"):
        agree(op, a, b * 0)
        agree(op, a * 0, b * 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.uint8])
def test_integer_dtypes(name: str, dtype: torch.dtype) -> None:
    test_integers(name, dtype)


def test_truncated_integers_and_mixed() -> None:
    agree(aten.div.Tensor_mode, *whole(), rounding_mode="trunc")
    agree(aten.pow.Scalar, 3, whole()[0].abs())
    a, b = whole()
    agree(aten.remainder.Tensor, a, b.float() / 2)
    agree(aten.remainder.Tensor, a, torch.tensor(2.5))


@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_division_by_zero(name: str) -> None:
    a, b = whole()
    b[77] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        getattr(aten, name).Tensor(a, b)
    with pytest.raises(Exception, match="ZeroDivisionError"):
        DECOMPOSITIONS[getattr(aten, name).Tensor](a, b)


def test_bits() -> None:
    a, b = whole()
    for name in ("and", "or", "xor"):
        op = getattr(aten, f"bitwise_{name}")
        agree(op.Tensor, a, b)
    agree(aten.bitwise_and.Scalar, a, 6)
    agree(aten.bitwise_left_shift.Tensor, a, b.abs() % 8)
    agree(aten.__rshift__.Scalar, a, 2)
    agree(aten.bitwise_not.default, a)


def test_polygamma() -> None:
    x = wide().abs() + 0.01
    for n in (0, 1, 2, 3):
        agree(aten.polygamma.default, n, x, tolerance=2e-5)
    agree(aten.special_zeta.default, x + 1, x.flip(0), tolerance=1e-5)


def test_traces_with_symbolic_sizes() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        whole = x.int() + 5
        return [
            x.signbit(),
            x.remainder(x + 7),
            x.fmod(0.75),
            torch.div(x, x + 9, rounding_mode="floor"),
            whole.remainder(whole.flip(0)),
            whole & 3,
            whole ** whole.flip(1),
        ]

    traces(run, (values(3, 4),), (values(5, 2),))


def test_what_is_left_to_torch() -> None:
    assert DECOMPOSITIONS[aten.acos.default](torch.ones(2) + 1j) is NotImplemented
    assert DECOMPOSITIONS[aten.pow.Tensor_Scalar](values(2), 2) is NotImplemented
    assert DECOMPOSITIONS[aten.remainder.Scalar](values(2).int(), 2) is NotImplemented
    assert DECOMPOSITIONS[aten.hypot.default](*whole()) is NotImplemented


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES[1:4])
def test_dtypes_of_two(dtype: torch.dtype) -> None:
    agree(aten.remainder.Tensor, *pairs(dtype))
    agree(aten.fmod.Tensor, *pairs(dtype))
    agree(aten.div.Tensor_mode, *pairs(dtype), rounding_mode="floor")
    agree(aten.copysign.Tensor, *pairs(dtype))


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in pointwise.ONE if not n.startswith("bessel")])
def test_one_builds_for_a_gpu(name: str) -> None:
    function = pointwise.FUNCTIONS[name]
    _ = function.op
    assert b".target sm_90" in cross_build(function._overload, values(4, 3)).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", pointwise.PAIRS)
def test_two_build_for_a_gpu(name: str) -> None:
    function = pointwise.PAIRS[name]
    _ = function.op
    x = values(4, 3).int() if name in ("gcd", "lcm", "pow") else values(4, 3)
    assert b".target sm_90" in cross_build(function._overload, x, x).read_bytes()
