"""Inline kernels: what a call costs, and the kernels of docs/inline_kernels.md."""

import functools
import linecache
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import torch_mojo
from benchmarks import bench_grid_sample, bench_linear_algebra
from benchmarks.builtin import Case
from benchmarks.gpu import QUEUE
from benchmarks.timing import Call, Effort, Row, Spread

PAGE = Path(__file__).parent.parent / "docs" / "inline_kernels.md"
ATEN = "torch.ops.aten.add.Tensor"
GOAL_LISTED, GOAL_OP = 2e-6, 0.5e-6  # seconds above aten.add


@functools.cache
def page() -> dict[str, Any]:
    """Return what the page about inline kernels defines, by running it."""
    names: dict[str, Any] = {"__name__": "page", "print": lambda *_: None}
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)):
        file = f"<block {i} of {PAGE.name}>"
        linecache.cache[file] = (len(block), None, block.splitlines(keepends=True), file)
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            exec(compile(block, file, "exec"), names)
    return names


def _by_channels(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the composed samples of a picture whose channels come last."""
    return bench_grid_sample.composed(x.movedim(3, 1), places).movedim(1, 3)


def cases(device: str) -> Iterator[Case]:
    """Return the page's 3x3 inverse and grid_sample, against what is composed of torch operators."""
    names = page()
    for n in (64, 2**14, 2**18 if device == "cpu" else 2**22):
        a = torch.eye(3, device=device) + 0.1 * torch.randn(n, 3, 3, device=device)
        name = f"inline inverse, 2^{n.bit_length() - 1}"
        yield Case(name, names["inverse"], bench_linear_algebra.composed, (a,), moved=72 * n)
    small = ((1, 32, 32, 8), (2, 64, 64, 16), (4, 128, 128, 32))
    large = ((2, 64, 64, 16), (8, 128, 128, 64), (16, 512, 512, 64))
    for shape in small if device == "cpu" else large:
        x = torch.randn(shape, device=device)
        places = torch.rand(*shape[:3], 2, device=device) * 2.2 - 1.1
        for gradients in (False, True):
            args = tuple(t.detach().requires_grad_(gradients) for t in (x, places))
            yield Case(
                f"inline grid_sample {shape}{', with gradients' * gradients}",
                names["grid_sample"],
                _by_channels,
                args,
                memory_bound=False,
                rare=1e-3,
            )


def _above(name: str, ours: Call, other: Call, goal: float | None, effort: Effort) -> Row:
    """Return what a call costs above another one, taken in turns."""
    cuda = torch.cuda.is_available()
    counts = [c.count_for(effort.block, QUEUE if cuda else 1_000_000) for c in (ours, other)]
    wait = torch.cuda.synchronize if cuda else None
    timers = [c.timer(n, wait) for c, n in zip((ours, other), counts, strict=True)]
    above, theirs = [], []
    for _ in range(effort.rounds):
        first, second, third, fourth = timers[0](), timers[1](), timers[1](), timers[0]()
        above.append((first + fourth - second - third) / 2)
        theirs.append((second + third) / 2)
    group = f"inline kernels, 16 floats: seconds above {ATEN}"
    return Row(group, name, "s/call", Spread.of(above), ATEN, Spread.of(theirs), goal=goal)


def rows(effort: Effort) -> Iterator[Row]:
    """Time calls on 16 floats, where a kernel takes next to nothing."""
    add = torch_mojo.kernel(
        "bench_add",
        source="y[thread_position_in_grid.x] = a[thread_position_in_grid.x] + b[thread_position_in_grid.x]",
        inputs={"a": "T[n]", "b": "T[n]"},
        outputs={"y": "T[n]"},
        grid="n",
    )
    a = torch.rand(16, device="cuda" if torch.cuda.is_available() else "cpu")
    names: dict[str, Any] = {
        "a": a,
        "aten": torch.ops.aten.add.Tensor,
        "add": add,
        "op": add.as_op("tm_bench::inline_add").overload,
        "exp": page()["myexp"],
        "float32": torch.float32,
    }
    listed = (
        'exp(inputs=[a], template=[("T", float32), ("U", float32)], grid=(16, 1, 1), '
        "threadgroup=(256, 1, 1), output_shapes=[a.shape], output_dtypes=[float32])"
    )
    assert torch.allclose(eval(listed, names)[0], a.exp())
    assert torch.equal(add(a, a), a + a)
    aten = Call("aten(a, a)", names)
    yield _above("the two-call form", Call(listed, names), aten, GOAL_LISTED, effort)
    yield _above("with named operands", Call("add(a, a)", names), aten, GOAL_OP, effort)
    yield _above("as_op", Call("op(a, a)", names), aten, GOAL_OP, effort)
    if a.is_cuda:
        from benchmarks import triton_add

        names["triton"] = triton_add.add
        assert torch.equal(triton_add.add(a, a), a + a)
        yield _above(
            "a Triton launch, for comparison", Call("triton(a, a)", names), aten, None, effort
        )
