"""Mojo operators inside of compiled functions: vmap, autocast, gradients of every layout, elements far apart."""

from __future__ import annotations

import ops
import torch
from compiles import Compiles
from packing import check, compile_max


def test_vmap_autocast_and_far_elements(compiles: Compiles) -> None:
    """U31, U32, U18: as in eager torch, in one graph."""
    storage = torch.empty(2**31 + 1, dtype=torch.int8)
    storage[0], storage[1], storage[2**31] = 7, 3, 9
    far = storage.as_strided((2,), (2**31,))

    def takes(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return ops.take(x, index)

    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    y, z = torch.tensor([10.0, 20.0, 30.0]), torch.tensor([10.0, 20.0])
    index = torch.tensor([1, 0])
    check(
        [
            ("vmap, second unbatched", lambda x, y, *_: torch.vmap(ops.mul, (0, None))(x, y)),
            ("vmap, first unbatched", lambda x, y, *_: torch.vmap(ops.mul, (None, 0))(y, x)),
            ("vmap over dim 1", lambda x, y, z, *_: torch.vmap(ops.mul, (1, None))(x, z)),
            ("vmap into dim 1", lambda x, y, *_: torch.vmap(ops.mul, (0, None), 1)(x, y)),
            ("autocast", lambda x, y, z, index, far: takes(z, index)),
            ("autocast of float64", lambda x, y, z, index, far: takes(z.double(), index)),
            ("no autocast", lambda x, y, z, index, far: ops.take(z, index)),
            ("far apart", lambda x, y, z, index, far: ops.double(far)),
        ],
        *(x, y, z, index, far),
    )
    assert len(compiles) == 1


def test_gradients_that_are_views(compiles: Compiles) -> None:
    """U26: what cat and sum hand to a Mojo backward is no tensor of its own."""
    x, z = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    w = torch.arange(12.0).reshape(2, 6)
    three = torch.full((2, 3), 3.0)

    def f(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([ops.mul(x, three), ops.mul(z, three)], 1)
        return (joined * w).sum() + ops.mul(x, three).sum() + ops.mul(z, three).t()[1:].sum()

    compile_max(f)(x, z).backward()
    assert x.grad is not None and z.grad is not None
    assert x.grad.tolist() == [[3, 6, 9], [21, 24, 27]]
    assert z.grad.tolist() == [[9, 15, 18], [27, 33, 36]]
    assert len(compiles) == 2
