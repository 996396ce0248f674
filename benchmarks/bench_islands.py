"""What a MAX graph costs inside torch.compile(backend="max"), above MAX's own execution of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from itertools import cycle, repeat
from time import perf_counter
from typing import Any

import torch

from benchmarks.timing import Effort, Row, Spread

GOAL = 10e-6  # seconds for a graph
GOAL_PER_INPUT = 0.3e-6
AHEAD = 256  # sets of inputs at addresses of their own


def _sum(*xs: torch.Tensor) -> torch.Tensor:
    total = xs[0] * 2
    for x in xs[1:]:
        total = total + x
    return total


class Island:
    """The one MAX graph of a function, with the arguments of its first call."""

    def __init__(self, f: Callable[..., Any], *args: torch.Tensor) -> None:
        """Compile `f` and call it once."""
        from torch_mojo.compiler import runtime

        real = runtime.Executable

        def record(imported: Any, execute: Callable[..., Any], *rest: Any, **named: Any) -> Any:
            def executes(buffers: list[Any]) -> Any:
                start = perf_counter()
                results = execute(buffers)
                self.inside = perf_counter() - start
                return results

            self.call = real(imported, executes, *rest, **named)

            def run(*args: Any) -> Any:
                self.args = args
                return self.call(*args)

            return run

        runtime.Executable = record  # type: ignore[assignment, misc]
        try:
            torch._dynamo.reset()
            with torch.no_grad():
                expected = f(*args)
                got = torch.compile(f, backend="max", options={"fallback": "error"})(*args)
        finally:
            runtime.Executable = real  # type: ignore[misc]
        torch.testing.assert_close(got, expected)

    def _round(self, seconds: float, sets: Iterator[Any]) -> tuple[float, float]:
        """Return the median cost of a call outside of MAX, and of MAX itself."""
        call, above, inside = self.call, [], []
        end = perf_counter() + seconds
        while (start := perf_counter()) < end:
            args = next(sets)
            start = perf_counter()
            call(*args)
            whole = perf_counter() - start
            above.append(whole - self.inside)
            inside.append(self.inside)
        return statistics.median(above), statistics.median(inside)

    def overhead(self, effort: Effort, fresh: bool) -> tuple[Spread, Spread]:
        """Return what a call costs outside of MAX, and what it costs inside.

        MAX's time depends on the time between calls, as its threads fall asleep: it is taken within
        each call, not from calls of the graph alone.

        Args:
            effort: how long.
            fresh: give inputs at other addresses in each call, except for the parameters.
        """
        sets: Iterator[Any] = repeat(self.args)
        if fresh:
            own = torch.nn.Parameter
            copies = [
                [a if isinstance(a, own) else a.clone() for a in self.args] for _ in range(AHEAD)
            ]
            sets = cycle(copies)
        self._round(effort.block, sets)
        found = [self._round(effort.block, sets) for _ in range(effort.rounds)]
        return Spread.of(above for above, _ in found), Spread.of(inside for _, inside in found)


def rows(effort: Effort) -> Iterator[Row]:
    """Time calls of a graph's Python side, without the time in MAX."""
    group = "MAX graphs: a call without the time in Model.execute"
    mlp = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))
    cases: dict[str, tuple[Callable[..., Any], int, list[torch.Tensor]]] = {
        "MLP, 1 input and 4 parameters": (mlp, 5, [torch.rand(4, 16)]),
        "sum of 3 inputs": (_sum, 3, [torch.rand(4, 16) for _ in range(3)]),
        "sum of 20 inputs": (_sum, 20, [torch.rand(4, 16) for _ in range(20)]),
    }
    for name, (f, count, args) in cases.items():
        island = Island(f, *args)
        for fresh in (False, True):
            above, inside = island.overhead(effort, fresh)
            yield Row(
                group,
                f"{name}, at new addresses" if fresh else name,
                "s/call",
                above,
                goal=None if fresh else GOAL + count * GOAL_PER_INPUT,
                note=f"Model.execute: {inside.median * 1e6:.3g} us",
            )
