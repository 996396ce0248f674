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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("rows", "inner", "columns", "ends"),
    [
        (13, 7, 5, [3, 3, 9, 11]),
        (64, 32, 33, [10, 20, 64, 64]),
        (0, 4, 4, [0, 0, 0, 0]),
        (9, 8, 40, [0, 0, 9, 9]),
    ],
)
def test_grouped_products(
    dtype: torch.dtype, rows: int, inner: int, columns: int, ends: list[int]
) -> None:
    """Each row times its group's matrix; rows behind the last group are zero."""
    from torch_mojo.aten.decompositions import DECOMPOSITIONS

    x, w = values(rows, inner).to(dtype), values(4, columns, inner).to(dtype).mT
    wanted, first = torch.zeros(rows, columns, dtype=torch.float64), 0
    for group, end in enumerate(ends):
        wanted[first:end] = x[first:end].double() @ w[group].double()
        first = end
    for kind in (torch.int32, torch.int64):
        found = DECOMPOSITIONS[aten._grouped_mm.default](x, w, torch.tensor(ends, dtype=kind))
        assert found.dtype == dtype
        error = 3e-2 if dtype == torch.bfloat16 else 1e-5
        torch.testing.assert_close(found.double(), wanted, rtol=error, atol=error)
