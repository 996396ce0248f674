"""What a call costs on a CUDA device: overhead on the host, bandwidth on the device."""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks import ops
from benchmarks.cpu import ATEN
from benchmarks.timing import Call, Effort, Row, compare, pair

SIZES = (2**20, 2**24, 2**28)
QUEUE = 500  # launches in a block; more would wait for the device


def overhead(effort: Effort) -> Iterator[Row]:
    """Time what the host pays for a call on 16 floats."""
    group = "CUDA: overhead per call on the host, 16 floats"
    names: dict[str, Any] = {
        "a": torch.rand(16, device="cuda"),
        "b": torch.rand(16, device="cuda"),
        "aten": torch.ops.aten.add.Tensor,
        "ours": torch.ops.tm_bench.add.default,
        "direct": torch.ops.tm_bench.direct_add.default,
        "fenced": torch.ops.tm_bench.fenced_add.default,
        "with_backward": torch.ops.tm_bench.add_with_backward.default,
    }
    for op in (ops.add, ops.direct_add, ops.fenced_add):
        assert torch.equal(op(names["a"], names["b"]), names["a"] + names["b"])
    aten = Call("aten(a, b)", names)
    wait = torch.cuda.synchronize
    for name, f, goal in (
        ("torch.ops.tm_bench.add.default, a foreach kernel", "ours", 1.0),
        ("torch.ops.tm_bench.direct_add.default, given torch's stream", "direct", 1.0),
        ("torch.ops.tm_bench.fenced_add.default, fenced", "fenced", 1.1),
        ("with a backward, no gradient needed", "with_backward", 1.5),
    ):
        call = Call(f"{f}(a, b)", names)
        yield compare(group, name, call, ATEN, aten, effort, goal=goal, most=QUEUE, wait=wait)


def _on_device(
    f: Callable[..., Any], a: torch.Tensor, b: torch.Tensor, count: int
) -> Callable[[], float]:
    """Return what measures the device's seconds of one call, between two events."""

    def seconds() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        f(a, b)
        begin.record()
        for _ in range(count):
            f(a, b)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / count

    return seconds


def bandwidth(effort: Effort) -> Iterator[Row]:
    """Time an elementwise addition of float32 vectors between two events."""
    group = "CUDA: float32 a + b, on the device"
    free, _ = torch.cuda.mem_get_info()
    for n in SIZES:
        if 20 * n > free:
            continue
        a, b = torch.rand(n, device="cuda"), torch.rand(n, device="cuda")
        count = max(5, min(200, 2**30 // n))
        theirs = _on_device(torch.ops.aten.add.Tensor, a, b, count)
        for name, op in (("foreach", ops.add), ("by hand", ops.direct_add)):
            assert torch.equal(op(a, b), a + b)
            found = pair(_on_device(op.overload, a, b, count), theirs, effort.rounds)
            goal = 1.03 if n == SIZES[-1] else None
            what = f"2^{n.bit_length() - 1} floats, {name}"
            yield Row(
                group, what, "s/call", other_name=ATEN, goal=goal, size=12 * n, **found._asdict()
            )


def rows(effort: Effort) -> Iterator[Row]:
    """Return all rows of the first CUDA device; none without one."""
    if torch.cuda.is_available():
        yield from overhead(effort)
        yield from bandwidth(effort)
