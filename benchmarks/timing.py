"""How things are measured: two calls in turn, A B B A, and one row for each pair."""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        block: seconds of one timed block of calls.
        rounds: blocks A B B A of each pair.
        processes: fresh processes of each cold measurement.
    """

    block: float = 0.02
    rounds: int = 25
    processes: int = 5


FULL = Effort()
QUICK = Effort(block=0.005, rounds=7, processes=1)


@dataclass(frozen=True)
class Spread:
    """The median of some measurements, with the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        found = list(values)
        return cls(statistics.median(found), min(found), max(found))


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        group, name: what was measured.
        unit: of `ours` and `other`: "s", "s/call" or "MiB".
        other_name: what ours is compared with.
        ratio: ours / other, each taken from one round of the same run.
        goal: the most that `ratio` (or `ours`, if there is no other) may be; None: for information.
        size: bytes read and written by a call, for a bandwidth.
        note: anything else; the reason, if there is no measurement.
    """

    group: str
    name: str
    unit: str
    ours: Spread | None
    other_name: str = ""
    other: Spread | None = None
    ratio: Spread | None = None
    goal: float | None = None
    size: int | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        measured = self.ratio or self.ours
        if self.goal is None or measured is None:
            return None
        return measured.median <= self.goal

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"met": self.met}


@dataclass(frozen=True)
class Call:
    """A call to time: the text of an expression over names."""

    text: str
    names: dict[str, Any]

    def timer(self, count: int, wait: Callable[[], None] | None = None) -> Callable[[], float]:
        """Return what measures the seconds of one call over `count` calls, with `gc` off."""
        timed = timeit.Timer(self.text, globals=self.names)

        def seconds() -> float:
            if wait is not None:
                wait()
            return timed.timeit(count) / count

        return seconds

    def count_for(self, block: float, most: int = 1_000_000) -> int:
        """Return how many calls fill a block, after warming up."""
        timed = timeit.Timer(self.text, globals=self.names)
        timed.timeit(3)
        count = 1
        while count < most:
            seconds = timed.timeit(count)
            if seconds > block / 4:
                return max(1, min(most, round(count * block / seconds)))
            count *= 4
        return most


class Pair(NamedTuple):
    """Two measurements and their ratio."""

    ours: Spread
    other: Spread
    ratio: Spread


def pair(ours: Callable[[], float], other: Callable[[], float], rounds: int) -> Pair:
    """Measure two things in turn, A B B A."""
    found: tuple[list[float], list[float], list[float]] = ([], [], [])
    ours(), other()
    for _ in range(rounds):
        first, second, third, fourth = ours(), other(), other(), ours()
        found[0].append((first + fourth) / 2)
        found[1].append((second + third) / 2)
        found[2].append((first + fourth) / (second + third))
    return Pair(*(Spread.of(values) for values in found))


def compare(
    group: str,
    name: str,
    ours: Call,
    other_name: str,
    other: Call,
    effort: Effort,
    *,
    goal: float | None = None,
    size: int | None = None,
    most: int = 1_000_000,
    wait: Callable[[], None] | None = None,
) -> Row:
    """Time two calls against each other.

    A block has at most `most` calls; `wait` runs before each, outside of the time.
    """
    counts = [c.count_for(effort.block, most) for c in (ours, other)]
    timers = [c.timer(n, wait) for c, n in zip((ours, other), counts, strict=True)]
    found = pair(timers[0], timers[1], effort.rounds)
    return Row(
        group, name, "s/call", other_name=other_name, goal=goal, size=size, **found._asdict()
    )


def amount(value: float, unit: str) -> str:
    """Write a measurement for people, with three digits."""
    if unit == "MiB":
        return f"{value:.1f} MiB"
    for scale, name in ((1.0, "s"), (1e-3, "ms")):
        if value >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value * 1e6:.3g} us"


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text, one line each, grouped."""
    lines: list[tuple[str, ...]] = []
    head = ("", "ours", "range", "compared with", "theirs", "ratio", "range", "goal", "met")
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            lines.append((f"# {group}", *head[1:]))
        if row.ours is None:
            lines.append((row.name, row.note))
            continue
        ours, other, ratio = row.ours, row.other, row.ratio
        speed = f" ({row.size / ours.median / 1e9:.3g} GB/s)" if row.size else ""
        theirs = amount(other.median, row.unit) if other else ""
        if row.size and other:
            theirs += f" ({row.size / other.median / 1e9:.3g} GB/s)"
        lines.append(
            (
                row.name,
                amount(ours.median, row.unit) + speed,
                f"{amount(ours.low, row.unit)} - {amount(ours.high, row.unit)}",
                row.other_name,
                theirs,
                f"{ratio.median:.3g}" if ratio else "",
                f"{ratio.low:.2g} - {ratio.high:.2g}" if ratio else "",
                "" if row.goal is None else f"<= {row.goal:g}" + ("" if ratio else f" {row.unit}"),
                {None: "", True: "yes", False: "NO"}[row.met],
            )
        )
    full = [line for line in lines if len(line) == len(head)]
    widths = [max(len(line[i]) for line in full) for i in range(len(head))]
    text = []
    for line in lines:
        if line[0].startswith("# "):
            text.append("")
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)
