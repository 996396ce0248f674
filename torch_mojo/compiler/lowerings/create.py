"""Tensors made from numbers."""

from __future__ import annotations

from typing import Any

import torch
from max.graph import TensorValue, ops
from torch import fx

from ..context import Context, broadcast
from ..rules import builtin

aten = torch.ops.aten


@builtin(aten.full.default)
def full(ctx: Context, size: Any, value: Any, **_: Any) -> TensorValue:
    """Fill with one value."""
    return broadcast(ctx.value(value, ctx.dtype), ctx.shape())


@builtin(aten.full_like.default)
def full_like(ctx: Context, x: TensorValue, value: Any, **_: Any) -> TensorValue:
    """Fill with one value."""
    return broadcast(ctx.value(value, ctx.dtype), ctx.shape())


@builtin(
    aten.zeros.default,
    aten.zeros_like.default,
    aten.new_zeros.default,
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.empty_permuted.default,
    aten.empty_strided.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
)
def zeros(ctx: Context, *_: Any, **__: Any) -> TensorValue:
    """Fill with zeros; what torch leaves undefined as well."""
    return broadcast(ctx.value(0, ctx.dtype), ctx.shape())


@builtin(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(ctx: Context, *_: Any, **__: Any) -> TensorValue:
    """Fill with ones."""
    return broadcast(ctx.value(1, ctx.dtype), ctx.shape())


@builtin(aten.scalar_tensor.default)
def scalar_tensor(ctx: Context, value: Any, **_: Any) -> TensorValue:
    """Return a number as a tensor."""
    return ctx.value(value, ctx.dtype)


def _refuse_arange(node: fx.Node) -> str | None:
    if any(isinstance(a, float) for a in node.args) or node.meta["val"].dtype not in (
        torch.int32,
        torch.int64,
        torch.float32,
        torch.float64,
    ):
        return "a range of fractions, or of a narrow dtype"
    return "a range with a step of 0" if len(node.args) > 2 and node.args[2] == 0 else None


@builtin(aten.arange.start_step, refuse=_refuse_arange)
def arange(ctx: Context, start: Any, end: Any, step: Any = 1, **_: Any) -> TensorValue:
    """Count from start by step; computed in int64, as the numbers are whole."""
    length = ctx.shape()[0]
    zero, one = ctx.value(0, torch.int64), ctx.value(1, torch.int64)
    size = TensorValue(length)
    steps = ops.range(zero, size, one, out_dim=length, dtype=zero.dtype, device=ctx.device)
    return steps * ctx.value(step, torch.int64) + ctx.value(start, torch.int64)
