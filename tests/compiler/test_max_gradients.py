"""Gradients that come in other layouts than results went out, and results of which only some are used."""

from __future__ import annotations

import pytest
import torch
from compiles import Compiles
from packing import compile_max, same


@pytest.mark.slow
def test_layouts_of_incoming_gradients(compiles: Compiles) -> None:
    """U26 and U30: pieces of cat's gradient, one number expanded, transposed; one result of three."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x * 3, x * x, x.argmax(1)

    compiled = compile_max(f)
    x = torch.arange(6.0).view(2, 3).requires_grad_()
    z = (torch.arange(6.0).view(2, 3) - 2).requires_grad_()
    w = torch.arange(12.0).view(2, 6)
    loss = (torch.cat([compiled(x)[0], compiled(z)[0]], 1) * w).sum()
    for_x, for_z = torch.autograd.grad(loss, (x, z))
    assert for_x.tolist() == [[0, 3, 6], [18, 21, 24]]
    assert for_z.tolist() == [[9, 12, 15], [27, 30, 33]]
    (expanded,) = torch.autograd.grad(compiled(x)[0].sum(), x)
    assert expanded.tolist() == [[3, 3, 3], [3, 3, 3]]
    (turned,) = torch.autograd.grad((compiled(x)[0].t() * w[:, :3].reshape(3, 2)).sum(), x)
    assert turned.tolist() == [[0, 6, 21], [3, 18, 24]]
    (second,) = torch.autograd.grad(compiled(x)[1].sum(), x)
    assert second.tolist() == [[0, 2, 4], [6, 8, 10]]
    (strided,) = torch.autograd.grad(compiled(x)[1][:, ::2].sum(), x)
    assert strided.tolist() == [[0, 0, 4], [6, 0, 10]]
    both = compiled(x)
    (both_of,) = torch.autograd.grad(both[0].sum() + both[1].sum(), x)
    assert both_of.tolist() == [[3, 5, 7], [9, 11, 13]]
    index = compiled(x)[2]
    assert index.tolist() == [2, 2] and not index.requires_grad
    same(compiled(x), f(x), "results")
    assert len(compiles) == 2
