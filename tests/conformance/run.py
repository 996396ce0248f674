"""Run part of torch's operator database through `backend="max"` and keep the outcomes.

    python tests/conformance/run.py float32 --samples 2
    python tests/conformance/run.py float32 --gradient --ops 'nn.functional.*'

Outcomes go to results/DTYPE-forward.json (or -gradient), one entry for each operator; an operator that is there
already is not run again without --again. tests/conformance/report.py makes docs/coverage.md of them.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graphs
import samples
import torch
from report import RESULTS


def place(dtype: torch.dtype, gradient: bool) -> Path:
    """Return where outcomes are kept."""
    kind = "gradient" if gradient else "forward"
    return RESULTS / f"{str(dtype).removeprefix('torch.')}-{kind}.json"


def load(path: Path) -> dict[str, Any]:
    """Return the outcomes that are kept, or none."""
    return json.loads(path.read_text()) if path.exists() else {}


def keep(path: Path, outcomes: list[graphs.Outcome]) -> None:
    """Add outcomes, in place of what there was of their operators."""
    found = load(path) | {o.probe.op: {"states": {}, "kept": {}} for o in outcomes}
    for o in outcomes:
        entry = found[o.probe.op]
        entry["states"][str(o.probe.number)] = o.state
        entry["kept"] |= o.kept
    path.parent.mkdir(exist_ok=True)
    lines = (f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def groups(items: list[Any], size: int) -> Iterator[list[Any]]:
    """Split a list."""
    for i in range(0, len(items), size):
        yield items[i : i + size]


def outcomes_of(
    ops: list[Any], dtype: torch.dtype, gradient: bool, most: int, largest: int = 10_000
) -> list[graphs.Outcome]:
    """Trace, plan, compile and compare samples of some operators, those of at most `largest` nodes."""
    outcomes: list[graphs.Outcome] = []
    for op in ops:
        try:
            outcomes += [graphs.trace(p) for p in samples.probes(op, dtype, gradient, most)]
        except Exception as e:  # the database's own functions
            print(f"{samples.title(op)}: no samples: {e}", flush=True)
    graphs.plan([o for o in outcomes if o.graph is not None])
    outcomes = [o for o in outcomes if o.inside <= largest]
    for o in outcomes:
        o.state = o.state or ("" if o.inside else "eager")
    if inside := [o for o in outcomes if not o.state]:
        graphs.run_together(inside, sys.stdout)
    return outcomes


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dtype", help="float32, bfloat16, float16, int64 or bool")
    parser.add_argument("--gradient", action="store_true", help="gradients instead of results")
    parser.add_argument("--ops", default="*", help="names, comma-separated, with wildcards")
    parser.add_argument("--samples", type=int, default=2, help="of each operator")
    parser.add_argument("--group", type=int, default=40, help="operators in one graph")
    parser.add_argument("--largest", type=int, default=10_000, help="nodes of a sample to run")
    parser.add_argument("--again", action="store_true", help="also what was run before")
    given = parser.parse_args()
    dtype = getattr(torch, given.dtype)
    path = place(dtype, given.gradient)
    done = {} if given.again else load(path)
    ops = [
        op
        for op in samples.database()
        if samples.supports(op, dtype, given.gradient)
        and samples.title(op) not in done
        and any(fnmatch.fnmatch(samples.title(op), p) for p in given.ops.split(","))
    ]
    for some in groups(ops, given.group):
        outcomes = outcomes_of(some, dtype, given.gradient, given.samples, given.largest)
        keep(path, outcomes)
        for o in outcomes:
            if o.state.startswith(("wrong", "failed")):
                print(f"{o.probe.op}[{o.probe.number}] {o.state}", flush=True)
        print(f"{len(some)} operators, {len(outcomes)} samples", flush=True)


if __name__ == "__main__":
    main()
