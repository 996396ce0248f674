"""What the first call and the import cost, each in fresh processes.

`python -m benchmarks.cold WHAT` is one such process; it prints its measurements as JSON.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.timing import Effort, Row, Spread

ROOT = Path(__file__).parent.parent


def resident() -> float:
    """Return this process's resident memory in MiB."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


def measure_import() -> dict[str, float]:
    """Import torch, then torch_mojo."""
    start = time.perf_counter()
    import torch  # noqa: F401

    torch_seconds, torch_memory = time.perf_counter() - start, resident()
    start = time.perf_counter()
    import torch_mojo  # noqa: F401

    seconds = time.perf_counter() - start
    return {
        "torch": torch_seconds,
        "torch_memory": torch_memory,
        "ours": seconds,
        "memory": resident() - torch_memory,
    }


def measure_first_calls() -> dict[str, float]:
    """Call two operators of one library for the first time."""
    import torch

    from benchmarks import ops

    a, b = torch.rand(16), torch.rand(16)
    memory = resident()
    found: dict[str, float] = {}
    for name, op, expected in (("first", ops.add, a + b), ("second", ops.sub, a - b)):
        start = time.perf_counter()
        result = op(a, b)
        found[name] = time.perf_counter() - start
        assert torch.equal(result, expected)
    found["memory"] = resident() - memory
    return found


def measure_max_library() -> dict[str, float]:
    """Open MAX's own library of the same kernels and call one."""
    import torch
    from max.experimental.torch import CustomOpLibrary

    from benchmarks.ops import KERNELS

    a, b, out = torch.rand(16), torch.rand(16), torch.empty(16)
    start = time.perf_counter()
    CustomOpLibrary(KERNELS).add(out, a, b)
    seconds = time.perf_counter() - start
    assert torch.equal(out, a + b)
    return {"first": seconds}


MEASURES = {
    "import": measure_import,
    "calls": measure_first_calls,
    "max": measure_max_library,
}


def _run(what: str, cache: Path) -> dict[str, float]:
    """Run one measurement in a fresh process; everything it builds is kept in `cache`."""
    environment = os.environ | {
        "MODULAR_CACHE_DIR": str(cache / "modular"),
        "TORCH_MOJO_CACHE_DIR": str(cache),
        "TORCH_MOJO_QUIET": "1",
    }
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.cold", what],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise RuntimeError(result.stderr.strip().splitlines()[-1])
    return json.loads(result.stdout.splitlines()[-1])


def _compared(
    group: str,
    name: str,
    unit: str,
    pairs: list[tuple[float, float]],
    other_name: str,
    goal: float | None = None,
) -> Row:
    ours, other = (Spread.of(values) for values in zip(*pairs, strict=True))
    ratio = Spread.of(a / b for a, b in pairs)
    return Row(group, name, unit, ours, other_name, other, ratio, goal)


def rows(effort: Effort) -> Iterator[Row]:
    """Return the rows of fresh processes."""
    few = max(1, effort.processes // 2)
    with tempfile.TemporaryDirectory(prefix="torch_mojo_bench_") as folder:
        caches = [Path(folder) / str(i) for i in range(few)]
        cold = [(_run("calls", c), _run("max", c / "max")) for c in caches]
        warm = [(_run("calls", caches[0]), _run("max", caches[0] / "max")) for _ in range(few)]
        warm_calls = [_run("calls", caches[0]) for _ in range(effort.processes)]
        imports = [_run("import", caches[0]) for _ in range(effort.processes)]

    def spread(key: str, runs: list[dict[str, float]]) -> Spread:
        return Spread.of(run[key] for run in runs)

    group = "first call in a process, imports excluded"
    max_library = "MAX's CustomOpLibrary"
    firsts = [(ours["first"], theirs["first"]) for ours, theirs in cold]
    yield _compared(group, "empty cache: router and kernel", "s", firsts, max_library)
    seconds = [(ours["second"], theirs["first"]) for ours, theirs in cold]
    yield _compared(group, "router there: one more kernel", "s", seconds, max_library, goal=1.0)
    firsts = [(ours["first"], theirs["first"]) for ours, theirs in warm]
    yield _compared(group, "warm cache", "s", firsts, max_library, goal=0.1)
    yield Row(group, "warm cache, alone", "s", spread("first", warm_calls), goal=0.2)
    yield Row(group, "warm cache: one more kernel", "s", spread("second", warm_calls), goal=0.05)
    yield Row(group, "memory added by both", "MiB", spread("memory", warm_calls))

    group = "import torch_mojo on top of torch"
    times = [(run["ours"], run["torch"]) for run in imports]
    yield _compared(group, "time", "s", times, "import torch", goal=0.1)
    sizes = [(run["memory"], run["torch_memory"]) for run in imports]
    yield _compared(group, "memory", "MiB", sizes, "import torch", goal=0.05)


if __name__ == "__main__":
    print(json.dumps(MEASURES[sys.argv[1]]()))
