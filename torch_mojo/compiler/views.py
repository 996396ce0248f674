"""Views at the end of a graph stay torch's: free there, and tied to their base."""

from __future__ import annotations

import operator

import torch
from torch import fx

_MARK = "torch_mojo_output_view"


def is_view(node: fx.Node) -> bool:
    """Return whether a node's result is by its schema a view of its first argument."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and is_view(node.args[0])
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or not op._schema.returns:
        return False
    info = op._schema.returns[0].alias_info
    return info is not None and not info.is_write and isinstance(node.args[0], fx.Node)


def is_output_view(node: fx.Node) -> bool:
    """Return whether `separate_output_views` made this node."""
    return node.meta.get(_MARK, False)


def separate_output_views(gm: fx.GraphModule) -> None:
    """Give each view that the graph returns a chain of view nodes of its own, from its base on."""
    output = next(n for n in gm.graph.nodes if n.op == "output")
    copies: dict[fx.Node, fx.Node] = {}

    def copy(node: fx.Node) -> fx.Node:
        if not is_view(node):
            return node
        if node not in copies:
            base = node.args[0]
            assert isinstance(base, fx.Node)
            new_base = copy(base)
            with gm.graph.inserting_before(output):
                made = gm.graph.node_copy(node, lambda a: new_base if a is base else a)
            made.meta = {**node.meta, _MARK: True}
            copies[node] = made
        return copies[node]

    output.args = fx.node.map_arg(output.args, copy)
    for node in reversed(list(gm.graph.nodes)):
        if is_view(node) and not node.users:
            gm.graph.erase_node(node)
