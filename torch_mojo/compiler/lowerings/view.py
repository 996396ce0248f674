"""Operators that only move elements: views, joins and cuts; a graph knows no strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from max._core.dialects import rmo
from max.graph import Dim, Graph, Shape, TensorValue, ops
from torch import fx

from .. import symbols
from ..context import Context, broadcast, reshape
from ..rules import builtin

aten = torch.ops.aten


@builtin(
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    alias=True,
)
def view(ctx: Context, x: TensorValue, *_: Any) -> TensorValue:
    """Give x the promised shape."""
    return reshape(x, ctx.shape())


def _refuse_as_strided(node: fx.Node) -> str | None:
    x, out = node.args[0].meta["val"], node.meta["val"]
    offset = _arg(node, 3, None)
    same = x.dim() == out.dim() and all(
        symbols.known(a == b)
        for a, b in zip((*x.shape, *x.stride()), (*out.shape, *out.stride()), strict=True)
    )
    here = offset is None or symbols.known(offset == x.storage_offset())
    return None if same and here else "a view by strides"


@builtin(aten.as_strided.default, refuse=_refuse_as_strided, alias=True)
def as_strided(ctx: Context, x: TensorValue, *_: Any) -> TensorValue:
    """Return x, where its sizes and strides are those that are asked for."""
    return x


@builtin(aten.expand.default, alias=True)
def expand(ctx: Context, x: TensorValue, *_: Any, **__: Any) -> TensorValue:
    """Repeat dims of size 1."""
    return broadcast(x, ctx.shape())


@builtin(aten.permute.default, alias=True)
def permute(ctx: Context, x: TensorValue, dims: Sequence[int]) -> TensorValue:
    """Reorder the dims."""
    order = [d % x.rank for d in dims]
    return x if order == list(range(x.rank)) else ops.permute(x, order)


@builtin(aten.t.default, alias=True)
def t(ctx: Context, x: TensorValue) -> TensorValue:
    """Transpose a matrix."""
    return ops.permute(x, [1, 0]) if x.rank == 2 else x


@builtin(aten.transpose.int, alias=True)
def transpose(ctx: Context, x: TensorValue, dim0: int, dim1: int) -> TensorValue:
    """Exchange two dims."""
    if not x.rank:
        return x
    order = list(range(x.rank))
    a, b = dim0 % x.rank, dim1 % x.rank
    order[a], order[b] = order[b], order[a]
    return ops.permute(x, order)


def cut(x: TensorValue, dim: int, start: Dim, length: Dim, step: int = 1) -> TensorValue:
    """Take `length` elements of a dim from `start`, every `step`-th."""
    starts: list[Any] = [Dim(0)] * x.rank
    stops: list[Any] = list(x.shape)
    steps = [1] * x.rank
    starts[dim], stops[dim], steps[dim] = start, start + (length - 1) * step + 1, step
    made = Graph.current._add_op_generated(
        rmo.SliceOp, input=x, starts=Shape(starts), stops=Shape(stops), steps=Shape(steps)
    )
    value = made[0].tensor
    shape = list(x.shape)
    shape[dim] = length
    return value if list(value.shape) == shape else ops.rebind(value, shape)


def start_of(size: symbols.Size, start: symbols.Size | None) -> symbols.Size | None:
    """Return a slice's start within 0..size, or None if it cannot be known without a new guard."""
    if start is None:
        return 0
    if symbols.known(start >= 0):
        return start if symbols.known(start <= size) else None
    if symbols.known(start < 0):
        wrapped = start + size
        return (
            wrapped if symbols.known(wrapped >= 0) else (0 if symbols.known(wrapped < 0) else None)
        )
    return None


def _arg(node: fx.Node, index: int, default: Any) -> Any:
    value = node.args[index] if len(node.args) > index else default
    return value.meta["val"] if isinstance(value, fx.Node) else value


def _refuse_slice(node: fx.Node) -> str | None:
    x = node.args[0].meta["val"]
    dim = _arg(node, 1, 0) % max(x.dim(), 1)
    if start_of(x.shape[dim], _arg(node, 2, None)) is None:
        return "a slice whose start depends on a size"
    return None if isinstance(_arg(node, 4, 1), int) else "a slice with a symbolic step"


@builtin(aten.slice.Tensor, refuse=_refuse_slice, alias=True)
def slice_(
    ctx: Context, x: TensorValue, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> TensorValue:
    """Take part of a dim."""
    dim %= x.rank
    size = ctx.args[0].shape[dim]
    first = start_of(size, ctx.args[2] if len(ctx.args) > 2 else None)
    assert first is not None
    if list(x.shape) == ctx.shape() and step == 1:
        return x
    return cut(x, dim, ctx.dim(first), ctx.dim(ctx.result.shape[dim]), step)


def _refuse_select(node: fx.Node) -> str | None:
    x, index = node.args[0].meta["val"], _arg(node, 2, 0)
    size = x.shape[_arg(node, 1, 0) % x.dim()]
    inside = symbols.known(index >= 0) and symbols.known(index < size)
    return None if inside or symbols.known(index < 0) else "an index that depends on a size"


@builtin(aten.select.int, refuse=_refuse_select, alias=True)
def select(ctx: Context, x: TensorValue, dim: int, index: Any) -> TensorValue:
    """Take one element of a dim."""
    dim %= x.rank
    if symbols.known(index < 0):
        index = index + ctx.args[0].shape[dim]
    return reshape(cut(x, dim, ctx.dim(index), Dim(1)), ctx.shape())


def _pieces(ctx: Context, x: TensorValue, dim: int) -> list[TensorValue]:
    dim %= x.rank
    pieces, start = [], Dim(0)
    for fake in ctx.out:
        length = ctx.dim(fake.shape[dim])
        pieces.append(cut(x, dim, start, length))
        start = start + length
    return pieces


@builtin(aten.split.Tensor, aten.split_with_sizes.default, alias=True)
def split(ctx: Context, x: TensorValue, size: Any, dim: int = 0) -> list[TensorValue]:
    """Cut a dim into the promised pieces."""
    return _pieces(ctx, x, dim)


@builtin(aten.unbind.int, alias=True)
def unbind(ctx: Context, x: TensorValue, dim: int = 0) -> list[TensorValue]:
    """Cut a dim into its elements."""
    dim %= x.rank
    return [reshape(cut(x, dim, Dim(i), Dim(1)), ctx.shape(f)) for i, f in enumerate(ctx.out)]


def _join(ctx: Context, values: list[TensorValue], dim: int) -> TensorValue:
    """Concatenate; dims that torch knows to be equal are made so for MAX."""
    if len(values) == 1:
        return values[0]
    shapes = [
        [v.shape[d] if d == dim else values[0].shape[d] for d in range(v.rank)] for v in values
    ]
    alike = [
        v if list(v.shape) == s else ops.rebind(v, s) for v, s in zip(values, shapes, strict=True)
    ]
    return ops.concat(alike, dim)


@builtin(aten.cat.default)
def cat(ctx: Context, tensors: Sequence[TensorValue], dim: int = 0) -> TensorValue:
    """Join along a dim."""
    values = [ctx.value(v, ctx.dtype) for v in tensors]
    return _join(ctx, values, dim % values[0].rank)


@builtin(aten.stack.default)
def stack(ctx: Context, tensors: Sequence[TensorValue], dim: int = 0) -> TensorValue:
    """Join along a new dim."""
    dim %= ctx.result.dim()
    values = []
    for v in tensors:
        shape = list(v.shape)
        shape.insert(dim, Dim(1))
        values.append(reshape(ctx.value(v, ctx.dtype), shape))
    return _join(ctx, values, dim)


def _refuse_pad(node: fx.Node) -> str | None:
    pads = node.args[1]
    return (
        None if all(isinstance(p, int) and p >= 0 for p in pads) else "negative or symbolic padding"
    )


@builtin(aten.constant_pad_nd.default, refuse=_refuse_pad)
def constant_pad(ctx: Context, x: TensorValue, pad: Sequence[int], value: Any = 0) -> TensorValue:
    """Pad with a value, by joining with blocks of it."""
    for i in range(len(pad) // 2):
        dim = x.rank - 1 - i
        parts = [x]
        for size, place in ((pad[2 * i], 0), (pad[2 * i + 1], 1)):
            if size:
                shape = list(x.shape)
                shape[dim] = Dim(size)
                block = broadcast(ctx.value(value, ctx.dtype), shape)
                parts = [*parts, block] if place else [block, *parts]
        x = _join(ctx, parts, dim)
    return x
