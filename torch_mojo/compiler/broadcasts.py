"""A way around a fault of MAX 26.7: what two broadcasts made is wrong where it is broadcast again.

`(x[:, None] - y[None, :]) * z` with sizes (L,), (M,) and (4, L, M) that are symbols gives wrong numbers, as if MAX
moved the broadcasts over the difference of two equal shapes; of two views of one source it takes one for both. Sizes
that are numbers are right. So are a difference and operands that lie in memory, and that is where they are put.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from max.dtype import DType
from max.graph import DeviceRef, TensorValue, ops
from torch import fx

from . import symbols

aten = torch.ops.aten

_VIEWS = {
    *(aten.view.default, aten._unsafe_view.default, aten.alias.default, aten.permute.default),
    *(aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.squeeze.default),
    *(aten.transpose.int, aten.t.default, aten.clone.default, aten._to_copy.default),
    *(aten.slice.Tensor, aten.select.int, aten.detach.default, aten.expand.default),
}


def settle(node: fx.Node, value: object) -> object:
    """Return the result of a node, put into memory first where MAX would broadcast it wrongly."""
    if isinstance(value, TensorValue) and value.rank and (_mixes_again(node) or _is_mixed(node)):
        # Padding by nothing, under the kernel's own name: `ops.pad` would be removed as a copy, and a buffer stored and
        # loaded crashes the graph compiler where two of them meet.
        cpu = DeviceRef.CPU()
        padding = ops.constant(np.zeros(2 * value.rank, np.int64), DType.int64, cpu)
        operands = [value, padding, ops.constant(0, value.dtype, cpu)]
        return ops.custom("mo.pad.constant", value.device, operands, [value.type])[0].tensor
    return value


def _mixes_again(node: fx.Node) -> bool:
    return _mixes(node) and (_grows(node) or _meets(node))


def _is_mixed(node: fx.Node) -> bool:
    """Return whether a tensor is an operand that a mixing operator broadcasts."""
    expands = node.target is aten.expand.default
    return any(_mixes(u) and (expands or _numel(u) != _numel(node)) for u in node.users)


def _is_pointwise(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and (
        torch.Tag.pointwise in node.target.tags or node.target is aten.where.self
    )


def _shape(node: fx.Node) -> tuple[object, ...]:
    return tuple(symbols.expr(s) for s in node.meta["val"].shape)


def _numel(node: object) -> object:
    assert isinstance(node, fx.Node)
    return symbols.expr(node.meta["val"].numel())


def _tensors(node: fx.Node) -> Iterator[fx.Node]:
    for a in node.all_input_nodes:
        if isinstance(a.meta.get("val"), torch.Tensor) and a.meta["val"].dim():
            yield a


def _mixes(node: fx.Node) -> bool:
    """Return whether an elementwise operator broadcasts operands of different shapes over sizes that are symbols."""
    value = node.meta.get("val")
    if not _is_pointwise(node) or not isinstance(value, torch.Tensor):
        return False
    if not any(isinstance(s, torch.SymInt) for s in value.shape):
        return False
    total = _numel(node)
    shapes = set()
    for a in _tensors(node):
        if a.target is aten.expand.default:
            shapes.add(_shape(a.args[0]))  # type: ignore[arg-type]
        elif _numel(a) != total:
            shapes.add(_shape(a))
    return len(shapes) > 1


def _meets(node: fx.Node) -> bool:
    """Return whether a result of three dimensions or more is combined with another tensor."""
    users = [u for u in node.users if _is_pointwise(u)]
    return node.meta["val"].dim() > 2 and any(len(list(_tensors(u))) > 1 for u in users)


def _grows(node: fx.Node) -> bool:
    """Return whether a result is broadcast again by what takes it, directly or behind other elementwise operators."""
    total, seen, waiting = _numel(node), {node}, [node]
    while waiting:
        for user in waiting.pop().users:
            value = user.meta.get("val")
            follows = _is_pointwise(user) or user.target in _VIEWS
            if user in seen or not follows or not isinstance(value, torch.Tensor):
                continue
            if user.target not in (aten.slice.Tensor, aten.select.int) and _numel(user) != total:
                return True
            seen.add(user)
            waiting.append(user)
    return False
