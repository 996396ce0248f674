"""Whole models in eager torch, Inductor and `backend="max"`: compile time, step time, memory.

`python -m benchmarks.bench_models MODEL ROUTE` is one fresh process that compiles and steps once; it
prints JSON. `python -m benchmarks --only models` runs them all.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.models import NAMES, Measured, make
from benchmarks.timing import Effort, Row, Spread

ROOT = Path(__file__).parent.parent
ROUTES = ("eager", "inductor", "max")
CALLS = 3  # steps before memory is read
WORST = 1.0  # never behind eager


def device() -> str:
    """Return where models are measured."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def runner(measured: Measured, route: str) -> Callable[[], Any]:
    """Return one step of a model: its forward, or in training all until the update."""
    function = measured.step
    if route != "eager":
        options = {"fallback": "error"} if route == "max" else None
        function = torch.compile(function, backend=route, options=options)
    if not measured.training:

        def forward() -> Any:
            with torch.no_grad():
                return function(*measured.args)

        return forward
    optimizer = torch.optim.SGD(measured.module.parameters(), 1e-3)

    def train() -> Any:
        optimizer.zero_grad()
        loss = function(*measured.args)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return train


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def peak() -> float:
    """Return the MiB in use on the GPU, by all allocators, or the most this process had of the host's memory."""
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        return (total - free) / 2**20
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(x.split(":", 1) for x in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 2**10
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def one(name: str, route: str) -> dict[str, float]:
    """Compile and step in this process; seconds and MiB."""
    step = runner(make(name, device()), route)
    _wait()
    gc.collect()
    start = time.perf_counter()
    step()
    _wait()
    first = time.perf_counter() - start
    for _ in range(CALLS):
        step()
    _wait()
    return {"first": first, "memory": peak()}


def _process(name: str, route: str, cache: Path) -> dict[str, float]:
    environment = os.environ | {
        "MODULAR_CACHE_DIR": str(cache / "modular"),
        "TORCH_MOJO_CACHE_DIR": str(cache / "mojo"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCH_MOJO_QUIET": "1",
    }
    command = [sys.executable, "-m", "benchmarks.bench_models", name, route]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it crashed"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def fresh(name: str) -> Iterator[Row]:
    """Compile in fresh processes, with empty caches and then with full ones."""
    group = f"models, {device()}: fresh processes"
    with tempfile.TemporaryDirectory(prefix="torch_mojo_bench_") as folder:
        found: dict[str, list[dict[str, float]]] = {}
        for route in ROUTES:
            runs = 1 if route == "eager" else 2
            try:
                found[route] = [_process(name, route, Path(folder)) for _ in range(runs)]
            except RuntimeError as e:
                yield Row(group, name, "s", None, note=f"{route}: {e}")
                return
    ours, other = found["max"], found["inductor"]
    for i, what in enumerate(("empty caches", "full caches")):
        a, b = ours[i]["first"], other[i]["first"]
        spreads = Spread.of([a]), "inductor", Spread.of([b]), Spread.of([a / b])
        yield Row(group, f"{name}: first step, {what}", "s", *spreads)
    a, b = ours[1]["memory"], other[1]["memory"]
    yield Row(
        group,
        f"{name}: memory",
        "MiB",
        Spread.of([a]),
        "inductor",
        Spread.of([b]),
        Spread.of([a / b]),
        note=f"eager {found['eager'][0]['memory']:.0f} MiB",
    )


def _seconds(step: Callable[[], Any], count: int) -> float:
    _wait()
    start = time.perf_counter()
    for _ in range(count):
        step()
    _wait()
    return (time.perf_counter() - start) / count


def steps(name: str, effort: Effort) -> Iterator[Row]:
    """Time a step of each route in turn, in this process."""
    group = f"models, {device()}: a step"
    torch._dynamo.reset()
    calls, notes = {}, []
    for route in ROUTES:
        step = runner(make(name, device()), route)
        try:
            result = step()
        except Exception as e:  # what does not run is a result
            notes.append(f"{route}: {type(e).__name__}: {str(e).splitlines()[0]}")
            continue
        if route == "eager":
            wanted = result.float()
        else:
            apart = (result.float() - wanted).abs().max() / wanted.abs().max()
            assert apart < 3e-2 if result.dtype != torch.float32 else apart < 1e-3, (route, apart)
        calls[route] = step
    if "max" not in calls:
        yield Row(group, name, "s/call", None, note="; ".join(notes))
        return
    counts = {}
    for route, step in calls.items():
        _seconds(step, 3)
        once = _seconds(step, 2)
        counts[route] = max(1, min(200, round(5 * effort.block / once)))
    found: dict[str, list[float]] = {route: [] for route in calls}
    for i in range(effort.rounds):
        for route in list(calls) if i % 2 else list(calls)[::-1]:
            found[route].append(_seconds(calls[route], counts[route]))
    spreads = {route: Spread.of(values) for route, values in found.items()}
    for route in calls:
        if route == "max":
            continue
        ratio = Spread.of(a / b for a, b in zip(found["max"], found[route], strict=True))
        goal = WORST if route == "eager" else None
        note = "; ".join(notes)
        yield Row(
            group, name, "s/call", spreads["max"], route, spreads[route], ratio, goal, note=note
        )


def rows(effort: Effort) -> Iterator[Row]:
    """Return the rows of all models."""
    for name in NAMES:
        yield from steps(name, effort)
        yield from fresh(name)


if __name__ == "__main__":
    print(json.dumps(one(*sys.argv[1:])))
