"""A torch function inside a MAX graph that is being built by hand, and on MAX's own tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from max.experimental.realization_context import ensure_context, in_graph_context
from max.experimental.tensor import Tensor, current_realization_context
from max.graph import Dim, Graph, StaticDim, TensorValue
from torch import fx

from torch_mojo.errors import SignatureError, UnsupportedOpError
from torch_mojo.jit.cache import cache
from torch_mojo.jit.package import precompiled

from . import custom, symbols
from ._private import (
    DimDynamic,
    FakeTensorMode,
    ShapeEnv,
    import_kernels,
    make_fx,
    size_source,
    tree_leaves,
    tree_map,
)
from .decompositions import decompositions
from .importer import ImportFailed, lower_node
from .types import TORCH_DTYPES

FIRST_HINT = 1009  # of sizes that are not known: no size that a function would single out


def call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a torch function with MAX values; the results are of the same kind.

    Args:
        function: composed of operators that have lowerings, or of `mojo::` kernels.
        args, kwargs: its arguments, with `max.graph.TensorValue`s while a graph is being built, or
            `max.experimental.tensor.Tensor`s, in the places of tensors.

    Raises:
        SignatureError: if the arguments mix MAX's values with torch's tensors.
        UnsupportedOpError: naming the operator that MAX cannot run.
    """
    leaves = tree_leaves((args, dict(kwargs)))
    if any(isinstance(v, torch.Tensor) for v in leaves):
        raise SignatureError(
            "A torch tensor and a MAX value were passed to one call.\n"
            "Convert one of them: max.experimental.tensor.Tensor.from_dlpack(t), or torch.from_dlpack(t)."
        )
    tensors = [v for v in leaves if isinstance(v, Tensor)]
    if not tensors:
        return _inline(function, args, kwargs)
    building = in_graph_context() or current_realization_context(None) is not None
    if not building and all(t.real for t in tensors):
        given, named = _convert((args, dict(kwargs)), Tensor, _to_torch)
        return _convert(function(*given, **named), torch.Tensor, _from_torch)
    with ensure_context():
        given, named = _convert((args, dict(kwargs)), Tensor, TensorValue)
        return _convert(_inline(function, given, named), TensorValue, Tensor.from_graph_value)


def _convert(tree: Any, kind: type, to: Callable[[Any], Any]) -> Any:
    return tree_map(lambda v: to(v) if isinstance(v, kind) else v, tree)


def _to_torch(tensor: Tensor) -> torch.Tensor:
    return torch.from_dlpack(tensor)


def _from_torch(tensor: torch.Tensor) -> Tensor:
    return Tensor.from_dlpack(tensor.contiguous())


class _Dims(symbols.Names):
    """Sizes of fake tensors and the graph's own dimensions, both ways."""

    def __init__(self) -> None:
        """Start without sizes."""
        super().__init__()
        self._env = ShapeEnv()
        self._sizes: dict[Dim, torch.SymInt | int] = {}
        self._dims: dict[Any, Dim] = {}
        self.mode = FakeTensorMode(shape_env=self._env)

    def size(self, dim: Dim) -> torch.SymInt | int:
        """Return a dimension of the graph as a size; one dimension is one symbol."""
        if isinstance(dim, StaticDim):
            return int(dim)
        if dim not in self._sizes:
            hint = FIRST_HINT + len(self._sizes)
            source = size_source(f"dim{len(self._sizes)}")
            symbol = self._env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC)
            self._sizes[dim] = self._env.create_symintnode(symbol, hint=hint, source=source)
            self._dims[symbol] = dim
        return self._sizes[dim]

    def of_symbol(self, symbol: Any) -> Dim:
        """Return the dimension of a symbol."""
        return self._dims[symbol]

    def fake(self, value: TensorValue) -> torch.Tensor:
        """Return a fake tensor like a graph value."""
        dtype = TORCH_DTYPES.get(value.dtype)
        if dtype is None:
            raise SignatureError(
                f"A value has dtype {value.dtype}, which torch does not have.\nCast it first."
            )
        device = "cpu" if value.device.is_cpu() else f"cuda:{value.device.id}"
        with self.mode:
            return torch.empty([self.size(d) for d in value.shape], dtype=dtype, device=device)

    def check(self) -> None:
        """Refuse a function that fixed a size of the graph.

        Raises:
            UnsupportedOpError: naming the dimension.
        """
        for symbol, dim in self._dims.items():
            fixed = self._env.replacements.get(symbol)
            if fixed is not None and not fixed.free_symbols:
                raise UnsupportedOpError(
                    f"The dimension {dim} would be fixed to {FIRST_HINT} or the like: the function looks at "
                    "its value.\nGive the graph's input a static dimension there."
                )


def _inline(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    graph = Graph.current
    dims = _Dims()
    values: list[TensorValue] = []

    def mark(value: Any) -> Any:
        if isinstance(value, TensorValue):
            values.append(value)
            return _Place(len(values) - 1)
        return value

    places = tree_map(mark, (list(args), dict(kwargs)))
    fakes = [dims.fake(v) for v in values]

    def traced(*tensors: torch.Tensor) -> Any:
        given, named = _convert(places, _Place, lambda p: tensors[p.index])
        return function(*given, **named)

    with torch.no_grad(), dims.mode:
        gm = make_fx(traced, decomposition_table=decompositions())(*fakes)  # type: ignore[arg-type]
    dims.check()
    return _import(graph, gm, values, dims)


class _Place:
    """Where a graph value stood among the arguments."""

    def __init__(self, index: int) -> None:
        """Keep the position."""
        self.index = index


def _import(graph: Graph, gm: fx.GraphModule, values: list[TensorValue], dims: _Dims) -> Any:
    nodes = list(gm.graph.nodes)
    holders = iter(values)
    env: dict[fx.Node, Any] = {n: next(holders) for n in nodes if n.op == "placeholder"}
    kernels = [k for n in nodes if n.op == "call_function" and (k := custom.kernel_of(n))]
    if kernels:
        import_kernels(graph, {precompiled(k.path, cache()) for k in kernels})
    for node in nodes:
        if node.op == "get_attr":
            raise UnsupportedOpError(
                f"The function uses the torch tensor {node.target}, which is no argument.\n"
                "Pass it as a graph value."
            )
        if node.op == "call_function" and not isinstance(node.meta["val"], torch.SymInt):
            try:
                env[node] = lower_node(node, env, dims, {})
            except ImportFailed as e:
                raise UnsupportedOpError(
                    f"[{node.target}] cannot be put into a MAX graph: {e.reason}.\n"
                    "Call the function in eager torch, or through torch.compile(backend='max')."
                ) from e
    (output,) = (n for n in nodes if n.op == "output")
    return _convert(output.args[0], fx.Node, lambda n: env[n])
