"""TORCH_MOJO_DEBUG: what was compiled, as text, and the first operator that differs from eager."""

from __future__ import annotations

import operator
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from torch_mojo.jit import cache as kernel_cache

from . import rules, session
from .alias import may_share, zero_able
from .compare import difference
from .importer import Imported, import_graph
from .partition import EAGER, Island, Plan, copied
from .runtime import Executable
from .session import lock

# A MAX graph that returns all its values cannot fuse; so many nodes are looked at in one.
MOST_PROBED = 200

_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.*)\n *(?P<code>.*)'
)
_TORCH = str(Path(torch.__file__).parent) + os.sep
_numbers = count()


@cache
def _of_process() -> str:
    return f"{time.strftime('%Y-%m-%d-%H%M%S')}-{os.getpid()}"


class Dump:
    """One graph of torch's in a folder, and what is found out about it.

    Args:
        plan: the graph and how it is split.
        imported: the MAX graphs, by level.
        kind: "forward", "backward" or "inference".
    """

    def __init__(self, plan: Plan, imported: Mapping[int, Imported], kind: str) -> None:
        """Write the files and name the folder on standard error."""
        self.name = f"graph {next(_numbers)} ({kind})"
        self.numbers = {level: i for i, level in enumerate(plan.islands)}
        folder = self.name.replace(" ", "_").replace("(", "").replace(")", "")
        self.folder = kernel_cache.cache().root / "debug" / _of_process() / folder
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._write("fx.py", readable(plan.gm))
        self._write("eager.txt", _left(plan))
        for level, i in self.numbers.items():
            self._write(f"max_{i}_fx.py", readable(plan.islands[level].gm))
            self._write(f"max_{i}.mlir", f"{imported[level].graph}\n")
        self.say(f"{len(plan.islands)} MAX graph(s), written to {self.folder}")

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def say(self, text: str) -> None:
        """Print a line or more, and keep them in report.txt."""
        text = f"torch_mojo: {self.name}: {text}"
        print(text, file=sys.stderr, flush=True)
        with (self.folder / "report.txt").open("a") as file:
            file.write(text + "\n")

    def watch(self, island: Island, level: int, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call of a MAX graph, compared with eager torch until it differs once."""
        which = f"MAX graph {self.numbers[level]}"
        state = {"calls": 0, "differs": False}
        inputs = len(island.inputs)

        def checked(*args: Any) -> Any:
            outputs = run(*args)
            if state["differs"]:
                return outputs
            with torch.no_grad():
                found = difference(list(outputs), list(island.gm.forward(*args[:inputs])))
                if found is not None:
                    state["differs"] = True
                    self.say(
                        f"{which} differs from eager torch: {found}\n{explained(island, args)}"
                    )
            if not state["calls"] and not state["differs"]:
                self.say(f"{which} agrees with eager torch in its first call.")
            state["calls"] += 1
            return outputs

        return checked


def readable(gm: fx.GraphModule) -> str:
    """Return a graph as Python, with sizes, and the lines of the user's program as comments."""
    return gm.print_readable(
        print_output=False, include_stride=True, include_device=True, colored=False
    )


def _left(plan: Plan) -> str:
    lines = [
        f"{n.name}: {n.target}: {d.reason}\n"
        for n, d in plan.decisions.items()
        if d.kind == EAGER and n.target is not operator.getitem
    ]
    return "".join(lines) or "Nothing runs in eager torch.\n"


def explained(island: Island, args: Sequence[Any]) -> str:
    """Say which operator of a MAX graph differs from eager torch, whose inputs agree."""
    try:
        found = first_difference(island, args)
    except Exception as e:  # MAX may refuse a graph with more results
        return f"  The operator at fault was not found: {type(e).__name__}: {e}"
    if found is None:
        return (
            "  Each operator by itself agrees: small differences add up, or only the fused graph "
            "is wrong."
        )
    node, what = found
    lines = [
        f"  The first operator that does, given the same inputs, is {node.target}: {what}",
        f"  node: {node.format_node()}",
        f"  lowering: {_lowered_by(node)}",
        f"  {line_of(node) or 'It stands for no line of the program.'}",
    ]
    return "\n".join(lines)


def _lowered_by(node: fx.Node) -> str:
    rule = rules.find(node.target)
    return "the same Mojo kernel" if rule is None else rule.where


def line_of(node: fx.Node) -> str | None:
    """Return the line of the user's program that a node comes from."""
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    own = [f for f in frames if not f["file"].startswith(_TORCH)] or frames
    if not own:
        return None
    frame = own[-1]
    return f'File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}: {frame["code"]}'


def first_difference(island: Island, args: Sequence[Any]) -> tuple[fx.Node, str] | None:
    """Return the first node whose value differs from eager torch's on the same inputs, and how.

    Runs the island's nodes in eager torch one by one, and in MAX with each value as a result.

    Args:
        island: the island.
        args: its inputs, then the values of its symbols.
    """
    holders = [n for n in island.gm.graph.nodes if n.op == "placeholder"]
    env: dict[fx.Node, Any] = dict(zip(holders, args, strict=False))
    order = _order(island.gm)
    for node in order:
        env[node] = _eager(node, env)
    step = 0
    while step < len(order):
        end = step + MOST_PROBED
        while end < len(order) and order[end].target is operator.getitem:
            end += 1  # the results of one operator stay together
        found = _probe(order[step:end], env, island, args[len(holders) :])
        if found is not None:
            return found
        step = end
    return None


def _order(gm: fx.GraphModule) -> list[fx.Node]:
    """Return the operators, each followed at once by the getitems of its results."""
    found: list[fx.Node] = []
    for n in gm.graph.nodes:
        if n.op == "call_function" and n.target is not operator.getitem:
            found += [n, *(u for u in n.users if u.target is operator.getitem)]
    return found


def _eager(node: fx.Node, env: Mapping[fx.Node, Any]) -> Any:
    args = map_arg(node.args, env.__getitem__)
    kwargs = map_arg(node.kwargs, env.__getitem__)
    return node.target(*args, **kwargs)  # type: ignore[operator]


def _probe(
    nodes: list[fx.Node], env: Mapping[fx.Node, Any], island: Island, sizes: Sequence[int]
) -> tuple[fx.Node, str] | None:
    inside = set(nodes)
    inputs = list(dict.fromkeys(a for n in nodes for a in n.all_input_nodes if a not in inside))
    outputs = [n for n in nodes if isinstance(n.meta["val"], torch.Tensor)]
    gm = copied(nodes, inputs, outputs)
    with lock:
        imported = import_graph(gm, {})
        model = session.compile_graph(imported.graph, imported.nodes)
    run = Executable(
        imported,
        model._execute_device_tensors,
        gm,
        static=set(),
        guarded=set(),
        sizes=list(island.symbols),
        positive=zero_able(gm),
        risky=may_share(gm),
    )
    results = run(*(env[n] for n in inputs), *sizes)
    own = {**env, **dict(zip(outputs, results, strict=True))}
    for node in nodes:
        expected = _eager(node, own)
        if node not in outputs:
            own[node] = expected  # a tuple, whose parts are compared
        elif (what := difference(own[node], expected)) is not None:
            producer = node.args[0] if node.target is operator.getitem else node
            assert isinstance(producer, fx.Node)
            return producer, what
    return None
