"""`torch_mojo.explain`: what torch.compile(backend="max") would do, without compiling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from .views import is_output_view

if TYPE_CHECKING:
    from torch import fx

    from .partition import Plan


@dataclass
class GraphReport:
    """How one graph would be split.

    Attributes:
        islands: for each MAX graph, its operators with their counts.
        eager: operators left to eager torch, with the reason.
        by_design: those of them that are left there on purpose.
    """

    islands: list[Counter[str]]
    eager: dict[str, str]
    by_design: set[str]


@dataclass
class Explanation:
    """What would be compiled, what not, and why. `str()` of it is the report.

    Attributes:
        graphs: one report per graph, forward and backward.
        breaks: Dynamo's reasons for splitting the function, with counts.
    """

    graphs: list[GraphReport] = field(default_factory=list)
    breaks: dict[str, int] = field(default_factory=dict)

    @property
    def unsupported(self) -> dict[str, str]:
        """Operators that run in eager torch for lack of something, with the reason."""
        return {
            op: why for g in self.graphs for op, why in g.eager.items() if op not in g.by_design
        }

    def __str__(self) -> str:
        """Return the report."""
        islands = sum(len(g.islands) for g in self.graphs)
        lines = [f"{len(self.graphs)} graph(s) from torch, {islands} MAX graph(s)"]
        for i, g in enumerate(self.graphs):
            lines.append(f"graph {i}:")
            for j, island in enumerate(g.islands):
                listed = ", ".join(
                    f"{op} x{n}" if n > 1 else op for op, n in sorted(island.items())
                )
                lines.append(f"  MAX graph {j}, {sum(island.values())} nodes: {listed}")
            lines += [f"  eager: {op}: {why}" for op, why in sorted(g.eager.items())]
        lines += [f"graph break ({n}x): {why}" for why, n in self.breaks.items()]
        return "\n".join(lines)


def explain(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Say what `torch.compile(f, backend="max")` would compile, what not, and why.

    Calls `f` once in eager torch with these arguments. Compiles nothing with MAX.

    Args:
        f: a function or module.
        args: example arguments.
        kwargs: example keyword arguments.
    """
    from ._private import backward_at_once, counters
    from .backend import Options, _Compilation

    result = Explanation()

    def record(plan: Plan) -> None:
        result.graphs.append(_report(plan))

    def collect(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return _Compilation(Options(), example_inputs, record).run(gm, example_inputs)

    before = Counter(counters["graph_break"])
    with backward_at_once():
        torch.compile(f, backend=collect)(*args, **kwargs)
    result.breaks = dict(Counter(counters["graph_break"]) - before)
    return result


def _report(plan: Plan) -> GraphReport:
    islands = [
        Counter(str(n.target) for n in island.nodes if isinstance(n.target, torch._ops.OpOverload))
        for island in plan.islands.values()
    ]
    eager = {
        str(n.target): d.reason
        for n, d in plan.decisions.items()
        if d.kind == "eager"
        and isinstance(n.target, torch._ops.OpOverload)
        and not is_output_view(n)
    }
    by_design = {
        str(n.target) for n, d in plan.decisions.items() if d.kind == "eager" and d.by_design
    }
    return GraphReport(islands, eager, by_design)
