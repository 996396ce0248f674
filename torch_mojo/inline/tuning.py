"""Measures an inline kernel with different parameters, and keeps the winner."""

import hashlib
import itertools
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_mojo.devices import on_host
from torch_mojo.dtypes import short
from torch_mojo.errors import MojoError, SignatureError
from torch_mojo.inline.declaration import Declaration
from torch_mojo.jit import sources
from torch_mojo.jit.cache import cache
from torch_mojo.jit.toolchain import host, toolchain

LONG_ENOUGH = 1e-3  # seconds that one measurement takes at least


@dataclass(frozen=True)
class Tuning:
    """What was measured.

    Attributes:
        kernel: its name.
        device: where.
        rows: each combination with its seconds per call (the median), or the error it raised.
        measured: False if the rows were found on disk.
    """

    kernel: str
    device: str
    rows: tuple[tuple[dict[str, Any], float | str], ...]
    measured: bool

    @property
    def best(self) -> dict[str, Any]:
        """The fastest combination."""
        timed = [(t, i) for i, (_, t) in enumerate(self.rows) if isinstance(t, float)]
        return self.rows[min(timed)[1]][0]

    def __str__(self) -> str:
        names = list(self.rows[0][0])
        cells = [[*names, "us per call"]]
        for values, result in self.rows:
            shown = f"{result * 1e6:.2f}" if isinstance(result, float) else result
            mark = "  <-" if values == self.best else ""
            cells.append([*(_shown(values[n]) for n in names), shown + mark])
        widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
        lines = [
            "  ".join([*(c.rjust(w) for c, w in zip(row, widths, strict=False)), row[-1]])
            for row in cells
        ]
        how = "measured" if self.measured else "found on disk"
        return "\n".join([f"{self.kernel} on {self.device}, {how}:", *lines])


def tune(
    declaration: Declaration,
    run: Callable[[Mapping[str, Any], Sequence[Any]], object],
    params: Mapping[str, Sequence[Any]],
    args: Sequence[Any],
    written: Sequence[int],
    repeat: int,
) -> Tuning:
    """Return the measurements of all combinations of `params`, from disk if they are there.

    Args:
        declaration: the kernel.
        run: calls it with values of the parameters and the inputs.
        params: the values to try.
        args: the inputs; those in `written` are copied, and stay as they are.
        repeat: how often each combination is measured.

    Raises:
        SignatureError: if there is nothing to try.
        MojoError: if no combination works.
    """
    names = list(params)
    tried = [dict(zip(names, c, strict=True)) for c in itertools.product(*params.values())]
    if not names or not tried:
        raise SignatureError(
            f"[{declaration.label}] there is nothing to tune.\nGive params={{'BLOCK': [64, 128]}}."
        )
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    device = tensors[0].device if tensors else torch.get_default_device()
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu {host()}"
    words = [
        declaration.digest,
        where,
        toolchain().version,
        [[(n, _shown(v)) for n, v in c.items()] for c in tried],
        [(short(t.dtype), tuple(t.shape), t.stride()) for t in tensors],
        torch.get_num_threads() if on_host(device) else 0,
    ]
    digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:32]
    file = cache().root / "tuned" / f"{digest}.json"
    found = _read(file, tried)
    if found is None:
        scratch = [a.clone() if i in written else a for i, a in enumerate(args)]
        found = _measure(run, tried, scratch, device, repeat)
        if all(isinstance(r, str) for r in found):
            raise MojoError(
                f"[{declaration.label}] no combination of parameters works: {found[0]}\n"
                "Try the kernel with one of them first."
            )
        sources.write(file, json.dumps(found))
        return Tuning(declaration.label, where, tuple(zip(tried, found, strict=True)), True)
    return Tuning(declaration.label, where, tuple(zip(tried, found, strict=True)), False)


def _read(file: Any, tried: Sequence[object]) -> list[float | str] | None:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    right = isinstance(found, list) and len(found) == len(tried)
    return found if right and all(isinstance(r, (float, str)) for r in found) else None


def _measure(
    run: Callable[[Mapping[str, Any], Sequence[Any]], object],
    tried: Sequence[Mapping[str, Any]],
    scratch: Sequence[Any],
    device: torch.device,
    repeat: int,
) -> list[float | str]:
    """Return the median seconds of each combination; they take turns, so that noise meets all alike."""
    failed: dict[int, str] = {}
    loops: dict[int, int] = {}
    times: dict[int, list[float]] = {i: [] for i in range(len(tried))}
    for i, values in enumerate(tried):
        try:
            run(values, scratch)
        except MojoError as e:
            failed[i] = str(e).splitlines()[0]
            continue
        seconds = max(_seconds(run, values, scratch, device, 1) for _ in range(2))
        loops[i] = max(1, int(LONG_ENOUGH / max(seconds, 1e-7)))
    for _ in range(repeat):
        for i, count in loops.items():
            times[i].append(_seconds(run, tried[i], scratch, device, count))
    return [
        failed[i] if i in failed else float(statistics.median(times[i])) for i in range(len(tried))
    ]


def _seconds(
    run: Callable[[Mapping[str, Any], Sequence[Any]], object],
    values: Mapping[str, Any],
    scratch: Sequence[Any],
    device: torch.device,
    count: int,
) -> float:
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(device):
            start.record()
            for _ in range(count):
                run(values, scratch)
            end.record()
            end.synchronize()
        return start.elapsed_time(end) / 1e3 / count
    begin = time.perf_counter()
    for _ in range(count):
        run(values, scratch)
    return (time.perf_counter() - begin) / count


def _shown(value: object) -> str:
    return short(value) if isinstance(value, torch.dtype) else str(value)
