"""Sizes of intermediate results, computed from the sizes of a graph's inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from . import symbols

aten = torch.ops.aten

# Where the value of a size symbol stands: in a node, or in a dimension of one.
Known = dict[Any, fx.Node | tuple[fx.Node, int]]


def sources(nodes: list[fx.Node]) -> Known:
    """Return where the size symbols stand."""
    found: Known = {}
    for n in nodes:
        value = n.meta.get("val")
        if isinstance(value, torch.SymInt):
            if symbols.expr(value).is_Symbol:
                found.setdefault(symbols.expr(value), n)
        elif isinstance(value, torch.Tensor):
            for d, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and symbols.expr(size).is_Symbol:
                    found.setdefault(symbols.expr(size), (n, d))
    return found


def value_of(graph: fx.Graph, where: fx.Node | tuple[fx.Node, int]) -> fx.Node:
    """Return the node of a symbol's value, made at the graph's insertion point if there is none."""
    if isinstance(where, fx.Node):
        return where
    made = graph.call_function(aten.sym_size.int, where)
    made.meta["val"] = where[0].meta["val"].shape[where[1]]
    return made


def node_of(graph: fx.Graph, size: int | torch.SymInt, known: Known) -> fx.Node | int | None:
    """Return a size as an argument of a node, made at the graph's insertion point; None if `known` does not tell it."""
    if not isinstance(size, torch.SymInt):
        return size
    free = symbols.free([size])
    if any(s not in known for s in free):
        return None
    taken = tuple(value_of(graph, known[s]) for s in free)
    made = graph.call_function(_first(symbols.evaluator([size], free)), taken)
    made.meta["val"] = size
    return made


def from_inputs(gm: fx.GraphModule) -> None:
    """Let no size wait for the tensor that has it, where the inputs' sizes tell it as well.

    A size that is read from a result would split the graph: what needs it runs after the result.
    """
    known = sources([n for n in gm.graph.nodes if n.op == "placeholder"])
    for n in list(gm.graph.nodes):
        reads = n.op == "call_function" and any(
            a.op != "placeholder" and isinstance(a.meta.get("val"), torch.Tensor)
            for a in n.all_input_nodes
        )
        size = n.meta.get("val")
        if not reads or not isinstance(size, torch.SymInt):
            continue
        with gm.graph.inserting_before(n):
            made = node_of(gm.graph, size, known)
        if made is not None:
            n.replace_all_uses_with(made)
            gm.graph.erase_node(n)


def _first(function: Callable[..., tuple[int, ...]]) -> Callable[..., int]:
    def size(*values: int) -> int:
        return function(*values)[0]

    return size
