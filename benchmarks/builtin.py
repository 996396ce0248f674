"""The built-in kernels: ours, eager torch and Inductor, in one run, small, medium and large."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import Effort, Row, Spread

GOAL = 1.0  # of the faster of the two others, for a memory-bound kernel on a GPU
WORST = 1.5


@dataclass(frozen=True)
class Case:
    """One call to measure.

    Attributes:
        name: `kernel, size`.
        ours, theirs: the functions, called with `args`.
        args: tensors on the device; those that require grad make it a forward and a backward.
        moved: bytes that must at least be read and written, for a bandwidth.
        memory_bound: whether GOAL applies on a GPU.
        loose: the tolerance of the check before the timing, relative to the largest value.
        rare: the share of the values that may differ by more: at the edges of cells, a derivative jumps.
    """

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    args: tuple[Any, ...]
    moved: int | None = None
    memory_bound: bool = True
    loose: float = 1e-3
    rare: float = 0.0


def _step(function: Callable[..., Any], args: Sequence[Any]) -> Callable[[], Any]:
    """Return one call: the forward, and the backward if an argument requires grad."""
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    if not leaves:
        return lambda: function(*args)

    def forward() -> list[torch.Tensor]:
        result = function(*args)
        return [r for r in (result if isinstance(result, tuple) else (result,)) if r.requires_grad]

    # not all ones: of those, softmax's gradient is rounding alone
    generator = torch.Generator(leaves[0].device).manual_seed(0)
    grads = [
        torch.randn(o.shape, generator=generator, device=o.device).to(o.dtype) for o in forward()
    ]

    def both() -> Any:
        return torch.autograd.grad(forward(), leaves, grads)

    return both


def _check(case: Case, found: Any, wanted: Any) -> None:
    for f, w in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, wanted)), strict=True):
        if f.is_floating_point():
            w, f = w.float(), f.float()
            scale = w.abs().nan_to_num(posinf=0, neginf=0).max().item() if w.numel() else 0.0
            near = torch.isclose(
                f, w, rtol=case.loose, atol=case.loose * max(scale, 1e-6), equal_nan=True
            )
            apart = (~near).sum().item()
            if apart > case.rare * w.numel():
                raise AssertionError(f"{case.name}: {apart} of {w.numel()} values differ")


def _timer(call: Callable[[], Any], effort: Effort, cuda: bool) -> Callable[[], float]:
    """Return what measures the seconds of one call: on the device between two events, or on the host."""
    import time

    def host(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - start) / count

    def device(count: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / count

    measure = device if cuda else host
    measure(2)
    once = measure(3)
    count = max(1, min(200, round(effort.block / max(once, 1e-7))))
    return lambda: measure(count)


def _row(case: Case, device: str, effort: Effort, compiled: Callable[..., Any] | None) -> Row:
    ours, eager = _step(case.ours, case.args), _step(case.theirs, case.args)
    _check(case, ours(), eager())
    calls = {"ours": ours, "torch eager": eager}
    note = ""
    if compiled is not None:
        try:
            inductor = _step(compiled, case.args)
            inductor()
            calls["inductor"] = inductor
        except Exception as e:  # it is a competitor: its failure is a result
            note = f"inductor: {type(e).__name__}"
    timers = {n: _timer(c, effort, device == "cuda") for n, c in calls.items()}
    found: dict[str, list[float]] = {n: [] for n in timers}
    for i in range(effort.rounds):
        for name in list(timers) if i % 2 else list(timers)[::-1]:
            found[name].append(timers[name]())
    spreads = {n: Spread.of(v) for n, v in found.items()}
    best = min((n for n in spreads if n != "ours"), key=lambda n: spreads[n].median)
    ratio = Spread.of(a / b for a, b in zip(found["ours"], found[best], strict=True))
    others = ", ".join(
        f"{n} {spreads[n].median * 1e6:.4g} us" for n in spreads if n not in ("ours", best)
    )
    goal = GOAL if case.memory_bound and device == "cuda" else WORST
    return Row(
        f"built-in kernels, {device}",
        case.name,
        "s/call",
        spreads["ours"],
        best,
        spreads[best],
        ratio,
        goal,
        case.moved,
        "; ".join(n for n in (others, note) if n),
    )


def modules() -> list[str]:
    """Return the names of the files that have cases, one for each kernel or scheme."""
    here = Path(__file__).parent
    return sorted(m.name for m in pkgutil.iter_modules([str(here)]) if m.name.startswith("bench_"))


def rows(effort: Effort, only: Sequence[str] = ()) -> Iterator[Row]:
    """Return the rows of all built-in kernels, on the GPU if there is one.

    Args:
        effort: how long to measure.
        only: names of kernels; default: all.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name in modules():
        module = importlib.import_module(f"benchmarks.{name}")
        if not hasattr(module, "cases") or (only and name.removeprefix("bench_") not in only):
            continue
        compiled: dict[Callable[..., Any], Callable[..., Any]] = {}
        for case in module.cases(device):
            if case.theirs not in compiled:
                compiled[case.theirs] = torch.compile(case.theirs, dynamic=True)
            yield _row(case, device, effort, compiled[case.theirs])
        torch._dynamo.reset()
