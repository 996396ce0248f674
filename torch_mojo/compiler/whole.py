"""TORCH_MOJO_DEBUG for a whole graph: are the operators that it was decomposed into the same?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from ._private import TorchDispatchMode
from .compare import difference
from .debug import line_of

Rule = Callable[..., Any]


def checked(
    compiled: Callable[..., Any], gm: fx.GraphModule, say: Callable[[str], None]
) -> Callable[..., Any]:
    """Return a compiled graph that is compared with eager torch until it differs once.

    Args:
        compiled: the graph as compiled.
        gm: the same for eager torch, as Dynamo traced it; it writes to nothing and draws no random
            numbers.
        say: takes the report.
    """
    state = {"differs": False}

    def run(*args: Any) -> Any:
        got = compiled(*args)
        if not state["differs"]:
            with torch.no_grad():
                what = difference(list(got), list(gm(*args)))
                if what is not None:
                    state["differs"] = True
                    say(f"The results differ from eager torch: {what}\n{_explained(gm, args)}")
        return got

    return torch.compiler.disable(run, reason="a compiled graph")


def _explained(gm: fx.GraphModule, args: tuple[Any, ...]) -> str:
    from .decompositions import decompositions

    try:
        found = wrong_decomposition(gm, args, decompositions())
    except Exception as e:  # a rule may not run on real tensors
        return f"  Decompositions could not be compared: {type(e).__name__}: {e}"
    if found is None:
        return "  Each decomposition by itself agrees; see what the MAX graphs report."
    op, what, line = found
    return f"  The first decomposition that differs is {op}'s: {what}\n  {line or ''}".rstrip()


def wrong_decomposition(
    gm: fx.GraphModule, args: tuple[Any, ...], table: Mapping[Any, Rule]
) -> tuple[str, str, str | None] | None:
    """Return the first operator whose decomposition differs from it, how, and the program's line.

    Args:
        gm: the graph, as Dynamo traced it.
        args: its inputs.
        table: decompositions by operator.
    """
    runner = _Runner(gm)
    with torch.no_grad(), _Compare(table) as mode:
        runner.watch = mode
        runner.run(*args)
    return mode.found if mode.found is None else (*mode.found, runner.line)


class _Compare(TorchDispatchMode):
    """Runs the decomposition of each operator beside it."""

    def __init__(self, table: Mapping[Any, Rule]) -> None:
        super().__init__()
        self.table = table
        self.found: tuple[str, str] | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        expected = func(*args, **kwargs)
        rule = self.table.get(func)
        if rule is not None and self.found is None and not func._schema.is_mutable:
            actual = rule(*args, **kwargs)
            if actual is not NotImplemented:
                what = difference(actual, expected)
                self.found = None if what is None else (str(func), what)
        return expected


class _Runner(fx.Interpreter):
    """Keeps the line of the first node that the mode found wrong."""

    watch: _Compare
    line: str | None = None

    def run_node(self, n: fx.Node) -> Any:
        before = self.watch.found
        result = super().run_node(n)
        if before is None and self.watch.found is not None:
            self.line = line_of(n)
        return result
