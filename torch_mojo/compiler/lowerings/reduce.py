"""Reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from max.dtype import DType
from max.graph import Dim, TensorValue, ops
from torch import fx

from .. import symbols
from ..context import Context, cast, constant, reshape
from ..rules import builtin
from ..types import TORCH_DTYPES
from . import math as m

aten = torch.ops.aten
Axis = Callable[[TensorValue, int], TensorValue]


def dims_of(ctx: Context, dim: Any) -> list[int]:
    """Return the reduced dims of the first argument, sorted; None and [] mean all."""
    rank = ctx.args[0].dim()
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(rank))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return sorted({d % rank if rank else 0 for d in dims} if rank else set())


def flattened(x: TensorValue, dims: list[int]) -> tuple[TensorValue, int]:
    """Return x with the reduced dims made one, and that axis."""
    if not dims:
        return reshape(x, [*x.shape, Dim(1)]), x.rank
    if len(dims) == 1:
        return x, dims[0]
    kept = [d for d in range(x.rank) if d not in dims]
    order = kept + dims
    if order != list(range(x.rank)):
        x = ops.permute(x, order)
    total = Dim(1)
    for d in x.shape[len(kept) :]:
        total = total * d
    return reshape(x, [*x.shape[: len(kept)], total]), len(kept)


def reduced(ctx: Context, x: TensorValue, dims: list[int], fn: Axis) -> TensorValue:
    """Reduce the dims with `fn` and give the result the promised shape."""
    flat, axis = flattened(x, dims)
    return reshape(fn(flat, axis), ctx.shape())


def count(ctx: Context, dims: list[int]) -> symbols.Size:
    """Return how many elements are reduced to one."""
    total: symbols.Size = 1
    for d in dims:
        total = total * ctx.args[0].shape[d]
    return total


def divisor(ctx: Context, n: symbols.Size, dtype: torch.dtype, less: float = 0.0) -> TensorValue:
    """Return max(n - less, 0) as a value."""
    fixed = symbols.static(n)
    if fixed is not None:
        return constant(max(fixed - less, 0.0), dtype, ctx.device)
    value = cast(TensorValue(ctx.dim(n)), dtype)
    if str(value.device) != str(ctx.device):
        value = ops.transfer_to(value, ctx.device)
    return ops.max(value - m.number(value, less), m.number(value, 0.0))


def _sum(x: TensorValue, axis: int) -> TensorValue:
    return ops.sum(x, axis)


@builtin(aten.sum.dim_IntList, aten.sum.default)
def sum(
    ctx: Context, x: TensorValue, dim: Any = None, keepdim: bool = False, **_: Any
) -> TensorValue:
    """Add; integers add up in int64, the halves in float32."""
    return reduced(ctx, cast(x, m.as_float(ctx.dtype)), dims_of(ctx, dim), _sum)


@builtin(aten.mean.dim, aten.mean.default)
def mean(
    ctx: Context, x: TensorValue, dim: Any = None, keepdim: bool = False, **_: Any
) -> TensorValue:
    """Average."""
    dims, dtype = dims_of(ctx, dim), m.as_float(ctx.dtype)
    return reduced(ctx, cast(x, dtype), dims, _sum) / divisor(ctx, count(ctx, dims), dtype)


@builtin(aten.prod.default, aten.prod.dim_int)
def prod(
    ctx: Context, x: TensorValue, dim: Any = None, keepdim: bool = False, **_: Any
) -> TensorValue:
    """Multiply."""
    return reduced(
        ctx, cast(x, m.as_float(ctx.dtype)), dims_of(ctx, dim), lambda v, a: ops.prod(v, a)
    )


def extreme(largest: bool) -> Axis:
    """Return a max or min along one axis that gives NaN if there is one, and takes bools."""

    def fn(x: TensorValue, axis: int) -> TensorValue:
        pick = ops.reduction.max if largest else ops.reduction.min
        if x.dtype == DType.bool:
            return cast(pick(ops.cast(x, DType.int32), axis), torch.bool)
        best = pick(x, axis)
        if not x.dtype.is_float():
            return best
        # MAX drops NaN, and starts from the largest finite number instead of infinity.
        limit = m.number(x, -m.INF if largest else m.INF)
        beyond = ops.greater(x, limit) if largest else ops.greater(limit, x)
        rank = ops.cast(beyond, DType.int32) + ops.cast(ops.is_nan(x), DType.int32) * _int(x, 2)
        highest = ops.reduction.max(rank, axis)
        best = ops.where(ops.equal(highest, _int(x, 0)), limit, best)
        return ops.where(ops.equal(highest, _int(x, 2)), m.number(x, m.NAN), best)

    return fn


def _int(x: TensorValue, value: int) -> TensorValue:
    return constant(value, torch.int32, x.device)


def _any_nan(x: TensorValue, axis: int) -> TensorValue:
    return cast(ops.reduction.max(ops.cast(ops.is_nan(x), DType.int32), axis), torch.bool)


def position(largest: bool) -> Axis:
    """Return the first index of the extreme along one axis; the first NaN wins."""

    def fn(x: TensorValue, axis: int) -> TensorValue:
        pick = ops.argmax if largest else ops.argmin
        if x.shape[axis] == 1:  # MAX does not compile argmax of one element
            return ops.broadcast_to(constant(0, torch.int64, x.device), x.shape)
        if not x.dtype.is_float():
            return pick(x, axis)
        nan = ops.cast(ops.is_nan(x), DType.int32)
        return ops.where(_any_nan(x, axis), ops.argmax(nan, axis), pick(x, axis))

    return fn


def _wide(x: TensorValue) -> TensorValue:
    return cast(x, m.as_float(TORCH_DTYPES[x.dtype]))


def _amax(largest: bool) -> Callable[..., TensorValue]:
    def rule(ctx: Context, x: TensorValue, dim: Any = None, keepdim: bool = False) -> TensorValue:
        return reduced(ctx, _wide(x), dims_of(ctx, dim), extreme(largest))

    return rule


builtin(aten.amax.default, aten.max.default)(_amax(True))
builtin(aten.amin.default, aten.min.default)(_amax(False))


def _refuse_bool(node: fx.Node) -> str | None:
    return "positions of bools" if node.args[0].meta["val"].dtype == torch.bool else None


def _arg(largest: bool) -> Callable[..., TensorValue]:
    def rule(ctx: Context, x: TensorValue, dim: Any = None, keepdim: bool = False) -> TensorValue:
        if dim is None:
            return reshape(
                position(largest)(reshape(_wide(x), [-1]) if x.rank != 1 else _wide(x), 0),
                ctx.shape(),
            )
        return reduced(ctx, _wide(x), dims_of(ctx, dim), position(largest))

    return rule


builtin(aten.argmax.default, refuse=_refuse_bool)(_arg(True))
builtin(aten.argmin.default, refuse=_refuse_bool)(_arg(False))


def _with_position(largest: bool) -> Callable[..., tuple[TensorValue, TensorValue]]:
    def rule(
        ctx: Context, x: TensorValue, dim: int, keepdim: bool = False
    ) -> tuple[TensorValue, TensorValue]:
        dims, wide = dims_of(ctx, dim), _wide(x)
        return reduced(ctx, wide, dims, extreme(largest)), reduced(
            ctx, wide, dims, position(largest)
        )

    return rule


builtin(aten.max.dim, refuse=_refuse_bool)(_with_position(True))
builtin(aten.min.dim, refuse=_refuse_bool)(_with_position(False))


def _truth(every: bool) -> Callable[..., TensorValue]:
    def rule(ctx: Context, x: TensorValue, dim: Any = None, keepdim: bool = False) -> TensorValue:
        result = reduced(ctx, cast(x, torch.bool), dims_of(ctx, dim), extreme(not every))
        return result

    return rule


builtin(aten.any.default, aten.any.dim, aten.any.dims)(_truth(False))
builtin(aten.all.default, aten.all.dim, aten.all.dims)(_truth(True))


def moments(
    ctx: Context, x: TensorValue, dims: list[int], correction: float
) -> tuple[TensorValue, TensorValue]:
    """Return variance and mean over `dims` in two passes; the dims become one of size 1."""
    dtype = TORCH_DTYPES[x.dtype]
    flat, axis = flattened(x, dims)
    n = count(ctx, dims)
    average = ops.sum(flat, axis) / divisor(ctx, n, dtype)
    off = m.minus(flat, average)
    return ops.sum(off * off, axis) / divisor(ctx, n, dtype, correction), average


def _correction(correction: Any) -> float:
    return 1.0 if correction is None else float(correction)


def _refuse_correction(node: fx.Node) -> str | None:
    return (
        "a correction that is not a constant"
        if isinstance(node.kwargs.get("correction"), fx.Node)
        else None
    )


@builtin(aten.var.correction, refuse=_refuse_correction)
def var(
    ctx: Context, x: TensorValue, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> TensorValue:
    """Return the variance."""
    spread, _ = moments(
        ctx, cast(x, m.as_float(ctx.dtype)), dims_of(ctx, dim), _correction(correction)
    )
    return reshape(spread, ctx.shape())


@builtin(aten.var_mean.correction, refuse=_refuse_correction)
def var_mean(
    ctx: Context, x: TensorValue, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[TensorValue, TensorValue]:
    """Return the variance and the mean."""
    spread, average = moments(
        ctx, cast(x, m.as_float(ctx.dtype)), dims_of(ctx, dim), _correction(correction)
    )
    return reshape(spread, ctx.shape()), reshape(average, ctx.shape())


@builtin(aten.cumsum.default)
def cumsum(ctx: Context, x: TensorValue, dim: int, **_: Any) -> TensorValue:
    """Add up along a dim."""
    wide = cast(x, m.as_float(ctx.dtype))
    return wide if not x.rank else ops.cumsum(wide, dim % x.rank)


def _refuse_norm(node: fx.Node) -> str | None:
    order = node.args[1] if len(node.args) > 1 else 2
    return None if order in (1, 2) else f"a norm of order {order}"


@builtin(aten.linalg_vector_norm.default, refuse=_refuse_norm)
def vector_norm(
    ctx: Context, x: TensorValue, ord: float = 2, dim: Any = None, keepdim: bool = False, **_: Any
) -> TensorValue:
    """Return the norm of order 1 or 2."""
    wide = cast(x, m.as_float(ctx.dtype))
    dims = dims_of(ctx, dim)
    if ord == 1:
        return reduced(ctx, ops.abs(wide), dims, _sum)
    return ops.sqrt(reduced(ctx, wide * wide, dims, _sum))
