"""Random numbers are drawn before the graph: they wait for no result that only tells their sizes."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from . import sizes

aten = torch.ops.aten

# Their first argument says how many numbers of what kind, and where; its values do not matter.
_DESCRIBED = {
    *(aten.bernoulli.p, aten.rand_like.default, aten.randn_like.default),
    *(aten.randint_like.default, aten.randint_like.low_dtype),
    *(aten.normal_functional.default, aten.uniform.default, aten.exponential.default),
    *(aten.geometric.default, aten.log_normal.default, aten.cauchy.default),
}
_DESCRIBE = {aten.empty_like.default, aten.zeros_like.default, aten.full_like.default}


def is_description(node: fx.Node) -> bool:
    """Return whether a node is one of those that `from_sizes` made."""
    return "describes_random_numbers" in node.meta


def from_sizes(gm: fx.GraphModule) -> None:
    """Give each operator that draws random numbers like a result an empty tensor like it.

    Dropout would otherwise split a graph in two: numbers come from torch's own generators, in the order and the memory
    layout of eager torch, and so outside of the MAX graph. Sizes that the inputs' sizes do not tell are left alone.
    """
    known = sizes.sources([n for n in gm.graph.nodes if n.op == "placeholder"])
    for n in list(gm.graph.nodes):
        if n.op != "call_function" or not n.args:
            continue
        if n.target in _DESCRIBED:
            like: Any = n.args[0]
            if like.op == "placeholder":
                continue
            with gm.graph.inserting_before(n):
                made = _description(gm.graph, like.meta["val"], known)
            if made is not None:
                n.update_arg(0, made)
                if not like.users and like.target in _DESCRIBE:
                    gm.graph.erase_node(like)
        elif n.target is aten.native_dropout.default and n.args[2] is not False:
            _split_dropout(gm.graph, n, known)


def _description(graph: fx.Graph, value: torch.Tensor, known: sizes.Known) -> fx.Node | None:
    numbers: list[Any] = [sizes.node_of(graph, s, known) for s in (*value.shape, *value.stride())]
    if any(s is None for s in numbers):
        return None
    made = graph.call_function(
        aten.empty_strided.default,
        (numbers[: value.dim()], numbers[value.dim() :]),
        {"dtype": value.dtype, "device": value.device},
    )
    made.meta = {"val": value, "describes_random_numbers": True}
    return made


def _split_dropout(graph: fx.Graph, n: Any, known: sizes.Known) -> None:
    """Draw the mask before the graph, and multiply by it inside, in the order of torch's native_dropout."""
    x, p, _ = n.args
    result, mask = n.meta["val"]
    with graph.inserting_before(n):
        on_cpu = mask.device.type == "cpu"
        like = _description(graph, mask if on_cpu else x.meta["val"], known)
        if like is None:
            return
        if on_cpu:
            made = graph.call_function(aten.bernoulli.p, (like, 1 - p))
        else:  # which numbers a GPU draws is its kernel's matter
            drawn = graph.call_function(aten.native_dropout.default, (like, p, True))
            drawn.meta["val"] = n.meta["val"]
            made = graph.call_function(operator.getitem, (drawn, 1))
        made.meta["val"] = mask
        kept = graph.call_function(aten.mul.Tensor, (x, made))
        scaled = graph.call_function(aten.mul.Scalar, (kept, 0.0 if p == 1 else 1 / (1 - p)))
        kept.meta["val"] = scaled.meta["val"] = result
    for user in list(n.users):
        user.replace_all_uses_with((scaled, made)[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(n)
