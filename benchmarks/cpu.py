"""What a call costs on the CPU: overhead, gradients, bandwidth."""

from collections.abc import Iterator
from typing import Any

import torch

import torch_mojo
from benchmarks import ops
from benchmarks.timing import Call, Effort, Row, compare

ATEN = "torch.ops.aten.add.Tensor"
PYTHON = "torch.library.custom_op, Python body"
SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)


def overhead(effort: Effort) -> Iterator[Row]:
    """Time calls on 16 floats, where a kernel takes next to nothing."""
    group = "overhead per call, 16 floats"
    names: dict[str, Any] = {
        "a": torch.rand(16),
        "b": torch.rand(16),
        "aten": torch.ops.aten.add.Tensor,
        "ours": torch.ops.tm_bench.add.default,
        "with_backward": torch.ops.tm_bench.add_with_backward.default,
        "op": ops.add,
        "python": torch.ops.tm_bench.python_add.default,
    }
    aten = Call("aten(a, b)", names)
    ours = Call("ours(a, b)", names)
    assert torch.equal(ops.add(names["a"], names["b"]), names["a"] + names["b"])
    yield compare(group, "torch.ops.tm_bench.add.default", ours, ATEN, aten, effort, goal=1.0)
    with_backward = Call("with_backward(a, b)", names)
    name = "with a backward, no gradient needed"
    yield compare(group, name, with_backward, ATEN, aten, effort, goal=1.5)
    yield compare(group, "the MojoOp called", Call("op(a, b)", names), ATEN, aten, effort)
    python = Call("python(a, b)", names)
    yield compare(group, "torch.ops.tm_bench.add.default", ours, PYTHON, python, effort)
    yield from _library(group, ours, names, effort)


def _library(group: str, ours: Call, names: dict[str, Any], effort: Effort) -> Iterator[Row]:
    """Compare with MAX's own way to call the same kernel from torch."""
    theirs_name = "MAX's CustomOpLibrary"
    try:
        from max.experimental.torch import CustomOpLibrary

        a, b = torch.rand(16), torch.rand(16)
        out = torch.empty(16)
        theirs = CustomOpLibrary(ops.KERNELS)
        theirs.add(out, a, b)
        assert torch.equal(out, a + b)
    except Exception as e:
        reason = f"{type(e).__name__}: {e}".splitlines()[0]
        yield Row(group, theirs_name, "s/call", None, note=reason)
        return
    same_library = torch_mojo.CustomOpLibrary(ops.KERNELS)
    names = names | {"out": out, "theirs": theirs.add, "same": same_library.add}
    call = Call("theirs(out, a, b)", names)
    name = "torch.ops.tm_bench.add.default"
    yield compare(group, name, ours, theirs_name, call, effort, goal=0.01)
    same = Call("same(out, a, b)", names)
    yield compare(group, "torch_mojo.CustomOpLibrary", same, theirs_name, call, effort)


def gradients(effort: Effort) -> Iterator[Row]:
    """Time calls that do need a gradient."""
    group = "with gradients, 16 floats"
    names: dict[str, Any] = {
        "a": torch.rand(16, requires_grad=True),
        "b": torch.rand(16, requires_grad=True),
        "aten": torch.ops.aten.add.Tensor,
        "ours": torch.ops.tm_bench.add_with_backward.default,
        "python": torch.ops.tm_bench.python_add_with_backward.default,
        "g": torch.ones(16),
        "grad": torch.autograd.grad,
    }
    inputs = [names["a"], names["b"]]
    grads = torch.autograd.grad(ops.add_with_backward(*inputs).sum(), inputs)
    assert all(torch.equal(g, torch.ones(16)) for g in grads)
    forward = "{0}(a, b)"
    both = "grad({0}(a, b), (a, b), g)"
    for name, text in {"forward": forward, "forward and backward": both}.items():
        ours, aten, python = (Call(text.format(f), names) for f in ("ours", "aten", "python"))
        yield compare(group, name, ours, ATEN, aten, effort)
        yield compare(group, name, ours, PYTHON, python, effort, goal=1.0)


def bandwidth(effort: Effort) -> Iterator[Row]:
    """Time an elementwise addition of float32 vectors of growing length."""
    group = f"float32 a + b, {torch.get_num_threads()} threads"
    for n in SIZES:
        names: dict[str, Any] = {
            "a": torch.rand(n),
            "b": torch.rand(n),
            "aten": torch.ops.aten.add.Tensor,
            "ours": torch.ops.tm_bench.add.default,
        }
        calls = [Call(f"{f}(a, b)", names) for f in ("ours", "aten")]
        goal = 1.1 if n == SIZES[-1] else None
        name = f"10^{len(str(n)) - 1} floats"
        yield compare(group, name, calls[0], ATEN, calls[1], effort, goal=goal, size=12 * n)


def rows(effort: Effort) -> Iterator[Row]:
    """Return all rows of the CPU."""
    yield from overhead(effort)
    yield from gradients(effort)
    yield from bandwidth(effort)
