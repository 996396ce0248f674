"""Runs torch's operator database on the device and writes docs/coverage_device.md.

    python tests/device/coverage.py run FILE [DTYPE ...]     one JSON line for each operator, appended
    python tests/device/coverage.py run FILE gradients       the same of float32, with gradients
    python tests/device/coverage.py table FILE               the page

Each operator runs in a process that goes on with the next one if it dies. An operator is native if no sample of it
fell back to the CPU. Gradients are compared for few samples, and have lines of their own, of the dtype `gradients`.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

SAMPLES = 12
GRADIENT_SAMPLES = 4
SECONDS = 40
PAGE = Path(__file__).parents[2] / "docs" / "coverage_device.md"


class TooSlow(Exception):
    """An operator took more than SECONDS."""


def _alarm(*_: object) -> None:
    raise TooSlow


def _moved(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):  # a leaf of its own on either device
        moved = _on(value.detach(), device) if value.layout == torch.strided else value
        return moved.requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        made = [_moved(v, device) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, dict):
        return {k: _moved(v, device) for k, v in value.items()}
    if isinstance(value, torch.device) or value == "cpu":
        return torch.device(device)
    return value


def _on(value: torch.Tensor, device: str) -> torch.Tensor:
    """Move a tensor with the whole memory that it is a view of."""
    if value.is_conj() or value.is_neg() or not value.numel():
        return value.to(device)
    count = value.untyped_storage().nbytes() // value.element_size()
    base = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage(), 0, (count,))
    return base.to(device, copy=True).as_strided(
        value.shape, value.stride(), value.storage_offset()
    )


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [x for v in value for x in _flat(v)]
    return [value]


def _same(found: Any, wanted: Any, loose: bool) -> str:
    """Return what differs, or nothing."""
    a, b = _flat(found), _flat(wanted)
    if len(a) != len(b):
        return f"{len(a)} results, not {len(b)}"
    for x, y in zip(a, b, strict=True):
        if not isinstance(y, torch.Tensor):
            if type(x) is not type(y):
                return f"{type(x).__name__}, not {type(y).__name__}"
            continue
        if y.layout != torch.strided or y.is_quantized:
            continue
        if x.device.type != "mojo":
            return f"a result on {x.device}"
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"{x.dtype} {tuple(x.shape)}, not {y.dtype} {tuple(y.shape)}"
        if loose:
            continue  # memory that nobody has written
        half = y.dtype in (torch.float16, torch.bfloat16)
        rtol, atol = (1.6e-2, 1e-2) if half else (1e-4, 1e-4)
        if not half and y.numel() and (y.is_floating_point() or y.is_complex()):
            largest = y.detach().abs().nan_to_num(0, 0, 0).max().item()
            atol += 1e-6 * largest  # sums of numbers that cancel
        try:
            torch.testing.assert_close(x.cpu(), y, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as e:
            return str(e).splitlines()[0] + " " + str(e).splitlines()[2]
    return ""


def _doubled(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(_doubled(v) for v in value)
    return {k: _doubled(v) for k, v in value.items()} if isinstance(value, dict) else value


def _nearer(found: Any, wanted: Any, exact: Any) -> bool:
    """Tell whether the device's halves are no farther from float64's values than the CPU's halves."""
    for x, y, z in zip(_flat(found), _flat(wanted), _flat(exact), strict=True):
        if not isinstance(y, torch.Tensor) or x.shape != y.shape or not y.is_floating_point():
            return False
        errors = [(t.detach().cpu().double() - z.detach()).abs().max().item() for t in (x, y)]
        if not errors[0] <= errors[1]:
            return False
    return True


def _with_gradients(op: Any, given: list[Any]) -> list[Any]:
    """Return an operator's results, and what the sum of their squares gives its leaves as gradients."""
    leaves = [
        x
        for x in _flat(list(given[0:1]) + list(given[1]) + list(given[2].values()))
        if isinstance(x, torch.Tensor) and x.requires_grad
    ]
    made = op(given[0], *given[1], **given[2])
    floating = [r for r in _flat(made) if isinstance(r, torch.Tensor) and r.requires_grad]
    if not floating or not leaves:
        return [made]
    total = sum((r.square() if not r.is_complex() else r.abs().square()).sum() for r in floating)
    return [made, *torch.autograd.grad(total, leaves, allow_unused=True)]


def _run(op: Any, dtype: torch.dtype, gradients: bool) -> dict[str, Any]:
    from torch_mojo.device import fallback

    found: dict[str, Any] = {"samples": 0, "wrong": [], "errors": [], "cpu": []}
    loose = "empty" in op.name
    fell: set[str] = set()
    fallback.unbuilt.clear()
    for i, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=gradients)):
        if i >= (GRADIENT_SAMPLES if gradients else SAMPLES):
            break
        try:
            torch.manual_seed(0)
            theirs = [_moved(v, "cpu") for v in (sample.input, sample.args, sample.kwargs)]
            wanted = _with_gradients(op, theirs)
        except TooSlow:
            raise
        except Exception:
            continue
        given = [_moved(v, "mojo") for v in (sample.input, sample.args, sample.kwargs)]
        if op.name == "tensor_split":
            given[1] = sample.args  # indices belong to the CPU, as for CUDA
        fallback.ran.clear()
        try:
            torch.manual_seed(0)
            made = _with_gradients(op, given)
        except TooSlow:
            raise
        except Exception as e:
            found["errors"].append(f"{type(e).__name__}: {str(e).splitlines()[0][:150]}")
            continue
        fell |= set(fallback.ran)
        found["samples"] += 1
        difference = _same(made, wanted, loose)
        if difference and dtype in (torch.float16, torch.bfloat16):
            exact = [_moved(v, "cpu") for v in (sample.input, sample.args, sample.kwargs)]
            if _nearer(made, wanted, _with_gradients(op, _doubled(exact))):
                difference = ""
        if difference:
            found["wrong"].append(difference[:200])
    found["cpu"] = sorted(fell)
    found["unbuilt"] = sorted(fallback.unbuilt)
    return found


def run(file: Path, dtypes: list[str]) -> None:
    """Run what the file does not have yet."""
    from torch.testing._internal.common_methods_invocations import op_db

    import torch_mojo

    warnings.simplefilter("ignore")
    torch_mojo.register_device()
    signal.signal(signal.SIGALRM, _alarm)
    lines = file.read_text().splitlines() if file.exists() else []
    done = {(d["op"], d["dtype"]) for d in map(json.loads, lines)}
    with file.open("a") as out:
        for name in dtypes:
            gradients = name == "gradients"
            dtype = torch.float32 if gradients else getattr(torch, name)
            for op in op_db:
                full = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
                if (full, name) in done or dtype not in op.dtypes:
                    continue
                if gradients and not op.supports_autograd:
                    continue
                # if the process dies here, this line is what is left of the operator
                mark = out.tell()
                out.write(json.dumps({"op": full, "dtype": name, "died": True}) + "\n")
                out.flush()
                signal.alarm(SECONDS)
                try:
                    found = _run(op, dtype, gradients)
                except TooSlow:
                    found = {"slow": True}
                signal.alarm(0)
                out.truncate(mark)
                out.seek(mark)
                out.write(json.dumps({"op": full, "dtype": name, **found}) + "\n")
                out.flush()
    print("done")


def table(file: Path) -> None:
    """Write the page."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    dtypes = list(dict.fromkeys(r["dtype"] for r in rows))
    parts = [
        "# Operators of the `mojo` device",
        "",
        "torch's operator database, run on a host device and compared with the CPU: "
        f"up to {SAMPLES} samples of each operator, tolerance 1e-4 and a millionth of the largest number (halves: 1.6e-2 of the value, 1e-2, or nearer to float64's values than the CPU's halves).",
        f"The line `gradients` is float32 with the gradients of the results' squares, up to {GRADIENT_SAMPLES} samples.",
        "",
        "`native`: no sample called the CPU. `built`: the CPU ran some sample only because kernels for that dtype and "
        "rank were not built, and the run (`TORCH_MOJO_BUILD=never`) builds nothing; otherwise the first use builds "
        "them. Their values are tested in tests/aten, not here. `CPU`: right, and some operator ran on the CPU, on the "
        "same memory. `refused`: an error where the CPU has none. Random numbers are drawn by the CPU's kernels, so that they "
        "are the CPU's for a seed: such operators count by what else they run.",
        "",
        "| dtype | operators | native | built | CPU | wrong | refused | died or too slow |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for dtype in dtypes:
        own = [r for r in rows if r["dtype"] == dtype]
        kinds = [_kind(r) for r in own]
        counts = [kinds.count(k) for k in ("native", "built", "cpu", "wrong", "refused", "died")]
        parts.append(f"| {dtype} | {len(own)} | {' | '.join(map(str, counts))} |")
    first = [r for r in rows if r["dtype"] == dtypes[0]]
    native = sorted({r["op"] for r in first if _kind(r) == "native"})
    parts += ["", f"## Native in {dtypes[0]}", "", ", ".join(f"`{n}`" for n in native), ""]
    built = sorted({r["op"] for r in first if _kind(r) == "built"})
    parts += [f"## Built on first use in {dtypes[0]}", "", ", ".join(f"`{n}`" for n in built), ""]
    for kind, title in (("wrong", "Wrong"), ("refused", "Refused"), ("died", "Died or too slow")):
        bad = [r for r in rows if _kind(r) == kind]
        if bad:
            parts += [f"## {title}", "", "| operator | dtype | what |", "|---|---|---|"]
            for r in bad:
                what = (
                    r.get("wrong")
                    or r.get("errors")
                    or ["took too long" if "slow" in r else "died"]
                )[0]
                parts.append(f"| `{r['op']}` | {r['dtype']} | {what.replace('|', '/')} |")
            parts.append("")
    PAGE.write_text("\n".join(parts).rstrip() + "\n")


def _kind(row: dict[str, Any]) -> str:
    if row.get("died") or row.get("slow"):
        return "died"
    if row["wrong"]:
        return "wrong"
    if row["errors"]:
        return "refused"
    if not row["cpu"]:
        return "native"
    return "built" if set(row["cpu"]) <= set(row["unbuilt"]) else "cpu"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "table", "one"])
    parser.add_argument("file", type=Path)
    parser.add_argument("dtypes", nargs="*", default=["float32"])
    given = parser.parse_args()
    if given.command == "table":
        table(given.file)
    elif given.command == "one":
        run(given.file, given.dtypes)
    else:
        command = [sys.executable, __file__, "one", str(given.file), *given.dtypes]
        environment = os.environ | {"TORCH_MOJO_BUILD": "never"}
        for _ in range(100):
            result = subprocess.run(
                command, capture_output=True, text=True, env=environment, check=False
            )
            if result.stdout.endswith("done\n"):
                return
            if "Error" in result.stderr and "Traceback" in result.stderr:
                print(result.stderr[-3000:])
                return


if __name__ == "__main__":
    main()
