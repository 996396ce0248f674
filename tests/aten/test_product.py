"""Sums of products."""

import pytest
import torch
from against import DTYPES, agree, strided, values

aten = torch.ops.aten


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.is_floating_point])
def test_addbmm(dtype: torch.dtype) -> None:
    x, a, b = (values(*s).to(dtype) for s in ((4, 5), (3, 4, 2), (3, 2, 5)))
    halves = dtype in (torch.float16, torch.bfloat16)
    for kwargs in ({}, {"beta": 0.5, "alpha": 2.0}):
        agree(aten.addbmm.default, x, a, b, tolerance=4e-2 if halves else 1e-5, **kwargs)
    agree(aten.addbmm.default, x[0], strided(a), strided(b), tolerance=4e-2 if halves else 1e-5)
    agree(aten.addbmm.default, x, a[:0], b[:0], beta=2.0, tolerance=1e-2)


def test_addbmm_looks_at_nothing_that_beta_leaves_out() -> None:
    x, a, b = torch.full((4, 5), float("nan")), values(3, 4, 2), values(3, 2, 5)
    agree(aten.addbmm.default, x, a, b, beta=0, tolerance=1e-5)


def test_trilinear() -> None:
    a, w, b = values(7, 3), values(4, 3, 2), values(7, 2)
    agree(aten._trilinear.default, a, w, b, [1, 3], [0], [1, 2], [2, 3], tolerance=1e-5)
    agree(aten._trilinear.default, a, w, b, [1, 3], [0], [1, 2], [2], tolerance=1e-5)
    agree(aten._trilinear.default, a, w, b, [1, 3], [0], [1, 2], [], tolerance=1e-5)
    agree(aten._trilinear.default, a[:1], w, b, [1, 3], [0], [1, 2], [2, 3], tolerance=1e-5)
