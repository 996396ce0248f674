"""Scalars: dtype, precision and rounding of constants, and numbers that change in every call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from compiles import Compiles
from packing import compile_max, same


def test_constants_keep_their_precision() -> None:
    """Each result is the exact value (the kinds of U40 and U44), in one graph."""

    def f(
        d: torch.Tensor, i: torch.Tensor, s: torch.Tensor, z: torch.Tensor, b: list[torch.Tensor]
    ) -> tuple:
        return (
            d.sub(1, alpha=2),
            i * 2.0,
            s + z,
            d + 0.1,
            d * 1e300,
            i + 2**53 + 1,
            b[0] * b[1] + b[2],
            i.reshape(1, 2).expand(3, 2).sum(1),
            i[0],
            s / 3,
        )

    b = [torch.tensor([v], dtype=torch.bfloat16) for v in (1.0078125, 1.0234375, -1.03125)]
    args = (torch.tensor([0.5], dtype=torch.float64), torch.tensor([1, 2]), torch.tensor([1.0]))
    got = compile_max(f)(*args, torch.tensor(0.5, dtype=torch.float64), b)
    assert got[0].dtype == torch.float64 and got[0].tolist() == [-1.5]
    assert got[1].dtype == torch.float32 and got[1].tolist() == [2.0, 4.0]
    assert got[2].dtype == torch.float32 and got[2].tolist() == [1.5]
    assert got[3].tolist() == [0.5 + 0.1]
    assert got[4].tolist() == [0.5 * 1e300]
    assert got[5].tolist() == [2**53 + 2, 2**53 + 3]
    assert got[6].dtype == torch.bfloat16 and got[6].tolist() == [0.0]
    assert got[7].tolist() == [3, 3, 3]
    assert got[8].dim() == 0 and got[8].item() == 1
    assert got[9].tolist() == (torch.tensor([1.0]) / 3).tolist()


@pytest.mark.slow
def test_a_float_that_changes(compiles: Compiles) -> None:
    """Ten learning rates are at most two or three compiles (U38), and each call uses its own."""

    def f(x: torch.Tensor, s: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x * s, x * (s * 3.0) - s, x.double() + s

    compiled = compile_max(f)
    x = torch.tensor([1.0, -2.0])
    for k in range(10):
        s = 0.1 + k
        same(compiled(x, s), f(x, s), f"s={s}")
    assert 1 <= len(compiles) <= 3


@pytest.mark.slow
def test_an_int_that_changes(compiles: Compiles) -> None:
    """An int used as a value compiles twice at most (U20), also when it is negative."""

    def f(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x * k, x + k * 2 - 1, x.float() / k

    compiled = compile_max(f)
    x = torch.tensor([1, -2])
    for k in (2, 3, -4, 5, -600):
        same(compiled(x, k), f(x, k), f"k={k}")
    assert 1 <= len(compiles) <= 2


@pytest.mark.slow
def test_a_tensor_that_changes(compiles: Compiles) -> None:
    """A 0-d tensor is one compile."""

    def f(x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * s, s + 1

    compiled = compile_max(f)
    for k in range(4):
        args = torch.tensor([1.0, 2.0]), torch.tensor(0.5 + k, dtype=torch.float64)
        same(compiled(*args), f(*args), f"k={k}")
    assert len(compiles) == 1


@pytest.mark.slow
def test_close_constants_are_two_graphs(compiles: Compiles) -> None:
    """Graphs that differ in the 16th digit of a constant are not one; equal ones are (U57, U64)."""
    x = torch.tensor([1.0], dtype=torch.float64)

    def plus(f: Callable[[torch.Tensor], torch.Tensor]) -> float:
        return compile_max(f)(x).item()

    near = 0.1 + 2**-40
    assert plus(lambda x: x + 0.1) == 1.1
    assert plus(lambda x: x + near) == 1.0 + near
    assert plus(lambda y: y + 0.1) == 1.1
    assert len(compiles) == 2
