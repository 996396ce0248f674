"""Mutation and aliasing: what the caller's tensors see afterwards."""

from __future__ import annotations

import pytest
import torch
from compiles import Compiles
from packing import compile_max


def test_mutation_and_overlapping_inputs(compiles: Compiles) -> None:
    """U34: compiled for separate inputs, then called with overlapping views."""

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x *= 2
        x += 0
        return x + y

    compiled = compile_max(f)
    x, y = torch.ones(4), torch.ones(4)
    version = x._version
    assert compiled(x, y).tolist() == [3, 3, 3, 3]
    assert x.tolist() == [2, 2, 2, 2] and x._version > version
    base = torch.ones(8)
    assert compiled(base[:4], base[2:6]).tolist() == [4, 4, 3, 3]
    assert base.tolist() == [2, 2, 2, 2, 1, 1, 1, 1]
    base = torch.ones(8)  # neighbours that do not overlap
    assert compiled(base[:4], base[4:]).tolist() == [3, 3, 3, 3]
    assert base.tolist() == [2, 2, 2, 2, 1, 1, 1, 1]
    same = torch.ones(4)
    assert compiled(same, same).tolist() == [4, 4, 4, 4]
    strided = torch.zeros(2, 4) + 1
    assert compiled(strided[:, ::2].reshape(4), torch.ones(4)).tolist() == [3, 3, 3, 3]


@pytest.mark.slow
def test_mutation_of_a_strided_input() -> None:
    """What is written lands in the strided memory, not in a copy (U9's kind)."""

    def f(x: torch.Tensor) -> torch.Tensor:
        x.mul_(3).add_(1)
        return x.sum() + 1

    base = torch.arange(8.0).reshape(2, 4)
    got = compile_max(f)(base[:, ::2])
    assert base.tolist() == [[1, 1, 7, 3], [13, 5, 19, 7]]
    assert got.item() == 41


@pytest.mark.slow
def test_outputs_are_apart(compiles: Compiles) -> None:
    """U36: views of inputs stay views; equal outputs and copies are memory of their own."""

    def f(x: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
        w = v * 2
        return (
            x.view(-1),
            v * 2,
            w,
            w.view(-1),
            v.clone(),
            v.to(torch.float32, copy=True),
            v * 1,
            w[1:],
            v + 5,
        )

    x, v = torch.ones(2, 2), torch.tensor([1.0, 2.0])
    got = compile_max(f)(x, v)
    got[0].mul_(3)
    assert x.tolist() == [[3, 3], [3, 3]]
    got[1].add_(1)
    assert got[1].tolist() == [3, 5] and got[2].tolist() == [2, 4]
    got[2].add_(100)  # w, and w[1:] and w.view(-1) see it
    assert got[3].tolist() == [102, 104] and got[7].tolist() == [104]
    for copy in (got[4], got[5], got[6]):
        assert copy.tolist() == [1, 2]
        copy.zero_()
    assert v.tolist() == [1, 2] and got[8].tolist() == [6, 7]
    assert len(compiles) == 1


def test_identity() -> None:
    """A function that returns its input returns that very tensor."""
    x = torch.ones(3)
    assert compile_max(lambda x: x)(x) is x


@pytest.mark.slow
def test_a_call_leaves_earlier_results_alone() -> None:
    """Results of two calls are different memory."""
    compiled = compile_max(lambda x: (x * 2 + 1).sqrt())
    first = compiled(torch.full((4,), 4.0))
    second = compiled(torch.full((4,), 12.0))
    assert first.tolist() == [3, 3, 3, 3] and second.tolist() == [5, 5, 5, 5]
