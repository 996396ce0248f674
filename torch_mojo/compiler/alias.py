"""What an island's results may share, and which of its sizes may be zero."""

from __future__ import annotations

import operator
from collections.abc import Hashable
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from . import rules, symbols


def may_share(gm: fx.GraphModule) -> bool:
    """Return whether an output may lie inside an input's memory or another output's.

    True if an output is a view (or another alias) of an input, or of the same value as another
    output; equal
    expressions count as one value, since MAX merges them.
    """
    roots: dict[fx.Node, Hashable] = {}
    for n in gm.graph.nodes:
        if n.op == "placeholder":
            roots[n] = ("input", n.name)
        elif n.op == "call_function":
            roots[n] = _root(n, roots)
    (results,) = next(n for n in gm.graph.nodes if n.op == "output").args
    found = [roots[n] for n in results]
    return len(set(found)) < len(found) or any(
        isinstance(r, tuple) and r[0] == "input" for r in found
    )


def _root(n: fx.Node, roots: dict[fx.Node, Hashable]) -> Hashable:
    rule = rules.find(n.target)
    first = n.args[0] if n.args else None
    if rule is not None and rule.alias and isinstance(first, fx.Node):
        return roots[first]
    if n.target is operator.getitem and isinstance(first, fx.Node):
        producer = rules.find(first.target)
        if producer is not None and producer.alias:
            return roots[first]
    return hash((str(n.target), str(map_arg((n.args, n.kwargs), lambda a: _Named(roots[a])))))


class _Named(str):
    """A root inside the text of a node's arguments."""

    __slots__ = ()

    def __new__(cls, root: Hashable) -> _Named:
        return super().__new__(cls, f"<{root}>")


def zero_able(gm: fx.GraphModule) -> list[Any]:
    """Return the sizes inside the graph that could be zero, and are no input's own size."""
    own: set[Any] = set()
    found: dict[Any, torch.SymInt] = {}
    for n in gm.graph.nodes:
        value = n.meta.get("val")
        for t in value if isinstance(value, (tuple, list)) else [value]:
            if not isinstance(t, torch.Tensor):
                continue
            for size in t.shape:
                if isinstance(size, torch.SymInt):
                    e = symbols.expr(size)
                    if n.op == "placeholder":
                        own.add(e)
                    elif not e.is_Integer and not symbols.known(size >= 1):
                        found[e] = size
    return [size for e, size in found.items() if e not in own]
