"""`mojo::` operators inside a MAX graph, as the same Mojo kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.fx.node import map_arg

if TYPE_CHECKING:
    from .context import Context

_KEY = "torch_mojo_kernel"


def _find_op(overload: torch._ops.OpOverload) -> Any:
    from torch_mojo.op import find_op

    return find_op(overload)


def kernel_of(node: fx.Node) -> Any:
    """Return the kernel behind a node (name, path, operands, parameters), or None.

    The answer is kept in the node's meta, which copies of the node share.
    """
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace in (
        "aten",
        "prims",
    ):
        return None
    if _KEY not in node.meta:
        op = _find_op(node.target)
        kernel = None
        if op is not None and not node.target._schema.is_mutable:
            args = map_arg(node.args, lambda n: n.meta["val"])
            kwargs = map_arg(node.kwargs, lambda n: n.meta["val"])
            kernel = op.graph_kernel(args, kwargs, node.meta["val"])
        node.meta[_KEY] = kernel
    return node.meta[_KEY]


def lower(context: Context, kernel: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Put the kernel into the graph under construction, with the results that torch promised."""
    from max.dtype import DType
    from max.graph import TensorType, ops

    from .context import bake, broadcast, constant
    from .types import DTYPES, TORCH_DTYPES, device_ref

    cpu = device_ref(torch.device("cpu"))
    several = isinstance(context.out, (tuple, list))
    fakes = list(context.out) if several else [context.out]
    types = [
        TensorType(DTYPES[f.dtype], [1] if single else context.shape(f), device_ref(f.device))
        for f, single in zip(fakes, kernel.singles, strict=True)
    ]
    operands = []
    for operand in kernel.operands:
        if operand[0] == "arg":
            _, key, single = operand
            value = args[key] if isinstance(key, int) else kwargs[key]
            if kernel.broadcast:
                value = broadcast(value, types[0].shape)
            operands.append(ops.reshape(value, [1]) if single else value)
        elif operand[0] == "absent":
            _, dtype, rank = operand
            empty = torch.empty((0,) * rank, dtype=TORCH_DTYPES[DType[dtype]])
            operands.append(bake(empty, context.device))
        else:
            _, value, dtype = operand
            operands.append(constant(value, TORCH_DTYPES[DType[dtype]], cpu))
    parameters = {
        k: DTYPES[v] if isinstance(v, torch.dtype) else v for k, v in kernel.parameters.items()
    }
    results = ops.custom(kernel.name, context.device, operands, types, parameters or None)
    tensors = [
        ops.reshape(r.tensor, []) if single else r.tensor
        for r, single in zip(results, kernel.singles, strict=True)
    ]
    return tensors if several else tensors[0]
