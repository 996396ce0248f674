"""Columns, strided views, masked_scatter, replication's gradient, distances, histograms and searches."""

import pytest
import torch
from against import agree, strided, traces, values

from torch_mojo.aten.decompositions import DECOMPOSITIONS

aten = torch.ops.aten
WINDOWS = [([2, 3], [1, 1], [0, 0], [1, 1]), ([3, 2], [2, 1], [1, 2], [2, 1])]


def test_columns() -> None:
    torch.manual_seed(0)
    for x in (values(2, 3, 7, 8), strided(values(2, 3, 7, 8)), values(3, 7, 8)):
        for windows in WINDOWS:
            agree(aten.im2col.default, x, *windows)
            columns = torch.randn_like(aten.im2col(x, *windows))
            agree(aten.col2im.default, columns, [7, 8], *windows, tolerance=1e-5)


def test_strided_views() -> None:
    x = values(6, 7)
    agree(aten.as_strided.default, x, [3, 4], [7, 2], 5)
    agree(aten.as_strided_copy.default, x[2:], [3, 2, 2], [1, 0, 4], 16)
    agree(aten.as_strided_scatter.default, x, values(3, 4), [3, 4], [7, 2], 5)
    view, copy = (
        DECOMPOSITIONS[o] for o in (aten.as_strided.default, aten.as_strided_copy.default)
    )
    assert view(x.t(), [3], [1]) is NotImplemented
    for whole in (x, x.t(), x[1:]):
        assert view(whole, list(whole.shape), list(whole.stride())) is NotImplemented
        at = whole.storage_offset()
        assert view(whole, list(whole.shape), list(whole.stride()), at) is NotImplemented
        found = copy(whole, list(whole.shape), list(whole.stride()))
        assert torch.equal(found, whole) and found.data_ptr() != whole.data_ptr()
    assert view(x, [5, 7], [7, 1], 7) is not NotImplemented


def test_masked_scatter() -> None:
    x = values(4, 5)
    mask = torch.rand(4, 5) > 0.5
    agree(aten.masked_scatter.default, x, mask, values(30))
    agree(aten.masked_scatter.default, strided(x), mask[:1], values(5, 6))
    agree(aten.masked_scatter.default, x, mask & False, values(0))
    with pytest.raises(Exception, match="out of range"):
        DECOMPOSITIONS[aten.masked_scatter.default](x, mask | True, values(3))


@pytest.mark.parametrize("dims", [2, *[pytest.param(d, marks=pytest.mark.slow) for d in (1, 3)]])
def test_replication(dims: int) -> None:
    padding = [1, 2, 0, 3, 2, 1][: 2 * dims]
    x = values(2, 3, *(4, 5, 6)[:dims])
    grad = torch.randn_like(getattr(aten, f"replication_pad{dims}d")(x, padding))
    back = getattr(aten, f"replication_pad{dims}d_backward").default
    agree(back, grad, x, padding, tolerance=1e-6)


def test_distances() -> None:
    a, b = torch.randn(2, 5, 3), torch.randn(2, 4, 3)
    b[:, 1] = a[:, 1]
    for p in (0.0, 1.0, 1.5, 2.0, 3.0, float("inf")):
        agree(aten._cdist_forward.default, a, b, p, None, tolerance=1e-5)
        far = aten._cdist_forward(a, b, p, None)
        agree(aten._cdist_backward.default, torch.randn_like(far), a, b, p, far, tolerance=1e-5)
        agree(aten._pdist_forward.default, a[0], p, tolerance=1e-5)


def test_histogram() -> None:
    x = torch.randn(4, 50)
    for bins, low, high in ((10, -1, 2), (7, 0, 0), (3, -0.5, 0.25)):
        agree(aten.histc.default, x, bins, low, high)
    agree(aten.histc.default, torch.ones(5), 4)


def test_traces_with_symbolic_sizes() -> None:
    def run(x: torch.Tensor) -> list[torch.Tensor]:
        columns = aten.im2col.default(x[None], [2, 2], [1, 1], [0, 0], [1, 1])
        back = aten.col2im.default(
            columns, [x.shape[1], x.shape[2]], [2, 2], [1, 1], [0, 0], [1, 1]
        )
        return [columns, back, x.masked_scatter(x > 0, x * 2)]

    traces(run, (values(3, 4, 5),), (values(2, 6, 7),))


def test_what_is_left_to_torch() -> None:
    x = values(3, 4).long()
    assert DECOMPOSITIONS[aten._cdist_forward.default](x, x, 2.0, None) is NotImplemented


def test_search() -> None:
    rows = values(3, 9).sort(-1)[0]
    x = values(3, 5)
    x[0, 0] = float("nan")
    for right in (False, True):
        agree(aten.searchsorted.Tensor, rows, x, right=right)
        agree(aten.searchsorted.Tensor, rows[0], x.reshape(3, 5, 1), right=right)
        agree(aten.bucketize.Tensor, x, rows[1], right=right, out_int32=True)
    order = torch.randperm(9)
    agree(aten.searchsorted.Tensor, rows[0][order], x, sorter=order.argsort(), side="right")
