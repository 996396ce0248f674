"""What an operator costs on the `mojo` device, against the same on the CPU."""

from collections.abc import Iterator
from typing import Any

import torch

import torch_mojo
from benchmarks.timing import Call, Effort, Row, compare

SMALL = {
    "add": "a + b",
    "mul by a number": "a * 2.0",
    "add_": "a.add_(b, alpha=1e-9)",
    "exp": "a.exp()",
    "relu": "torch.relu(a)",
    "a == b": "a == b",
    "where": "torch.where(mask, a, b)",
    "sum of all": "a.sum()",
    "sum over the last dimension": "a.sum(-1)",
    "mm": "a @ b",
    "copy_": "a.copy_(b)",
    "empty_like": "torch.empty_like(a)",
    "view": "a.view(-1)",
}
LARGE = ("add", "exp", "relu", "sum of all", "sum over the last dimension", "mm", "copy_")


def _names(side: int, device: str) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(side, side, generator=generator) for _ in range(2))
    moved = {"a": a.to(device), "b": b.to(device), "mask": (a > b).to(device)}
    return {**moved, "torch": torch}


def rows(effort: Effort) -> Iterator[Row]:
    """Time calls on few elements, where a kernel takes next to nothing, and on many."""
    torch_mojo.register_device()
    for group, side, names in (
        ("mojo device: overhead per call, 8 x 8 float32", 8, tuple(SMALL)),
        ("mojo device: 1024 x 1024 float32", 1024, LARGE),
    ):
        for name in names:
            calls = [Call(SMALL[name], _names(side, d)) for d in ("mojo", "cpu")]
            yield compare(group, name, calls[0], "the CPU", calls[1], effort)
    names = [
        {"f": torch.nn.Linear(8, 8).to(d), "x": torch.rand(8, 8).to(d)} for d in ("mojo", "cpu")
    ]
    step = [Call("f(x).sum().backward()", n) for n in names]
    yield compare(
        "mojo device: overhead per call, 8 x 8 float32",
        "Linear(8, 8), forward, sum and backward",
        step[0],
        "the CPU",
        step[1],
        effort,
    )
