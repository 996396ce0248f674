"""Graphs that take their arguments in a list and empty it, so that each dies after its last use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import fx


class _Boxed(fx.graph.CodeGen):
    """Writes a forward() of one list.

    Args:
        unused: placeholders that nothing reads.
    """

    def __init__(self, unused: Iterable[str]) -> None:
        """Keep the names."""
        super().__init__()
        self._unused = set(unused)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **_: object) -> str:
        """Return the head of the function."""
        names = [v.partition(":")[0].strip() for v in free_vars if v != "self"]
        lines = [f"def {self._func_name}(self, taken){maybe_return_annotation}:"]
        if names:
            lines.append(f"{', '.join(names)}, = taken")
        lines.append("taken.clear()")
        if dead := [n for n in names if n in self._unused]:
            lines.append(f"del {', '.join(dead)}")
        return "\n    ".join(lines)


def boxed(gm: fx.GraphModule) -> Callable[[list[Any]], Any]:
    """Return a graph as AOTAutograd calls it: a function of a list, which is empty afterwards."""
    holders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    gm.graph.set_codegen(_Boxed(n.name for n in holders if not n.users))
    gm.recompile()
    forward = gm.forward

    def run(arguments: list[Any]) -> Any:
        return forward(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
