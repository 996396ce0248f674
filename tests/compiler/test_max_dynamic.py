"""Sizes that change: batch 0, 1 and n, compound sizes, sizes as values and as results."""

from __future__ import annotations

import pytest
import torch
from compiles import Compiles
from packing import compile_max, same


def test_batches(compiles: Compiles) -> None:
    """U21: 1, 2, 5, 0 and 1 again; at most one compile each for 0, 1 and many."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return 2 * x + 1

    compiled = compile_max(f)
    for rows in (1, 2, 5, 0, 1, 7):
        x = torch.randn(rows, 3)
        same(compiled(x), f(x), f"{rows} rows")
    assert len(compiles) <= 3


def test_sizes_as_results(compiles: Compiles) -> None:
    """U23: a returned size is a Python int."""
    compiled = compile_max(
        lambda x: (x + 1, x.shape[0], x.shape[0] * 2 - 1, x * x.shape[0]), dynamic=True
    )
    for rows in (4, 7):
        x = torch.ones(rows, 3)
        got = compiled(x)
        assert (
            type(got[1]) is int
            and got[1] == rows
            and type(got[2]) is int
            and got[2] == 2 * rows - 1
        )
        assert got[3].tolist() == [[rows] * 3] * rows
    assert len(compiles) == 1


@pytest.mark.slow
def test_compound_sizes(compiles: Compiles) -> None:
    """2*s, s//2, s+t, s-1 and a size that no input has."""

    def f(x: torch.Tensor, y: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
        joined = torch.cat([x, y], 0)
        return (
            joined * 2,
            joined.sum(1),
            torch.cat([x, x], 0).view(-1, 2, 4).sum(1),
            x.view(x.shape[0] // 2, 8) + 1,
            x[1:] - x[:-1],
            y[2:].sum(0) + 1,
            y[: y.shape[0] // 2] * 3,
            torch.zeros(n, 2) + 1,
            x.unsqueeze(1) + y.unsqueeze(0),
            x.mean(0),
            y.var(0),
        )

    compiled = compile_max(f, dynamic=True)
    for a, b, n in ((6, 5, 3), (8, 7, 9), (12, 9, 4)):
        args = torch.randn(a, 4), torch.randn(b, 4), n
        same(compiled(*args), f(*args), f"{a}, {b}, {n}")
    assert len(compiles) == 1


@pytest.mark.slow
def test_a_size_named_twice(compiles: Compiles) -> None:
    """Two inputs of one size, an input whose size is a product, and one that is empty."""

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y).sum(1) + x.shape[1] - y.shape[0]

    compiled = compile_max(f, dynamic=True)
    for rows, cols in ((3, 4), (5, 2), (0, 4), (4, 0)):
        args = torch.randn(rows, cols), torch.randn(rows, cols)
        same(compiled(*args), f(*args), f"{rows}x{cols}")
    assert len(compiles) <= 1


def test_sizes_that_torch_knows_to_be_the_same(compiles: Compiles) -> None:
    """(n + 1) // 2 + n // 2 is n: torch has a guard for it, MAX an assertion."""

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = torch.cat([x[::2], x[1::2]])
        return z + x, torch.where(x > 0, z, y), z * y[:1].expand_as(z), (z + x).sum(0)

    compiled = compile_max(f, dynamic=True)
    for rows in (6, 7, 3, 10):
        x, y = torch.randn(rows, 3), torch.randn(rows, 3)
        for found, wanted in zip(compiled(x, y), f(x, y), strict=True):
            same(found, wanted, f"{rows} rows")
    assert len(compiles) <= 2  # torch may ask for even and odd
