"""Softmax and the normalizations."""

from __future__ import annotations

from typing import Any

import torch
from max.dtype import DType
from max.graph import Dim, TensorValue, ops

from ..context import Context, cast, constant, reshape
from ..rules import builtin
from . import math as m
from .reduce import moments

aten = torch.ops.aten


def _shifted(x: TensorValue, dim: int) -> TensorValue:
    # MAX's maximum ignores NaN; here that is harmless, as NaN - maximum is NaN.
    return m.minus(x, ops.reduction.max(x, dim))


@builtin(aten._softmax.default)
def softmax(
    ctx: Context, x: TensorValue, dim: int, half_to_float: bool = False, **_: Any
) -> TensorValue:
    """Return e^x / sum(e^x) along a dim; computed in float32 for the halves."""
    wide = cast(x, m.as_float(ctx.dtype))
    if not x.rank:
        return m.exp(m.minus(wide, wide))
    dim %= x.rank
    e = m.exp(_shifted(wide, dim))
    return e / ops.sum(e, dim)


@builtin(aten._safe_softmax.default)
def safe_softmax(ctx: Context, x: TensorValue, dim: int, dtype: Any = None) -> TensorValue:
    """Return softmax, and zeros where all along the dim is -inf."""
    soft = softmax(ctx, x, dim)
    seen = ops.cast(ops.logical_not(ops.equal(x, m.number(x, -m.INF))), DType.int32)
    if x.rank:
        seen = ops.reduction.max(seen, dim % x.rank)
    none = ops.equal(seen, ops.cast(constant(0, torch.int8, x.device), DType.int32))
    return ops.where(none, m.number(soft, 0.0), soft)


@builtin(aten._log_softmax.default)
def log_softmax(ctx: Context, x: TensorValue, dim: int, half_to_float: bool = False) -> TensorValue:
    """Return x - log(sum(e^x)) along a dim."""
    wide = cast(x, m.as_float(ctx.dtype))
    if not x.rank:
        return m.minus(wide, wide)
    dim %= x.rank
    off = _shifted(wide, dim)
    return off - ops.log(ops.sum(m.exp(off), dim))


@builtin(aten.native_layer_norm.default)
def layer_norm(
    ctx: Context,
    x: TensorValue,
    shape: Any,
    weight: TensorValue | None,
    bias: TensorValue | None,
    eps: float,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Normalize over the last dims; returns the result, the mean and 1 / standard deviation."""
    dtype = m.as_float(ctx.dtype)
    wide = cast(x, dtype)
    first = x.rank - len(shape)
    spread, average = moments(ctx, wide, list(range(first, x.rank)), 0.0)
    scale = ops.rsqrt(spread + m.number(spread, eps))
    kept = [*x.shape[:first], *[Dim(1)] * len(shape)]
    result = m.minus(wide, reshape(average, kept)) * reshape(scale, kept)
    if weight is not None:
        result = result * cast(weight, dtype)
    if bias is not None:
        result = result + cast(bias, dtype)
    return result, reshape(average, ctx.shape(ctx.out[1])), reshape(scale, ctx.shape(ctx.out[2]))


def _by_channel(v: TensorValue, rank: int) -> TensorValue:
    return reshape(v, [Dim(1), v.shape[0], *[Dim(1)] * (rank - 2)])


@builtin(aten._native_batch_norm_legit_no_training.default)
def batch_norm_inference(
    ctx: Context,
    x: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    mean: TensorValue,
    var: TensorValue,
    momentum: float,
    eps: float,
) -> tuple[TensorValue, None, None]:
    """Normalize each channel with the running statistics."""
    dtype = m.as_float(ctx.dtype)
    wide = cast(x, dtype)
    scale = ops.rsqrt(cast(var, dtype) + m.number(wide, eps))
    result = (wide - _by_channel(cast(mean, dtype), x.rank)) * _by_channel(scale, x.rank)
    if weight is not None:
        result = result * _by_channel(cast(weight, dtype), x.rank)
    if bias is not None:
        result = result + _by_channel(cast(bias, dtype), x.rank)
    return result, None, None
