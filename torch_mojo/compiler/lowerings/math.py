"""Elementwise functions where MAX's differ from torch's: at NaN, in range or in precision."""

from __future__ import annotations

import math

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from ..context import broadcast, constant
from ..types import TORCH_DTYPES

NAN, INF = float("nan"), float("inf")


def number(x: TensorValue, value: float) -> TensorValue:
    """Return a constant of `x`'s dtype and device."""
    return constant(value, TORCH_DTYPES[x.dtype], x.device)


def keep_nan(x: TensorValue, y: TensorValue) -> TensorValue:
    """Return `y`, but NaN where `x` is NaN."""
    return ops.where(ops.is_nan(x), x, y)


def is_nan(x: TensorValue) -> TensorValue:
    """Test for NaN; integers have none."""
    if x.dtype.is_float():
        return ops.is_nan(x)
    return ops.not_equal(x, x)


def minus(x: TensorValue, y: TensorValue) -> TensorValue:
    """Subtract. MAX takes `x - x` for 0, also where x is NaN or infinite."""
    return x + negative(y) if x.dtype.is_float() else x - y


def negative(x: TensorValue) -> TensorValue:
    """Negate, in a way in which MAX does not see that `x + -x` would be 0 for numbers."""
    return x * number(x, -1.0) if x.dtype.is_float() else ops.negate(x)


def times_zero(x: TensorValue, zero: float) -> TensorValue:
    """Multiply floats by a zero, as division by infinity: MAX takes `x * 0` for 0."""
    return x / number(x, math.copysign(INF, zero))


def _no_nan(x: TensorValue, test: TensorValue) -> TensorValue:
    """Return `test`, but False where `x` is NaN: MAX takes `x == x` and `x >= x` for True."""
    if not x.dtype.is_float():
        return test
    return ops.logical_and(test, ops.logical_not(ops.is_nan(x)))


def equal(x: TensorValue, y: TensorValue) -> TensorValue:
    """Compare, False at NaN."""
    return _no_nan(x, ops.equal(x, y))


def not_equal(x: TensorValue, y: TensorValue) -> TensorValue:
    """Compare, True at NaN, where MAX's is False."""
    return ops.logical_not(equal(x, y))


def greater_equal(x: TensorValue, y: TensorValue) -> TensorValue:
    """Compare, False at NaN."""
    return _no_nan(x, ops.greater_equal(x, y))


def less(x: TensorValue, y: TensorValue) -> TensorValue:
    """Compare; MAX writes `<` as `not >=`, which is true of NaN."""
    return ops.greater(y, x)


def less_equal(x: TensorValue, y: TensorValue) -> TensorValue:
    """Compare, False at NaN."""
    return greater_equal(y, x)


def maximum(x: TensorValue, y: TensorValue) -> TensorValue:
    """Return the larger; NaN if either is (MAX's drops it)."""
    larger = ops.max(x, y)
    if not x.dtype.is_float():
        return larger
    return ops.where(ops.is_nan(x), x, ops.where(ops.is_nan(y), y, larger))


def minimum(x: TensorValue, y: TensorValue) -> TensorValue:
    """Return the smaller; NaN if either is."""
    smaller = ops.min(x, y)
    if not x.dtype.is_float():
        return smaller
    return ops.where(ops.is_nan(x), x, ops.where(ops.is_nan(y), y, smaller))


def exp(x: TensorValue) -> TensorValue:
    """Return e^x. MAX's overflows early, loses NaN, and is good to 1e-9 only in float64."""
    edge = number(x, 708.0 if x.dtype == DType.float64 else 88.0)
    high = ops.greater(x, edge)
    y = ops.exp(ops.where(high, x - number(x, 1.0), x))
    if x.dtype == DType.float64:
        # One step of Newton's method on log(y) = x squares the error.
        t = ops.where(high, x - number(x, 1.0), x)
        better = y + y * (t - ops.log(y))
        usable = ops.logical_and(ops.greater(y, number(x, 0.0)), ops.logical_not(ops.is_inf(y)))
        y = ops.where(usable, better, y)
    return keep_nan(x, ops.where(high, y * number(x, 2.718281828459045), y))


def expm1(x: TensorValue) -> TensorValue:
    """Return e^x - 1 without cancellation, as tanh(x/2) * (e^x + 1)."""
    return ops.tanh(x * number(x, 0.5)) * (exp(x) + number(x, 1.0))


def tanh(x: TensorValue) -> TensorValue:
    """Return tanh, NaN at NaN."""
    return keep_nan(x, ops.tanh(x))


def sigmoid(x: TensorValue) -> TensorValue:
    """Return 1 / (1 + e^-x), NaN at NaN."""
    if x.dtype == DType.float64:
        return number(x, 1.0) / (number(x, 1.0) + exp(ops.negate(x)))
    return keep_nan(x, ops.sigmoid(x))


def relu(x: TensorValue) -> TensorValue:
    """Return x where it is positive or NaN, else 0."""
    zero = number(x, 0)
    return ops.where(ops.greater(zero, x), zero, x)


def sign(x: TensorValue) -> TensorValue:
    """Return -1, 0 or 1; 0 at NaN, as torch has it."""
    zero, one = number(x, 0), number(x, 1)
    positive = ops.where(ops.greater(x, zero), one, zero)
    if x.dtype.is_unsigned_integral() or x.dtype == DType.bool:
        return positive
    return positive - ops.where(ops.greater(zero, x), one, zero)


def power(x: TensorValue, y: TensorValue) -> TensorValue:
    """Return x^y of floats as C's pow: MAX's is wrong where x or y is NaN or y is infinite."""
    one, zero = number(x, 1.0), number(x, 0.0)
    result = ops.pow(x, y)
    size = ops.abs(x)
    grows = ops.equal(ops.greater(size, one), ops.greater(y, zero))
    infinite = number(x, INF)
    limit = ops.where(ops.equal(size, one), one, ops.where(grows, infinite, zero))
    result = ops.where(ops.is_inf(y), limit, result)
    # -inf to a power that is no whole number.
    lost = ops.logical_and(ops.is_inf(x), ops.is_nan(result))
    result = ops.where(lost, ops.where(ops.greater(y, zero), infinite, zero), result)
    nan = ops.logical_or(ops.is_nan(x), ops.is_nan(y))
    result = ops.where(nan, number(x, NAN), result)
    return ops.where(ops.logical_or(ops.equal(x, one), ops.equal(y, zero)), one, result)


def integer_power(x: TensorValue, exponent: int) -> TensorValue:
    """Return x^exponent for a small non-negative exponent, by squaring."""
    if exponent == 0:
        return broadcast(number(x, 1), list(x.shape))
    result: TensorValue | None = None
    square = x
    while exponent:
        if exponent & 1:
            result = square if result is None else result * square
        exponent >>= 1
        if exponent:
            square = square * square
    assert result is not None
    return result


def gelu(x: TensorValue, approximate: str) -> TensorValue:
    """Return GELU by torch's own formulas."""
    half, one = number(x, 0.5), number(x, 1.0)
    if approximate == "tanh":
        inner = number(x, 0.7978845608028654) * (x + number(x, 0.044715) * x * x * x)
        return half * x * (one + tanh(inner))
    return half * x * (one + ops.erf(x * number(x, 0.7071067811865476)))


def truncated_quotient(x: TensorValue, divisor: int) -> TensorValue:
    """Divide integers by a non-zero number, rounding to zero; -1 traps at the smallest integer."""
    if divisor == -1:
        return ops.negate(x)
    return ops.elementwise._trunc_div(x, number(x, divisor))


def floored_quotient(x: TensorValue, divisor: int) -> TensorValue:
    """Divide integers by a non-zero number, rounding down."""
    if divisor == -1:
        return ops.negate(x)
    return ops.floor_div(x, number(x, divisor))


def as_float(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to compute in: float32 for the halves."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
