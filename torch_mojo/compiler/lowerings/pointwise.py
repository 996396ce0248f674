"""Elementwise operators: tables of what is computed, and how torch promotes the operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from max.graph import TensorValue, ops
from torch import fx

from torch_mojo.devices import on_host

from .._private import PROMOTION, elementwise_dtypes
from ..context import Context, broadcast, cast, sized_as
from ..rules import builtin
from ..types import TORCH_DTYPES
from . import math as m

aten = torch.ops.aten
prims = torch.ops.prims
Unary = Callable[[TensorValue], TensorValue]
Binary = Callable[[TensorValue, TensorValue], TensorValue]

SAME = PROMOTION.DEFAULT
FLOAT = PROMOTION.INT_TO_FLOAT
TEST = PROMOTION.ALWAYS_BOOL


def operands(
    ctx: Context, kind: PROMOTION, *args: Any, fakes: tuple[Any, ...] | None = None
) -> list[TensorValue]:
    """Return the arguments in the dtype that torch computes in (float32 for the halves)."""
    computed, _ = elementwise_dtypes(
        *(ctx.args[: len(args)] if fakes is None else fakes), type_promotion_kind=kind
    )
    return agreed(ctx, [ctx.value(a, computed) for a in args])


def agreed(ctx: Context, values: list[TensorValue]) -> list[TensorValue]:
    """Return operands whose sizes are those of the result, or 1.

    Torch may know from a guard that two sizes are the same whose expressions differ.
    """
    return [sized_as(v, ctx.shape()) for v in values] if _differ(values) else values


def _differ(values: list[TensorValue]) -> bool:
    """Tell whether a dim has several sizes, besides 1."""
    rank = max(v.rank for v in values)
    for back in range(1, rank + 1):
        sizes = [v.shape[-back] for v in values if v.rank >= back and v.shape[-back] != 1]
        if any(size != sizes[0] for size in sizes):
            return True
    return False


def _identity(x: TensorValue) -> TensorValue:
    return x


def _whole(fn: Unary) -> Unary:
    """Rounding leaves integers alone."""
    return lambda x: fn(x) if x.dtype.is_float() else x


UNARY: list[tuple[torch._ops.OpOverload, Unary, PROMOTION]] = [
    (aten.neg.default, m.negative, SAME),
    (aten.abs.default, ops.abs, SAME),
    (aten.sign.default, m.sign, SAME),
    (aten.relu.default, m.relu, SAME),
    (aten.floor.default, _whole(ops.floor), SAME),
    (aten.ceil.default, _whole(ops.ceil), SAME),
    (aten.round.default, _whole(ops.round), SAME),
    (aten.trunc.default, _whole(ops.trunc), SAME),
    (aten.square.default, lambda x: x * x, SAME),
    (aten.exp.default, m.exp, FLOAT),
    (aten.exp2.default, lambda x: m.exp(x * m.number(x, 0.6931471805599453)), FLOAT),
    (aten.expm1.default, m.expm1, FLOAT),
    (aten.log.default, ops.log, FLOAT),
    (aten.log1p.default, ops.log1p, FLOAT),
    (aten.log2.default, lambda x: ops.log(x) * m.number(x, 1.4426950408889634), FLOAT),
    (aten.log10.default, lambda x: ops.log(x) * m.number(x, 0.4342944819032518), FLOAT),
    (aten.sqrt.default, ops.sqrt, FLOAT),
    (aten.rsqrt.default, ops.rsqrt, FLOAT),
    (aten.reciprocal.default, lambda x: m.number(x, 1.0) / x, FLOAT),
    (aten.sin.default, ops.sin, FLOAT),
    (aten.cos.default, ops.cos, FLOAT),
    (aten.tanh.default, m.tanh, FLOAT),
    (aten.sigmoid.default, m.sigmoid, FLOAT),
    (aten.silu.default, lambda x: x * m.sigmoid(x), FLOAT),
    (aten.erf.default, ops.erf, FLOAT),
    (aten.isnan.default, m.is_nan, TEST),
]


def _unary(fn: Unary, kind: PROMOTION) -> Callable[..., TensorValue]:
    def rule(ctx: Context, x: TensorValue) -> TensorValue:
        (value,) = operands(ctx, kind, x)
        return fn(value)

    return rule


for _op, _fn, _kind in UNARY:
    builtin(_op)(_unary(_fn, _kind))

BINARY: list[tuple[torch._ops.OpOverload, Binary, PROMOTION]] = [
    (aten.div.Tensor, ops.div, FLOAT),
    (aten.maximum.default, m.maximum, SAME),
    (aten.minimum.default, m.minimum, SAME),
    (aten.eq.Tensor, m.equal, TEST),
    (aten.ne.Tensor, m.not_equal, TEST),
    (aten.gt.Tensor, ops.greater, TEST),
    (aten.ge.Tensor, m.greater_equal, TEST),
    (aten.lt.Tensor, m.less, TEST),
    (aten.le.Tensor, m.less_equal, TEST),
    (aten.eq.Scalar, m.equal, TEST),
    (aten.ne.Scalar, m.not_equal, TEST),
    (aten.gt.Scalar, ops.greater, TEST),
    (aten.ge.Scalar, m.greater_equal, TEST),
    (aten.lt.Scalar, m.less, TEST),
    (aten.le.Scalar, m.less_equal, TEST),
    (aten.div.Scalar, ops.div, FLOAT),
]


def _binary(fn: Binary, kind: PROMOTION) -> Callable[..., TensorValue]:
    def rule(ctx: Context, x: Any, y: Any) -> TensorValue:
        a, b = operands(ctx, kind, x, y)
        return fn(a, b)

    return rule


for _op, _combine, _kind in BINARY:
    builtin(_op)(_binary(_combine, _kind))


_FILLED = {aten.full.default: 1, aten.full_like.default: 1, aten.scalar_tensor.default: 0}
_ZEROS = (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)
_SAME_VALUE = (aten.expand.default, aten.view.default, prims.convert_element_type.default)


def _zero(arg: Any) -> float | None:
    """Return 0.0 or -0.0 if an argument is a constant of that value, else None."""
    while isinstance(arg, fx.Node) and arg.target in _SAME_VALUE:
        arg = arg.args[0]
    if isinstance(arg, fx.Node) and arg.target in _ZEROS:
        return 0.0
    if isinstance(arg, fx.Node) and arg.target in _FILLED:
        arg = arg.args[_FILLED[arg.target]]
    return float(arg) if isinstance(arg, (int, float)) and arg == 0 else None


@builtin(aten.mul.Tensor, aten.mul.Scalar)
def mul(ctx: Context, x: Any, y: Any) -> TensorValue:
    """Return x * y."""
    a, b = operands(ctx, SAME, x, y)
    if a.dtype.name == "bool":
        return ops.logical_and(a, b)
    if a.dtype.is_float():
        for value, other in ((a, ctx.node.args[1]), (b, ctx.node.args[0])):
            if (zero := _zero(other)) is not None:
                return broadcast(m.times_zero(value, zero), ctx.shape())
    return a * b


@builtin(aten.add.Tensor, aten.add.Scalar)
def add(ctx: Context, x: Any, y: Any, alpha: Any = 1) -> TensorValue:
    """Return x + alpha * y."""
    a, b = operands(ctx, SAME, x, y)
    if a.dtype.name == "bool":
        return ops.logical_or(a, b) if alpha else a
    return a + _scaled(ctx, b, alpha)


@builtin(aten.sub.Tensor, aten.sub.Scalar)
def sub(ctx: Context, x: Any, y: Any, alpha: Any = 1) -> TensorValue:
    """Return x - alpha * y."""
    a, b = operands(ctx, SAME, x, y)
    return m.minus(a, _scaled(ctx, b, alpha))


@builtin(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(ctx: Context, x: Any, y: Any, alpha: Any = 1) -> TensorValue:
    """Return y - alpha * x."""
    a, b = operands(ctx, SAME, x, y)
    return m.minus(b, _scaled(ctx, a, alpha))


def _scaled(ctx: Context, x: TensorValue, alpha: Any) -> TensorValue:
    if not isinstance(alpha, TensorValue) and alpha == 1:
        return x
    return x * ctx.value(alpha, TORCH_DTYPES[x.dtype])


def _integral(fake: Any) -> bool:
    if isinstance(fake, torch.Tensor):
        return not fake.dtype.is_floating_point
    return isinstance(fake, (bool, int, torch.SymInt))


def _refuse_quotient(node: fx.Node) -> str | None:
    # torch raises at zero, and MAX's modulus of floats is not exact.
    x, y = node.args[0], node.args[1]
    fake = x.meta["val"] if isinstance(x, fx.Node) else x
    if not _integral(fake) or not isinstance(y, int) or isinstance(y, bool):
        return "rounded division of anything but integers by a constant is eager torch's"
    if isinstance(fake, torch.Tensor) and fake.dtype == torch.bool:
        return "rounded division of bool"
    limits = torch.iinfo(fake.dtype) if isinstance(fake, torch.Tensor) else None
    if y == 0 or limits is None or not limits.min <= y <= limits.max:
        return f"rounded division by {y}"
    return None


def _refuse_div_mode(node: fx.Node) -> str | None:
    if node.kwargs.get("rounding_mode") is None:
        return None
    return _refuse_quotient(node)


@builtin(aten.div.Tensor_mode, aten.div.Scalar_mode, refuse=_refuse_div_mode)
def div_mode(ctx: Context, x: Any, y: Any, *, rounding_mode: str | None) -> TensorValue:
    """Return x / y, rounded down ("floor"), to zero ("trunc") or not at all."""
    if rounding_mode is None:
        a, b = operands(ctx, FLOAT, x, y)
        return ops.div(a, b)
    (a,) = operands(ctx, SAME, x)
    return m.floored_quotient(a, y) if rounding_mode == "floor" else m.truncated_quotient(a, y)


@builtin(aten.floor_divide.default, refuse=_refuse_quotient)
def floor_divide(ctx: Context, x: Any, y: Any) -> TensorValue:
    """Return x // y of integers."""
    (a,) = operands(ctx, SAME, x)
    return m.floored_quotient(a, y)


@builtin(aten.remainder.Scalar, aten.remainder.Tensor, refuse=_refuse_quotient)
def remainder(ctx: Context, x: Any, y: Any) -> TensorValue:
    """Return x - y * floor(x / y) of integers."""
    (a,) = operands(ctx, SAME, x)
    return a - m.floored_quotient(a, y) * m.number(a, y)


@builtin(aten.fmod.Scalar, aten.fmod.Tensor, refuse=_refuse_quotient)
def fmod(ctx: Context, x: Any, y: Any) -> TensorValue:
    """Return x - y * trunc(x / y) of integers."""
    (a,) = operands(ctx, SAME, x)
    return a - m.truncated_quotient(a, y) * m.number(a, y)


def _refuse_pow(node: fx.Node) -> str | None:
    if node.meta["val"].dtype.is_floating_point:
        return None
    y = node.args[1]
    if (
        isinstance(y, int)
        and not isinstance(y, bool)
        and 0 <= y <= 16
        and node.meta["val"].dtype != torch.bool
    ):
        return None
    return "an integer power that is not a small constant"


@builtin(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar, refuse=_refuse_pow)
def power(ctx: Context, x: Any, y: Any) -> TensorValue:
    """Return x^y."""
    if isinstance(y, (int, float)) and float(y).is_integer() and 1 <= y <= 16:
        (a,) = operands(ctx, SAME, x, fakes=ctx.args)
        return m.integer_power(a, int(y))
    if not ctx.dtype.is_floating_point:
        (a,) = operands(ctx, SAME, x)
        return m.integer_power(a, y)
    a, b = operands(ctx, SAME, x, y)
    if isinstance(y, (int, float)) and y in (-1, -2):
        return m.number(a, 1.0) / m.integer_power(a, -int(y))
    if isinstance(y, float) and abs(y) == 0.5:
        if ctx.dtype == torch.float16 and on_host(ctx.result.device):
            # torch calls C's pow for this dtype alone, which drops the sign of -0.0 and -inf.
            edge = ops.logical_or(ops.is_inf(a), ops.equal(a, m.number(a, 0.0)))
            a = ops.where(edge, ops.abs(a), a)
        return ops.sqrt(a) if y > 0 else ops.rsqrt(a)
    return m.power(a, b)


@builtin(aten.isinf.default)
def isinf(ctx: Context, x: TensorValue) -> TensorValue:
    """Test for infinity; integers have none."""
    return ops.is_inf(x) if x.dtype.is_float() else ops.not_equal(x, x)


@builtin(aten.logical_not.default)
def logical_not(ctx: Context, x: TensorValue) -> TensorValue:
    """Test for zero."""
    return ops.logical_not(cast(x, torch.bool))


LOGICAL: list[tuple[torch._ops.OpOverload, Binary]] = [
    (aten.logical_and.default, ops.logical_and),
    (aten.logical_or.default, ops.logical_or),
    (aten.logical_xor.default, ops.logical_xor),
]


def _logical(fn: Binary) -> Callable[..., TensorValue]:
    def rule(ctx: Context, x: TensorValue, y: TensorValue) -> TensorValue:
        return fn(ctx.value(x, torch.bool), ctx.value(y, torch.bool))

    return rule


def _refuse_bits(node: fx.Node) -> str | None:
    return (
        None if node.meta["val"].dtype == torch.bool else "MAX has no bitwise operators on integers"
    )


for _op, _logic in LOGICAL:
    builtin(_op)(_logical(_logic))
for _op, _logic in [
    (aten.bitwise_and.Tensor, ops.logical_and),
    (aten.bitwise_or.Tensor, ops.logical_or),
    (aten.bitwise_xor.Tensor, ops.logical_xor),
]:
    builtin(_op, refuse=_refuse_bits)(_logical(_logic))


@builtin(aten.bitwise_not.default, refuse=_refuse_bits)
def bitwise_not(ctx: Context, x: TensorValue) -> TensorValue:
    """Return not x of bools."""
    return ops.logical_not(x)


@builtin(aten.where.self)
def where(ctx: Context, condition: TensorValue, x: TensorValue, y: TensorValue) -> TensorValue:
    """Choose by `condition`."""
    chosen = [cast(condition, torch.bool), ctx.value(x, ctx.dtype), ctx.value(y, ctx.dtype)]
    return ops.where(*agreed(ctx, chosen))


@builtin(aten.clamp.default, aten.clamp.Tensor)
def clamp(ctx: Context, x: TensorValue, min: Any = None, max: Any = None) -> TensorValue:
    """Limit x; NaN stays, and the upper limit wins over the lower."""
    computed = m.as_float(ctx.dtype)
    a = ctx.value(x, computed)
    if min is not None:
        a = m.maximum(a, ctx.value(min, computed))
    if max is not None:
        a = m.minimum(a, ctx.value(max, computed))
    return a


@builtin(aten.gelu.default)
def gelu(ctx: Context, x: TensorValue, *, approximate: str = "none") -> TensorValue:
    """Return GELU."""
    (a,) = operands(ctx, FLOAT, x)
    return m.gelu(a, approximate)


@builtin(aten.leaky_relu.default)
def leaky_relu(ctx: Context, x: TensorValue, negative_slope: Any = 0.01) -> TensorValue:
    """Return x where positive, else x * slope."""
    (a,) = operands(ctx, FLOAT, x)
    zero = m.number(a, 0.0)
    return ops.where(ops.greater(a, zero), a, a * ctx.value(negative_slope, m.as_float(ctx.dtype)))


@builtin(aten.elu.default)
def elu(
    ctx: Context, x: TensorValue, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1
) -> TensorValue:
    """Return scale * x where positive, else scale * alpha * (e^(input_scale * x) - 1)."""
    (a,) = operands(ctx, FLOAT, x)
    dtype = m.as_float(ctx.dtype)
    below = ctx.value(alpha, dtype) * m.expm1(a * ctx.value(input_scale, dtype))
    return ops.where(ops.greater(a, m.number(a, 0.0)), a, below) * ctx.value(scale, dtype)


@builtin(aten.hardtanh.default)
def hardtanh(ctx: Context, x: TensorValue, min_val: Any = -1, max_val: Any = 1) -> TensorValue:
    """Limit x to [min_val, max_val]."""
    return clamp(ctx, x, min_val, max_val)


def _refuse_cast(node: fx.Node) -> str | None:
    x = node.args[0].meta["val"]
    if x.device != node.meta["val"].device:
        return f"moves from {x.device} to {node.meta['val'].device}"
    return None


@builtin(aten._to_copy.default, refuse=_refuse_cast, alias=True)
def to_copy(ctx: Context, x: TensorValue, **_: Any) -> TensorValue:
    """Cast; memory formats show in the promised strides."""
    return cast(x, ctx.dtype)


@builtin(prims.convert_element_type.default, alias=True)
def convert_element_type(ctx: Context, x: TensorValue, dtype: torch.dtype) -> TensorValue:
    """Cast."""
    return cast(x, dtype)


@builtin(
    aten.clone.default,
    aten.alias.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
    alias=True,
)
def same(ctx: Context, x: TensorValue, **_: Any) -> TensorValue:
    """Return x; outputs get memory of their own later."""
    return x
