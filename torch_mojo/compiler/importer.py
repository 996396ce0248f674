"""An FX graph of lowered operators, as one MAX graph."""

from __future__ import annotations

import operator
import warnings
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from max.graph import DeviceRef, Dim, Graph, TensorType, TensorValue, ops
from torch import fx
from torch.fx.node import map_arg

from torch_mojo.jit.cache import cache
from torch_mojo.jit.package import precompiled

from . import broadcasts, custom, rules, symbols
from .context import Context, bake, cast
from .rules import NotLowered
from .types import DTYPES, device_ref, order

GRAPH_NAME = "torch_mojo"


class ImportFailed(Exception):
    """A node could not be lowered while the graph was built.

    Attributes:
        node: the node; it should run in eager torch.
        reason: why.
    """

    def __init__(self, node: fx.Node, reason: str) -> None:
        """Keep the node and the reason."""
        super().__init__(f"[{node.target}] {reason}")
        self.node = node
        self.reason = reason


@dataclass
class TensorInput:
    """An input of the MAX graph that is a tensor.

    Attributes:
        index: which argument of the island.
        order: dims from outermost to innermost, when the memory is dense in another order than
            torch's; the graph takes the memory as it lies and permutes.
    """

    index: int
    order: list[int] | None


@dataclass
class Output:
    """How a MAX output becomes the tensor that torch promised.

    Attributes:
        inverse: permutation that restores torch's dims, if the memory has another order.
        expand: the sizes to expand to, for strides of 0.
        strides: the sizes and strides to copy into, if the promised layout is not dense.
    """

    inverse: list[int] | None = None
    expand: list[symbols.Size] | None = None
    strides: tuple[list[symbols.Size], list[symbols.Size]] | None = None


@dataclass
class Imported:
    """A MAX graph and how to call it.

    Inputs of the graph are, in order: `tensors`, one empty tensor of shape (size, 0) per symbol of
    `carried`, whose only purpose is to tell MAX a size that no tensor has, and `scalars` (0-d).
    """

    graph: Graph
    tensors: list[TensorInput]
    scalars: list[tuple[int, torch.dtype]]
    carried: list[sympy.Symbol]
    outputs: list[Output]
    nodes: int


def _value(node: fx.Node) -> Any:
    return node.meta["val"]


def is_number(value: Any) -> bool:
    """Return whether an argument's meta value is a symbolic (or plain) number."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


def scalar_nodes(gm: fx.GraphModule) -> list[fx.Node]:
    """Return the number-valued placeholders that some node uses as a value, not as a size."""
    found: dict[fx.Node, None] = {}
    for node in gm.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        schema = node.target._schema.arguments
        kinds = {a.name: str(a.type) for a in schema}
        named = list(zip([a.name for a in schema], node.args, strict=False)) + list(
            node.kwargs.items()
        )
        for name, arg in named:
            if isinstance(arg, fx.Node) and is_number(_value(arg)) and kinds[name] in _VALUE_TYPES:
                found[arg] = None
    return list(found)


# The types that FunctionSchema prints for arguments which are values, not sizes.
_VALUE_TYPES = ("number", "Tensor", "float", "Optional[number]", "Optional[float]")


def import_graph(gm: fx.GraphModule, frozen: dict[int, torch.Tensor]) -> Imported:
    """Build the MAX graph of `gm`, whose placeholders and results are an island's.

    Args:
        gm: call_function nodes with lowerings only; placeholders are tensors or numbers.
        frozen: real values by placeholder index, to bake in.

    Raises:
        ImportFailed: a lowering refused its node; the graph must be split there.
    """
    nodes = list(gm.graph.nodes)
    holders = [n for n in nodes if n.op == "placeholder"]
    body = [n for n in nodes if n.op == "call_function"]
    names = symbols.Names()

    tensors: list[TensorInput] = []
    types: list[TensorType] = []
    rebinds: list[bool] = []
    bound: set[sympy.Symbol] = set()
    for i, n in enumerate(holders):
        fake = _value(n)
        if not isinstance(fake, torch.Tensor) or i in frozen:
            continue
        permuted = order(fake.shape, fake.stride())
        if permuted == list(range(fake.dim())):
            permuted = None
        sizes = [fake.shape[d] for d in permuted] if permuted else list(fake.shape)
        dims: list[Dim] = []
        for d, size in enumerate(sizes):
            e = symbols.expr(size)
            plain = e.is_Integer or isinstance(e, sympy.Symbol)
            dims.append(names.dim(size) if plain else Dim(f"i{len(tensors)}_{d}"))
            if plain and not e.is_Integer:
                bound.add(e)
        rebinds.append(any(str(d).startswith("i") for d in dims))
        tensors.append(TensorInput(i, permuted))
        types.append(TensorType(DTYPES[fake.dtype], dims, device_ref(fake.device)))

    wanted = {n: None for n in scalar_nodes(gm)}
    scalars = [(i, _scalar_dtype(_value(n))) for i, n in enumerate(holders) if n in wanted]
    carried = [s for s in symbols.free(_sizes(nodes)) if s not in bound]
    types += [
        TensorType(DTYPES[torch.int8], [Dim(names.name(s)), Dim(0)], DeviceRef.CPU())
        for s in carried
    ]
    types += [TensorType(DTYPES[dtype], [], DeviceRef.CPU()) for _, dtype in scalars]

    kernels = {n: k for n in body if (k := custom.kernel_of(n)) is not None}
    paths = dict.fromkeys(k.path for k in kernels.values())
    extensions = [precompiled(path, cache()) for path in paths]
    graph = Graph(GRAPH_NAME, input_types=types, custom_extensions=extensions)
    env: dict[fx.Node, Any] = {}
    with graph, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for slot, x, again in zip(tensors, graph.inputs, rebinds, strict=False):
            node = holders[slot.index]
            fake = _value(node)
            v = x.tensor
            sizes = [fake.shape[d] for d in slot.order] if slot.order else list(fake.shape)
            if again:
                v = ops.rebind(v, [names.dim(s) for s in sizes])
            env[node] = ops.permute(v, _inverse(slot.order)) if slot.order else v
        for (i, _), x in zip(scalars, graph.inputs[len(tensors) + len(carried) :], strict=False):
            env[holders[i]] = x.tensor
        for i, tensor in frozen.items():
            env[holders[i]] = bake(tensor, device_ref(tensor.device))
        for node in body:
            env[node] = broadcasts.settle(node, lower_node(node, env, names, wanted))
        outputs, results = [], []
        for out in _returned(gm):
            plan, result = _finish(_value(out), env[out], names)
            outputs.append(plan)
            results.append(result)
        graph.output(*results)
    return Imported(graph, tensors, scalars, carried, outputs, len(body))


def _scalar_dtype(value: Any) -> torch.dtype:
    if isinstance(value, (torch.SymBool, bool)):
        return torch.bool
    return torch.int64 if isinstance(value, (torch.SymInt, int)) else torch.float64


def _sizes(nodes: list[fx.Node]) -> list[Any]:
    """Return every size that the graph's nodes mention."""
    found: list[Any] = []

    def visit(n: fx.Node) -> fx.Node:
        if isinstance(n.meta.get("val"), torch.SymInt):
            found.append(n.meta["val"])
        return n

    for node in nodes:
        value = node.meta.get("val")
        for t in value if isinstance(value, (tuple, list)) else [value]:
            if isinstance(t, torch.Tensor):
                found.extend(t.shape)
        if node.op == "call_function" and not isinstance(node.target, torch._ops.OpOverload):
            continue
        if node.op == "call_function":
            kinds = {a.name: str(a.type) for a in node.target._schema.arguments}
            args = dict(zip(kinds, node.args, strict=False)) | node.kwargs
            map_arg([a for k, a in args.items() if kinds[k] not in _VALUE_TYPES], visit)
    return found


def _inverse(permutation: list[int]) -> list[int]:
    return [permutation.index(d) for d in range(len(permutation))]


def _returned(gm: fx.GraphModule) -> list[fx.Node]:
    return list(next(n for n in gm.graph.nodes if n.op == "output").args[0])


def lower_node(
    node: fx.Node, env: dict[fx.Node, Any], names: symbols.Names, wanted: dict[fx.Node, None]
) -> Any:
    """Put one node into the graph under construction.

    Args:
        node: a call of an operator, or of getitem.
        env: the graph values of the nodes before it.
        names: the dimensions of torch's symbols.
        wanted: number-valued nodes that are graph values as well.

    Raises:
        ImportFailed: with the reason.
    """
    if node.target is operator.getitem:
        return env[node.args[0]][node.args[1]]  # type: ignore[index]

    def real(n: fx.Node) -> Any:
        return env[n] if n in env and n not in wanted else _value(n)

    def fake(n: fx.Node) -> Any:
        return _value(n)

    context = Context(
        node, names, map_arg(node.args, fake), map_arg(node.kwargs, fake), _value(node)
    )
    args, kwargs = list(map_arg(node.args, real)), dict(map_arg(node.kwargs, real))
    schema = [a for a in node.target._schema.arguments]
    for i, a in enumerate(node.args):  # numbers used as values arrive as 0-d tensors
        if isinstance(a, fx.Node) and a in wanted and str(schema[i].type) in _VALUE_TYPES:
            args[i] = env[a]
    by_name = {a.name: str(a.type) for a in schema}
    for k, a in node.kwargs.items():
        if isinstance(a, fx.Node) and a in wanted and by_name[k] in _VALUE_TYPES:
            kwargs[k] = env[a]
    try:
        rule = rules.find(node.target)
        if rule is None:
            result = custom.lower(context, custom.kernel_of(node), args, kwargs)
        elif rule.builtin:
            result = rule.fn(context, *args, **kwargs)
        else:
            result = rule.fn(*args, **kwargs)
        return _promised(context, result)
    except (NotLowered, symbols.UnknownExpression) as e:
        raise ImportFailed(node, str(e)) from e
    except Exception as e:
        where = "" if rule is None else f" at {rule.where}"
        reason = f"its lowering{where} failed: {type(e).__name__}: {e}"
        raise ImportFailed(node, reason) from e


def _promised(context: Context, result: Any) -> Any:
    """Give the results the dtypes and dimensions that torch promised."""
    if not isinstance(context.out, (tuple, list)):
        return _conform(context, result, context.out)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    return [
        None if r is None or f is None else _conform(context, r, f)
        for r, f in zip(results, context.out, strict=True)
    ]


def _conform(context: Context, x: TensorValue, fake: torch.Tensor) -> TensorValue:
    x = cast(TensorValue(x), fake.dtype)
    shape = context.shape(fake)
    if list(x.shape) == shape:
        return x
    if x.rank != len(shape):
        raise ValueError(
            f"the result has the shape {list(x.shape)}, torch promised {list(fake.shape)}"
        )
    return ops.rebind(x, shape)


def _finish(fake: torch.Tensor, x: TensorValue, names: symbols.Names) -> tuple[Output, TensorValue]:
    """Arrange an output's memory so that torch's strides cost nothing, where that is possible."""
    sizes, strides = list(fake.shape), list(fake.stride())
    plan = Output()
    zero = [
        d
        for d in range(len(sizes))
        if symbols.static(strides[d]) == 0 and symbols.static(sizes[d]) != 1
    ]
    if zero:
        plan.expand = list(sizes)
        x = x[tuple(slice(0, 1) if d in zero else slice(None) for d in range(len(sizes)))]
        sizes = [1 if d in zero else s for d, s in enumerate(sizes)]
    dims = order(sizes, strides)
    if dims is None:
        plan.strides = (list(sizes), list(strides))
    elif dims != list(range(len(sizes))):
        x = ops.permute(x, dims)
        plan.inverse = _inverse(dims)
    return plan, x
