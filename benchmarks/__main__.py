"""`python -m benchmarks`: measure everything, print a table, keep the numbers as JSON."""

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import torch_mojo
from benchmarks import (
    bench_device,
    bench_inline,
    bench_islands,
    bench_models,
    builtin,
    cold,
    cpu,
    gpu,
)
from benchmarks.timing import FULL, QUICK, Row, table

RESULTS = Path(__file__).parent / "results"
PARTS = {
    "cpu": cpu.rows,
    "cold": cold.rows,
    "gpu": gpu.rows,
    "islands": bench_islands.rows,
    "inline": bench_inline.rows,
    "kernels": builtin.rows,
    "device": bench_device.rows,
    "models": bench_models.rows,
}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        return next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    cuda = torch.cuda.is_available()
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "max": importlib.metadata.version("max"),
        "mojo-compiler": importlib.metadata.version("mojo-compiler"),
        "torch_mojo": torch_mojo.__version__,
    }


def _measure(parts: Sequence[str], quick: bool, kernels: Sequence[str]) -> Iterator[Row]:
    effort = QUICK if quick else FULL
    for part in parts:
        for row in builtin.rows(effort, kernels) if part == "kernels" else PARTS[part](effort):
            print(f"{row.group}: {row.name}", file=sys.stderr, flush=True)
            yield row


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0 whether goals are met or not."""
    parser = argparse.ArgumentParser("python -m benchmarks", description=main.__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the JSON goes")
    only = "one part; may be repeated"
    parser.add_argument("--only", choices=tuple(PARTS), action="append", help=only)
    named = "of the part kernels, only this one; may be repeated"
    parser.add_argument("--kernel", action="append", default=[], metavar="NAME", help=named)
    args = parser.parse_args(argv)
    date = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    on = machine()
    parts = args.only or (("kernels",) if args.kernel else tuple(PARTS))
    rows = list(_measure(parts, args.quick, args.kernel))
    words = [date[:19].replace(":", ""), "cuda" if torch.cuda.is_available() else "cpu"]
    words += ["quick"] if args.quick else []
    out = args.out or RESULTS / f"{'-'.join(words)}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    found = {"date": date, "quick": args.quick, "machine": on, "rows": [r.as_json() for r in rows]}
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(", ".join(f"{k} {v}" for k, v in on.items()))
    print(table(rows))
    print(f"\nWritten to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
