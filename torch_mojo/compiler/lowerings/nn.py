"""Softmax and the normalizations."""

from __future__ import annotations

from typing import Any

import torch
from max.graph import Dim, TensorValue, ops

from ..context import Context, cast, reshape
from ..rules import builtin
from . import math as m
from .reduce import moments

aten = torch.ops.aten


def _shifted(x: TensorValue, dim: int) -> TensorValue:
    # MAX's maximum ignores NaN; here that is harmless, as NaN - maximum is NaN.
    return m.minus(x, ops.reduction.max(x, dim))


@builtin(aten._softmax.default, aten._safe_softmax.default)
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
