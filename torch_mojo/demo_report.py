"""`python -m torch_mojo demo`: its kernels on a photograph, checked and timed on every route."""

from __future__ import annotations

import functools
import gc
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from torch_mojo import demo
from torch_mojo.errors import MojoError
from torch_mojo.progress import slow

if TYPE_CHECKING:
    from PIL.Image import Image

ROUTES = ("eager", "inductor", "max")
INSTALL = "Install them: pip install 'torch_mojo[demo]'"
_ROUND = 0.02  # seconds of one timed block
_ROUNDS = 5


@dataclass(frozen=True)
class Row:
    """What was found for one kernel on one route.

    Attributes:
        equal: whether the result is right; None if the route did not run.
        first: seconds of the first call, compilation included.
        each: seconds per call.
        plain: seconds per call of the same in plain eager torch.
        reason: why the route did not run.
    """

    kernel: str
    route: str
    equal: bool | None
    first: float = 0.0
    each: float = 0.0
    plain: float = 0.0
    reason: str = ""


def load_picture(file: Path | None) -> torch.Tensor:
    """Return a picture as uint8 (rows, columns, 3).

    Args:
        file: any picture that Pillow reads; None is matplotlib's portrait of Grace Hopper.

    Raises:
        MojoError: if a package or the picture is missing.
    """
    import numpy as np

    try:
        from PIL import Image, UnidentifiedImageError

        if file is None:
            from matplotlib.cbook import get_sample_data

            file = Path(str(get_sample_data("grace_hopper.jpg", asfileobj=False)))
    except ImportError as e:
        raise MojoError(f"The demo needs packages that are missing ({e}). {INSTALL}") from e
    try:
        with Image.open(file) as opened:
            pixels = np.array(opened.convert("RGB"))
    except (OSError, UnidentifiedImageError) as e:
        raise MojoError(f"{file} cannot be read as a picture: {e}.") from e
    return torch.from_numpy(pixels)


def save_pictures(results: demo.Results, picture: torch.Tensor, folder: Path) -> list[Path]:
    """Write the pictures and the histogram as PNG files; return their paths."""
    from PIL import Image

    gray, sharp, edges, counts = results
    edges = edges / edges.max().clamp_min(1e-6)
    shown = {"grayscale": gray, "sharpen": sharp, "sobel": edges}
    images = {n: Image.fromarray(_bytes(t).numpy()) for n, t in shown.items()}
    images["original"] = Image.fromarray(picture.numpy())
    images["histogram"] = _bars(counts)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, image in images.items():
        written.append(folder / f"{name}.png")
        image.save(written[-1])
    return sorted(written)


def _bytes(x: torch.Tensor) -> torch.Tensor:
    return (x * 255).round().to(torch.uint8)


def _bars(counts: torch.Tensor, height: int = 256, width: int = 8) -> Image:
    from PIL import Image

    heights = (counts * (height - 1) / counts.max().clamp_min(1)).round().long()
    filled = torch.arange(height - 1, -1, -1)[:, None] < heights[None, :]
    pixels = torch.where(filled, 40, 255).to(torch.uint8).repeat_interleave(width, dim=1)
    pixels[:, ::width] = 255
    return Image.fromarray(pixels.numpy())


def one_line(error: BaseException, limit: int = 160) -> str:
    """Return the first telling line of an exception."""
    inner = getattr(error, "inner_exception", None) or error
    lines = [line.strip() for line in str(inner).splitlines() if line.strip()]
    text = f"{type(inner).__name__}: {lines[0]}" if lines else type(inner).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."


def compare_times(ours: Callable[[], object], plain: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds per call of two functions, timed in turn: medians of several rounds."""

    def calls_of(f: Callable[[], object]) -> int:
        f()
        start = time.perf_counter()
        f()
        return max(1, int(_ROUND / max(time.perf_counter() - start, 1e-7)))

    pair = ((ours, calls_of(ours)), (plain, calls_of(plain)))
    found: tuple[list[float], list[float]] = ([], [])
    collecting = gc.isenabled()
    gc.disable()
    try:
        for i in range(_ROUNDS):
            for k in (0, 1) if i % 2 == 0 else (1, 0):
                f, count = pair[k]
                start = time.perf_counter()
                for _ in range(count):
                    f()
                found[k].append((time.perf_counter() - start) / count)
    finally:
        if collecting:
            gc.enable()
    return statistics.median(found[0]), statistics.median(found[1])


def run_route(route: str, picture: torch.Tensor) -> tuple[list[Row], demo.Results | None]:
    """Run every kernel, and the whole pipeline, on one route."""

    def on_route(f: Callable[..., Any]) -> Callable[..., Any]:
        if route == "eager":
            return f
        torch.compiler.reset()
        return torch.compile(f, backend=route, fullgraph=True, dynamic=False)

    def run(
        name: str,
        ours: Callable[..., Any],
        plain: Callable[..., Any],
        args: Sequence[object],
        check: Callable[[Any], bool],
    ) -> tuple[Row, Any]:
        try:
            routed = on_route(ours)
            start = time.perf_counter()
            with slow(f"inductor: compiling {name}") if route == "inductor" else nullcontext():
                result = routed(*args)
            first = time.perf_counter() - start
            times = compare_times(lambda: routed(*args), lambda: plain(*args))
        except Exception as e:
            return Row(name, route, None, reason=one_line(e)), None
        return Row(name, route, check(result), first, *times), result

    rows = []
    with torch.no_grad():
        for name, (ours, plain) in demo.KERNEL_PAIRS.items():
            args = demo.arguments(name, picture)
            expected = plain(*args)
            check = functools.partial(demo.same, expected=expected)
            row, _ = run(name, _call(ours), plain, args, check)
            rows.append(row)
            if row.equal is None and route != "eager":
                return rows, None  # what stops one kernel of a backend stops all
        row, results = run(
            "pipeline",
            demo.pipeline,
            demo.torch_pipeline,
            (picture,),
            lambda r: demo.same_pipeline(r, picture),
        )
        rows.append(row)
    return rows, results


def _call(op: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Wrap an operator in a plain function, which is what torch.compile takes."""

    def call(*args: object) -> torch.Tensor:
        return op(*args)

    return call


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def print_table(rows: Sequence[Row]) -> None:
    """Print one row per kernel and route."""
    from rich.console import Console
    from rich.table import Table

    table = Table("kernel", "route", "equal")
    for heading in ("first call", "per call", "plain torch", "ratio"):
        table.add_column(heading, justify="right")
    reasons = {}
    for row in rows:
        if row.equal is None:
            reasons[row.route] = row.reason
            table.add_row(row.kernel, row.route, "n/a", "-", "-", "-", "-")
            continue
        table.add_row(
            row.kernel,
            row.route,
            "[green]yes[/]" if row.equal else "[bold red]NO[/]",
            f"{row.first:.2f} s",
            _time(row.each),
            _time(row.plain),
            f"{row.each / row.plain:.2f}",
        )
    console = Console()
    console.print(table)
    for route, reason in reasons.items():
        console.print(f"{route}: {reason}", markup=False, highlight=False, soft_wrap=True)


def run(out: Path, routes: Sequence[str], file: Path | None) -> int:
    """Run the demo; return the exit status, 1 only for a wrong result.

    Raises:
        MojoError: if a package of the extra `demo`, or the picture, is missing.
    """
    try:
        import rich  # noqa: F401
    except ImportError as e:
        raise MojoError(f"The demo needs packages that are missing ({e}). {INSTALL}") from e
    picture = load_picture(file)
    height, width = picture.shape[:2]
    print(f"A picture of {height} x {width} pixels on the CPU, {torch.get_num_threads()} threads.")
    rows: list[Row] = []
    pictures: demo.Results | None = None
    for route in routes:
        found, results = run_route(route, picture)
        rows += found
        pictures = pictures or results
    print_table(rows)
    if pictures is not None:
        try:
            written = save_pictures(pictures, picture, out)
        except OSError as e:
            raise MojoError(f"The pictures cannot be written to {out}: {e}.") from e
        print(f"Wrote {', '.join(p.name for p in written)} to {out}")
    return int(any(row.equal is False for row in rows))
