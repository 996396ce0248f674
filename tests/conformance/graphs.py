"""Many samples in one graph, through `backend="max"`, compared with eager torch."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from samples import Probe
from torch import fx
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.fx.experimental.proxy_tensor import make_fx

from torch_mojo.compiler.backend import Options, _Compilation, max_backend

TOLERANCES = {  # relative, absolute
    torch.float64: (1e-9, 1e-10),
    torch.float32: (1e-4, 2e-5),
    torch.bfloat16: (3e-2, 2e-2),
    torch.float16: (5e-3, 2e-3),
}
_MARK = "conformance sample "


@dataclass
class Outcome:
    """What became of a sample.

    Attributes:
        state: "right", "wrong: ...", "failed: ..." (an error), or "left out: ..." (no static graph can hold it).
        kept: the ATen operators that ran in eager torch, and why.
        inside: how many of its nodes ran in a MAX graph.
    """

    probe: Probe
    graph: fx.GraphModule | None = None
    expected: tuple[torch.Tensor, ...] = ()
    state: str = ""
    kept: dict[str, str] = field(default_factory=dict)
    inside: int = 0


def trace(probe: Probe) -> Outcome:
    """Return a sample with its ATen graph and eager torch's results."""
    outcome = Outcome(probe)
    try:
        torch.manual_seed(0)
        outcome.expected = probe.run(*[t.clone() for t in probe.tensors])
    except Exception as e:
        outcome.state = f"left out: eager torch fails: {type(e).__name__}: {str(e)[:80]}"
        return outcome
    if not outcome.expected or any(t.layout != torch.strided for t in outcome.expected):
        outcome.state = "left out: no dense result"
        return outcome
    try:
        outcome.graph = make_fx(probe.run, tracing_mode="fake")(*probe.tensors)
    except DynamicOutputShapeException:
        outcome.state = "left out: sizes depend on data"
    except Exception as e:
        outcome.state = f"left out: not traceable: {type(e).__name__}: {str(e)[:80]}"
    return outcome


def pack(outcomes: Sequence[Outcome]) -> fx.GraphModule:
    """Join graphs side by side; each node says in its stack trace which sample it is of."""
    root = torch.nn.Module()
    graph = fx.Graph()
    places: list[list[fx.Node]] = []
    for i, outcome in enumerate(outcomes):
        places.append([graph.placeholder(f"t{i}_{k}") for k in range(len(outcome.probe.tensors))])
        for node, tensor in zip(places[-1], outcome.probe.tensors, strict=True):
            node.meta["val"] = tensor
    results: list[fx.Node] = []
    for i, outcome in enumerate(outcomes):
        made: dict[fx.Node, fx.Node] = {}
        inputs = iter(places[i])
        for node in outcome.graph.graph.nodes:
            if node.op == "placeholder":
                made[node] = next(inputs)
            elif node.op == "output":
                results += [made[n] for n in node.args[0]]
            else:
                new = graph.node_copy(node, lambda n, made=made: made[n])
                if node.op == "get_attr":
                    new.target = f"constant_{i}_{node.target}"
                    setattr(root, new.target, getattr(outcome.graph, node.target))
                new.meta["stack_trace"] = f"{_MARK}{i}"
                made[node] = new
    graph.output(tuple(results))
    return fx.GraphModule(root, graph)


def _sample_of(node: fx.Node) -> int | None:
    text = (node.meta.get("stack_trace") or "").strip()
    return int(text.removeprefix(_MARK)) if text.startswith(_MARK) else None


def plan(outcomes: Sequence[Outcome]) -> None:
    """Fill in where the nodes of each sample run, or why it cannot be compiled, without compiling."""

    def record(made: Any) -> None:
        for node, decision in made.decisions.items():
            i = _sample_of(node)
            if i is None:
                continue
            if decision.kind == "max":
                outcomes[i].inside += 1
            elif decision.kind == "eager" and "getitem" not in str(node.target):
                outcomes[i].kept[str(node.target)] = decision.reason

    flat = [t for o in outcomes for t in o.probe.tensors]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _Compilation(Options("eager", False), flat, record=record).run(pack(outcomes), flat)
    except Exception as e:
        if len(outcomes) > 1:
            half = len(outcomes) // 2
            plan(outcomes[:half])
            plan(outcomes[half:])
        elif isinstance(e, DynamicOutputShapeException):
            outcomes[0].state = "left out: sizes depend on data"
        else:
            outcomes[0].state = f"failed: {type(e).__name__}: {' '.join(str(e).split())[:300]}"


def run_together(outcomes: Sequence[Outcome], log: Any = None) -> None:
    """Run samples in one MAX graph; halve the group as long as MAX does not compile it."""
    flat = [t for o in outcomes for t in o.probe.tensors]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", message="MAX does not compile")
            compiled = max_backend(pack(outcomes), flat)
            torch.manual_seed(0)
            for o in outcomes:
                o.expected = o.probe.run(*[t.clone() for t in o.probe.tensors])
            torch.manual_seed(0)
            found = list(compiled(*[t.clone() for t in flat]))
    except Exception as e:
        text = " ".join(str(e).split())
        if len(outcomes) == 1:
            outcomes[0].state = f"failed: {type(e).__name__}: {text[-600:]}"
            return
        if log is not None:
            print(f"{len(outcomes)} samples fail together: {text[-400:]}", file=log, flush=True)
        half = len(outcomes) // 2
        run_together(outcomes[:half], log)
        run_together(outcomes[half:], log)
        return
    for o in outcomes:
        count = len(o.expected)
        mine, found = found[:count], found[count:]
        o.state = judge(mine, o.expected)


def judge(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> str:
    """Compare a sample's results with eager torch's."""
    for i, (f, w) in enumerate(zip(found, wanted, strict=True)):
        if text := _difference(f, w):
            return f"wrong: [{i}] {text}"
    return "right"


def _difference(found: torch.Tensor, wanted: torch.Tensor) -> str:
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype} {tuple(found.shape)}, eager {wanted.dtype} {tuple(wanted.shape)}"
    kind = torch.float32 if wanted.is_complex() else wanted.dtype
    relative, absolute = TOLERANCES.get(kind, (0.0, 0.0))
    try:
        torch.testing.assert_close(
            found, wanted, rtol=relative, atol=absolute, equal_nan=True, check_stride=False
        )
    except AssertionError as e:
        return " ".join(str(e).split())[:200]
    return ""
