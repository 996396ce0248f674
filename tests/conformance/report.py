"""Make docs/coverage.md out of the kept outcomes and the tables of lowerings.

python tests/conformance/report.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
DOCUMENT = HERE.parent.parent / "docs" / "coverage.md"
RESULTS = HERE / "results"
KINDS = [
    f"{dtype}-{kind}"
    for dtype in ("float32", "bfloat16", "float16", "int64", "bool")
    for kind in ("forward", "gradient")
    if kind == "forward" or "float" in dtype
]
BY_DESIGN = ("its island is too small", "an empty tensor", "a view of a result", "writes into its")


def outcomes() -> dict[str, dict[str, Any]]:
    """Return what was kept, by dtype and kind, then by operator."""
    found = {k: RESULTS / f"{k}.json" for k in KINDS}
    return {k: json.loads(path.read_text()) for k, path in found.items() if path.exists()}


def cell(entry: dict[str, Any] | None) -> str:
    """Say in a word what became of an operator's samples."""
    states = list(entry["states"].values()) if entry else []
    states = [s for s in states if not s.startswith("left out")]
    if not states:
        return "" if not entry or not entry["states"] else "-"
    for word in ("wrong", "failed"):
        if any(s.startswith(word) for s in states):
            return f"**{word}**"
    if all(s == "eager" for s in states):
        return "eager"
    return "part" if any(not r.startswith(BY_DESIGN) for r in entry["kept"].values()) else "MAX"


def core() -> list[tuple[str, str]]:
    """Return torch's core overloads, and how each gets into a MAX graph."""
    from torch_mojo.compiler import rules
    from torch_mojo.compiler.decompositions import decompositions

    table = decompositions()
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        if space != "aten":
            continue
        op = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
        if op is not None and torch.Tag.core in op.tags:
            found.append((str(op).removeprefix("aten."), _way(op, table, rules)))
    return sorted(found)


def _way(op: Any, table: Any, rules: Any) -> str:
    if rules.find(op) is not None:
        return "lowering"
    if op in table:
        return "decomposition"
    if str(op).startswith("aten.sym_"):
        return "arithmetic on sizes, in Python"
    if torch.Tag.nondeterministic_seeded in op.tags:
        return "eager torch: random numbers are its own"
    if op._schema.is_mutable:
        return "eager torch: it writes into its argument (AOTAutograd leaves only copies to inputs)"
    if torch.Tag.dynamic_output_shape in op.tags:
        return "eager torch: the size of its result depends on values"
    if op in (torch.ops.aten._fft_r2c.default, torch.ops.aten._fft_c2r.default):
        return "eager torch: complex numbers, which MAX has not"
    if op is torch.ops.aten._local_scalar_dense.default:
        return "eager torch: it gives a value to Python"
    return "eager torch"


def _overview(found: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| samples of | operators | all in MAX graphs | in part | eager torch | wrong | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, entries in found.items():
        cells = [c for e in entries.values() if (c := cell(e)) not in ("", "-")]
        counts = [cells.count(w) for w in ("MAX", "part", "eager", "**wrong**", "**failed**")]
        lines.append(
            f"| {kind.replace('-', ', ')} | {len(cells)} | {' | '.join(map(str, counts))} |"
        )
    return lines


def _reasons(found: dict[str, dict[str, Any]]) -> list[str]:
    users: dict[tuple[str, str], set[str]] = {}
    for entries in found.values():
        for name, entry in entries.items():
            for op, why in entry["kept"].items():
                if not why.startswith((*BY_DESIGN, "random numbers")):
                    users.setdefault((op, why), set()).add(name)
    lines = ["| ATen operator | why | met in |", "|---|---|---|"]
    for (op, why), names in sorted(users.items()):
        some = ", ".join(f"`{n}`" for n in sorted(names)[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        lines.append(f"| `{op.removeprefix('aten.')}` | {why} | {some}{more} |")
    return lines


def text() -> str:
    """Return the document."""
    found = outcomes()
    names = sorted({n for entries in found.values() for n in entries})
    rows = []
    for name in names:
        cells = [cell(found[k].get(name)) for k in found]
        if any(c not in ("", "-") for c in cells):
            rows.append(f"| `{name}` | " + " | ".join(cells) + " |")
    overloads = core()
    ways: dict[str, list[str]] = {}
    for op, way in overloads:
        ways.setdefault(way, []).append(op)
    lines = [
        '# Coverage of `torch.compile(backend="max")`',
        "",
        "Made by `python tests/conformance/report.py`; do not edit.",
        "",
        "## torch's core operators",
        "",
        f"torch {torch.__version__.split('+')[0]} tags {len(overloads)} overloads as core.",
        "",
    ]
    for way, ops in sorted(ways.items(), key=lambda item: -len(item[1])):
        lines += [f"**{way}** ({len(ops)}): " + ", ".join(f"`{op}`" for op in ops), ""]
    lines += [
        "## torch's operator database",
        "",
        "Samples of every entry of torch's own `op_db` (at most two of each, sizes static), many in one MAX graph,",
        "against eager torch on the CPU. *part*: some of its operators ran in eager torch, see below. *eager*: all did.",
        "*-*: no static graph holds the samples (their result is no tensor, or its size depends on values).",
        "",
        *_overview(found),
        "",
        "### What ran in eager torch",
        "",
        "Random numbers, empty tensors, views of results and islands too small to pay are left out.",
        "",
        *_reasons(found),
        "",
        "### By operator",
        "",
        "| operator | " + " | ".join(k.replace("-", " ") for k in found) + " |",
        "|---|" + "---|" * len(found),
        *rows,
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    DOCUMENT.write_text(text())
