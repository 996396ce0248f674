"""Which nodes go into MAX graphs, and in which order the pieces run.

The nodes are arranged in levels: even levels run in eager torch, odd levels are one MAX graph each.
A node goes to the
earliest level of its kind that its inputs allow, which gives the fewest changes between the two.
Operators with side
effects (random numbers, mutation) keep their order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from . import custom, randoms, rules, sizes, symbols
from .importer import is_number, scalar_nodes
from .types import refuse_tensor
from .views import is_output_view

aten = torch.ops.aten

# An island smaller than this costs more to enter than it saves, unless it is the whole graph.
SMALLEST_ISLAND = 3

MAX, EAGER, HOST = "max", "eager", "host"


@dataclass
class Decision:
    """Where a node runs, and if in eager torch, why.

    Attributes:
        kind: MAX, EAGER or HOST (arithmetic on sizes, in Python).
        reason: why a node does not go into a MAX graph.
        by_design: it is left to eager torch on purpose, which is no lack to report.
    """

    kind: str
    reason: str = ""
    by_design: bool = False


@dataclass
class Island:
    """A MAX graph to be: its FX graph, the outer nodes it takes and those it gives.

    Attributes:
        gm: placeholders for `inputs`, then the nodes, returning a tuple of `outputs`.
        inputs: nodes of the outer graph, tensors and numbers.
        outputs: nodes whose values are used outside.
        symbols: outer nodes (or node and dim) that give the value of each size symbol in use.
    """

    gm: fx.GraphModule
    nodes: list[fx.Node]
    inputs: list[fx.Node]
    outputs: list[fx.Node]
    symbols: dict[Any, fx.Node | tuple[fx.Node, int]]


@dataclass
class Plan:
    """The levels of a graph.

    Attributes:
        gm: the whole graph.
        decisions: one per call_function node.
        levels: level number of each node; odd levels are islands.
        islands: by level.
    """

    gm: fx.GraphModule
    decisions: dict[fx.Node, Decision]
    levels: dict[fx.Node, int]
    islands: dict[int, Island] = field(default_factory=dict)

    def missing(self) -> dict[str, str]:
        """Return the operators that eager torch runs for lack of something, with the reason."""
        return {
            str(n.target): d.reason
            for n, d in self.decisions.items()
            if d.kind == EAGER and not d.by_design
        }


def _is_random(op: torch._ops.OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in op.tags


def has_effect(node: fx.Node) -> bool:
    """Return whether a node draws random numbers, writes to something or has no result."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload):
        return node.target is not operator.getitem and not is_number(node.meta.get("val"))
    return op._schema.is_mutable or _is_random(op) or not op._schema.returns


def _mutates(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def decide(node: fx.Node) -> Decision:
    """Decide where one call_function node runs."""
    op, value = node.target, node.meta.get("val")
    if is_number(value):
        return Decision(HOST)
    if not isinstance(op, torch._ops.OpOverload):
        return Decision(EAGER, "no ATen operator", by_design=False)
    if randoms.is_description(node):
        return Decision(EAGER, "what random numbers are to be like", by_design=True)
    if is_output_view(node):
        return Decision(EAGER, "a view of a result", by_design=True)
    rule = rules.find(op)
    if rule is None:
        if op._schema.is_mutable:
            return Decision(EAGER, "writes into its argument", by_design=True)
        if _is_random(op):
            return Decision(EAGER, "random numbers come from torch's own generator", by_design=True)
        if not op._schema.returns:
            return Decision(EAGER, "has no result", by_design=True)
        if custom.kernel_of(node) is None:
            return Decision(EAGER, "no lowering")
    tensors = [
        a.meta["val"] for a in node.all_input_nodes if isinstance(a.meta.get("val"), torch.Tensor)
    ]
    results = [v for v in _used(node) if v is not None]
    for t in [*tensors, *results]:
        if not isinstance(t, torch.Tensor):
            return Decision(EAGER, f"a value of type {type(t).__name__}")
        if (why := refuse_tensor(t)) is not None:
            return Decision(EAGER, why, by_design=why == "an empty tensor")
    devices = {t.device for t in results} | {t.device for t in tensors if t.dim()}
    if len(devices) > 1:
        return Decision(EAGER, f"tensors on {', '.join(sorted(map(str, devices)))}", by_design=True)
    if rule is not None and rule.refuse is not None and (why := rule.refuse(node)) is not None:
        return Decision(EAGER, why, by_design=why == "an empty tensor")
    for size in _size_arguments(node):
        if not symbols.known(size >= 0):
            return Decision(EAGER, f"the size {size} may be negative")
    return Decision(MAX)


def _used(node: fx.Node) -> list[Any]:
    """Return the values of a node that something takes, or all if nothing does."""
    value = node.meta.get("val")
    if not isinstance(value, (tuple, list)):
        return [value]
    taken = {n.args[1] for n in node.users if n.target is operator.getitem}
    return [v for i, v in enumerate(value) if i in taken] or list(value)


def _size_arguments(node: fx.Node) -> list[torch.SymInt]:
    values = {a for a in node.all_input_nodes if isinstance(a.meta.get("val"), torch.SymInt)}
    return [a.meta["val"] for a in values - _values_of(node)]


def _values_of(node: fx.Node) -> set[fx.Node]:
    graph = fx.Graph()
    env = {}
    for a in node.all_input_nodes:
        env[a] = graph.placeholder(a.name)
        env[a].meta = a.meta
    copied = graph.node_copy(node, env.__getitem__)
    back = {v: k for k, v in env.items()}
    graph.output(copied)
    return {back[n] for n in scalar_nodes(fx.GraphModule({}, graph))}


def make_plan(gm: fx.GraphModule, refused: dict[fx.Node, str]) -> Plan:
    """Arrange the nodes of `gm` in levels.

    Args:
        gm: the graph.
        refused: nodes that turned out not to fit into a MAX graph, with the reason.
    """
    decisions: dict[fx.Node, Decision] = {}
    for n in gm.graph.nodes:
        if n.op == "call_function":
            if n.target is operator.getitem and n.args[0] in decisions:
                decisions[n] = decisions[n.args[0]]
            elif n in refused:
                decisions[n] = Decision(EAGER, refused[n])
            else:
                decisions[n] = decide(n)
        elif n.op in ("call_module", "call_method"):
            decisions[n] = Decision(EAGER, "no ATen operator", by_design=True)
    mixed = any(d.kind == EAGER and not is_output_view(n) for n, d in decisions.items())
    while True:
        plan = Plan(gm, decisions, _levels(gm, decisions))
        small = _too_small(plan, mixed)
        if not small:
            break
        for n in small:
            decisions[n] = Decision(EAGER, "its island is too small to pay", by_design=True)
        mixed = True
    for level in sorted({v for n, v in plan.levels.items() if v % 2}):
        plan.islands[level] = _extract(plan, level)
    return plan


def _too_small(plan: Plan, mixed: bool) -> list[fx.Node]:
    by_level: dict[int, list[fx.Node]] = {}
    for n, d in plan.decisions.items():
        if d.kind == MAX:
            by_level.setdefault(plan.levels[n], []).append(n)
    demoted: list[fx.Node] = []
    for nodes in by_level.values():
        inside = set(nodes)
        takes = any(
            isinstance(a.meta.get("val"), torch.Tensor)
            for n in nodes
            for a in n.all_input_nodes
            if a not in inside
        )
        working = [n for n in nodes if n.target is not operator.getitem and not _is_alias(n)]
        if not takes or not working or (mixed and len(working) < SMALLEST_ISLAND):
            demoted += nodes
    return demoted


def _is_alias(n: fx.Node) -> bool:
    rule = rules.find(n.target)
    return rule is not None and rule.alias


def _levels(gm: fx.GraphModule, decisions: dict[fx.Node, Decision]) -> dict[fx.Node, int]:
    levels: dict[fx.Node, int] = {}
    floor = 0  # of everything after a mutation
    last_effect = 0
    highest = 0
    for n in gm.graph.nodes:
        if n.op in ("placeholder", "get_attr"):
            levels[n] = 0
            continue
        if n.op == "output":
            continue
        kind = decisions[n].kind
        level = floor
        for a in n.all_input_nodes:
            level = max(level, levels[a])
        if n.target is operator.getitem:
            levels[n] = levels[n.args[0]]
            continue
        if has_effect(n):
            level = max(level, last_effect)
        if _mutates(n):
            level = max(level, highest)
        if level % 2 != (kind == MAX):
            level += 1
        levels[n] = level
        if has_effect(n):
            last_effect = level
        if _mutates(n):
            floor = level
        highest = max(highest, level)
    return levels


def copied(
    nodes: Sequence[fx.Node], inputs: Sequence[fx.Node], outputs: Sequence[fx.Node]
) -> fx.GraphModule:
    """Return some nodes of a graph as one of their own, which returns a tuple of `outputs`."""
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    for a in inputs:
        env[a] = graph.placeholder(a.name)
        env[a].meta = a.meta
    for n in nodes:
        env[n] = graph.node_copy(n, env.__getitem__)
    graph.output(tuple(env[n] for n in outputs))
    return fx.GraphModule({}, graph)


def _extract(plan: Plan, level: int) -> Island:
    nodes = [n for n in plan.gm.graph.nodes if plan.levels.get(n) == level]
    inside = set(nodes)
    inputs = list(dict.fromkeys(a for n in nodes for a in n.all_input_nodes if a not in inside))
    outputs = [
        n
        for n in nodes
        if not isinstance(n.meta["val"], (tuple, list)) and any(u not in inside for u in n.users)
    ]
    gm = copied(nodes, inputs, outputs)
    mentioned = [
        s
        for n in [*inputs, *nodes]
        for t in (n.meta["val"] if isinstance(n.meta["val"], (tuple, list)) else [n.meta["val"]])
        for s in ([*t.shape, *t.stride()] if isinstance(t, torch.Tensor) else [t])
    ]
    order = {n: i for i, n in enumerate(plan.gm.graph.nodes)}
    earlier = [n for n in order if n not in inside and plan.levels.get(n, level) < level]
    found = sizes.sources(earlier)
    return Island(
        gm, nodes, inputs, outputs, {s: found[s] for s in symbols.free(mentioned) if s in found}
    )


def assemble(plan: Plan, call: Callable[[Island, int], Callable[..., Any]]) -> fx.GraphModule:
    """Return the whole graph with each island replaced by one call.

    Args:
        plan: the levels.
        call: makes the function that runs an island; it takes the island's inputs, then its
            symbols' values, and returns a tuple of its outputs.
    """
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    source = plan.gm.graph
    for n in source.nodes:
        if n.op in ("placeholder", "get_attr"):
            env[n] = graph.node_copy(n, env.__getitem__)
    top = max(plan.levels.values(), default=0)
    for level in range(top + 1):
        if level in plan.islands:
            island = plan.islands[level]
            args = [env[a] for a in island.inputs]
            for where in island.symbols.values():
                if isinstance(where, tuple):
                    args.append(graph.call_function(aten.sym_size.int, (env[where[0]], where[1])))
                else:
                    args.append(env[where])
            made = graph.call_function(call(island, level), tuple(args))
            for i, n in enumerate(island.outputs):
                env[n] = graph.call_function(operator.getitem, (made, i))
        else:
            for n in source.nodes:
                if plan.levels.get(n) == level and n not in env:
                    env[n] = graph.node_copy(n, env.__getitem__)
    for n in source.nodes:
        if n.op == "output":
            graph.node_copy(n, env.__getitem__)
    graph.eliminate_dead_code(lambda n: n.op in ("placeholder", "output") or has_effect(n))
    return fx.GraphModule(plan.gm, graph)
