"""Ranges, triangles, turned lines, masks and indices, without the CPU."""

from collections.abc import Callable

import pytest
import torch
from against_cpu import agree

G = torch.Generator().manual_seed(0)
X = torch.randn(4, 5, 6, generator=G)
VIEWS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda a: a,
    lambda a: a.transpose(0, 2),
    lambda a: a[:, ::2],
    lambda a: a[..., 1:],
    lambda a: a[:, :0],
    lambda a: a[1, 2, 3],
    lambda a: a[:, :1].expand(4, 3, 6),
]
DTYPES = [
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ranges(dtype: torch.dtype) -> None:
    def made(device: str) -> list[torch.Tensor]:
        given = {"dtype": dtype, "device": device}
        return [
            torch.arange(7, **given),
            torch.arange(3, 50, 4, **given),
            torch.arange(0, **given),
            torch.arange(20_000, **given) if dtype.itemsize > 1 else torch.arange(9, **given),
            *([torch.arange(5, -6, -2, **given)] if dtype != torch.uint8 else []),
            *([torch.arange(0.5, 2, 0.125, **given)] if dtype.is_floating_point else []),
            *(torch.linspace(2, 90, n, **given) for n in (0, 1, 2, 5, 50)),
            torch.eye(3, 5, **given),
            torch.eye(4, **given),
        ]

    for ours, theirs in zip(made("mojo"), made("cpu"), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)
    out = torch.empty(10, dtype=dtype, device="mojo")[::2]
    torch.arange(5, out=out)
    assert out.tolist() == [0, 1, 2, 3, 4]


def test_what_no_range_is_has_torchs_words() -> None:
    for device in ("cpu", "mojo"):
        with pytest.raises(RuntimeError, match="step must be nonzero"):
            torch.arange(0, 3, 0, device=device)
        with pytest.raises(RuntimeError, match="inconsistent with step sign"):
            torch.arange(3, 0, 1, device=device)
        with pytest.raises(RuntimeError, match="non-negative"):
            torch.linspace(0, 1, -1, device=device)


def test_triangles() -> None:
    for view in VIEWS:
        if view(X).dim() < 2:
            continue
        for k in (-9, -2, -1, 0, 1, 3, 9):
            agree(lambda a, v=view, k=k: (v(a).tril(k), v(a).triu(k)), X)
    agree(lambda a: a.clone().tril_(1), X)
    agree(lambda a: a.transpose(0, 1).contiguous().transpose(0, 1).triu_(), X)
    complex_ = torch.complex(X, X + 1)
    agree(lambda a: (a.tril(), a.roll(1, 0), a.flip(0)), complex_)
    for offset in (-2, 0, 1):
        for name in ("tril_indices", "triu_indices"):
            made = getattr(torch, name)(4, 6, offset, device="mojo")
            assert made.cpu().equal(getattr(torch, name)(4, 6, offset))


def test_turned() -> None:
    for view in VIEWS:
        rank = view(X).dim()
        for dims in ([], [0], [-1], [0, 1], list(range(rank))):
            if all(d < rank for d in dims) and rank:
                agree(lambda a, v=view, d=dims: v(a).flip(d), X)
                agree(lambda a, v=view, d=dims: v(a).roll([2] * len(d) or [3], d), X)
                agree(lambda a, v=view, d=dims: v(a).roll([-7] * len(d) or [3], d), X)
    agree(lambda a: a.to(torch.uint8).flip(0), X)
    with pytest.raises(RuntimeError, match="multiple times"):
        X.to("mojo").flip(0, 0)


def test_masks() -> None:
    for view in VIEWS:
        agree(lambda a, v=view: v(a).gt(0).nonzero(), X)
        agree(lambda a, v=view: v(a).masked_select(v(a) > 0), X)
        agree(lambda a, v=view: v(a)[v(a) > 0], X)
    agree(lambda a: a.masked_select(a[0, 0] > 0), X)
    agree(lambda a: a.bfloat16().relu().nonzero(), X)
    assert X.to("mojo").nonzero().stride() == X.nonzero().stride()
    assert torch.zeros(3, device="mojo").nonzero().shape == (0, 1)


PLACES = torch.tensor([[3, 0, -1], [1, 1, 2]])
INDEXED: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    lambda a, i: a[i],
    lambda a, i: a[:, i],
    lambda a, i: a[..., i],
    lambda a, i: a[i, i],
    lambda a, i: a[i, :, i],
    lambda a, i: a[i, 1:, i[0]],
    lambda a, i: a[i.int()],
    lambda a, i: a[i[:0]],
    lambda a, i: a[a[:, 0, 0] > 0],
    lambda a, i: a[a[..., 0] > 0],
    lambda a, i: a[:, a[0, :, 0] > 0],
    lambda a, i: a[0][a[0] > 0],
    lambda a, i: a.transpose(0, 2)[i],
    lambda a, i: a[i[0, 0]],
    lambda a, i: a.index_select(1, i[1]),
    lambda a, i: a[0, 0].index_select(-1, i[1].int()),
    lambda a, i: torch.nn.functional.embedding(i[1], a[0]),
    lambda a, i: torch.nn.functional.embedding(i[1][None], a[1]),
]


@pytest.mark.parametrize("case", range(len(INDEXED)))
def test_reading_at_indices(case: int) -> None:
    agree(INDEXED[case], X, PLACES)
    agree(lambda a, i: INDEXED[case]((a * 10).to(torch.int16).float(), i), X, PLACES)


def _put(a: torch.Tensor, i: torch.Tensor, put: Callable[..., object]) -> torch.Tensor:
    a = a.clone()
    put(a, i)
    return a


def test_writing_at_indices() -> None:
    def each(a: torch.Tensor, i: torch.Tensor) -> list[torch.Tensor]:
        v = a.new_full((), 7)
        one = torch.arange(3.0, device=a.device)

        def masked(x: torch.Tensor, i: torch.Tensor) -> None:
            x[x > 0] = 5

        def rows(x: torch.Tensor, i: torch.Tensor) -> None:
            x[i[0]] = one[:, None, None] + x[i[0]].clone()

        def view(x: torch.Tensor, i: torch.Tensor) -> None:
            x.transpose(0, 2)[i[1]] = v

        def strided(x: torch.Tensor, i: torch.Tensor) -> None:
            x[:, ::2][i[1], i[1]] = one[:, None]

        return [
            _put(a, i, masked),
            _put(a, i, rows),
            _put(a, i, view),
            _put(a, i, strided),
            _put(a, i, lambda x, i: x.index_put_((i, i), v, accumulate=True)),
            _put(a, i, lambda x, i: x.index_put_((i[1],), x[i[1]] * 2, accumulate=True)),
            _put(a, i, lambda x, i: x.index_add_(1, i[1], x[:, :3].clone(), alpha=2)),
            _put(a, i, lambda x, i: x.index_copy_(2, i[1], x[..., :3].clone())),
            a.index_put((i[1],), v),
            a.index_add(0, i[1], a[:3]),
            a.bfloat16().index_add(0, i[1], a[:3].bfloat16()),
        ]

    agree(each, X, PLACES)
    long = torch.randn(40, 100_003, generator=G)
    agree(lambda a, i: a.index_put((i,), a[:3], accumulate=True), long, torch.tensor([5, 5, 39]))
    agree(lambda a, i: a.index_put((i,), a[:3]), long, torch.tensor([5, 1, 39]))


def test_an_index_out_of_range_is_refused() -> None:
    x, i = X.to("mojo"), PLACES.to("mojo")
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 1 with size 5"):
        x[:, i + 6]
    with pytest.raises(IndexError, match="out of range"):
        x.index_select(0, i[0])
    before = x.clone()
    with pytest.raises(IndexError, match="out of bounds"):
        x[i + 9] = 0
    assert x.equal(before)


def test_embeddings_gradient() -> None:
    def gradient(w: torch.Tensor, i: torch.Tensor, padding: int | None) -> torch.Tensor:
        w = w.detach().requires_grad_()
        made = torch.nn.functional.embedding(i, w, padding)
        (made * made).sum().backward()
        assert w.grad is not None
        return w.grad

    w = torch.randn(10, 8, generator=G)
    for padding in (None, 3):
        agree(lambda w, i, p=padding: gradient(w, i, p), w, torch.tensor([[3, 3, 0], [9, 3, 1]]))
        agree(
            lambda w, i, p=padding: gradient(w, i, p),
            *(w.bfloat16(), torch.tensor([[3, 3, 0], [9, 3, 1]])),
            tolerance=2e-2,
        )


@pytest.mark.slow
def test_sets() -> None:
    i = torch.tensor([[5, 3, 3, 8], [5, 5, 0, 8]])
    agree(lambda i: torch.unique(i, return_inverse=True, return_counts=True), i)
    agree(lambda i: torch.unique(i), i)
    agree(lambda i: torch.unique_consecutive(i, return_inverse=True, return_counts=True), i)
    agree(lambda i: torch.isin(i, i[0, :2]), i)
    agree(lambda i: torch.repeat_interleave(i[0]), i)
    agree(lambda i: i[0].repeat_interleave(i[1]), i)
    agree(lambda i: i.cumsum(1), i)
    agree(lambda a: (a.cumsum(0), a.cumsum(-1)), X)


def test_torchs_decompositions() -> None:
    x = torch.tensor([[0.0, -1.5, float("nan"), 3], [float("inf"), float("-inf"), 2.5, -0.0]])
    y = torch.tensor([1.0, 2, -3, 0.5])
    agree(lambda a: (a.nan_to_num(), a.nan_to_num(1, 2, 3), a.clone().nan_to_num_()), x)
    agree(lambda a, b: (a.logaddexp(b), a.heaviside(b), a.sinc()), x[:1, [0, 1, 3]], y[:3])
    agree(lambda a: torch.nn.functional.softshrink(a) + torch.nn.functional.hardshrink(a), x)
    agree(
        lambda a: (a[:, :2].trace(), a.nansum(), a.count_nonzero(0), a.prod(), a.prod(1)), x[:, :2]
    )
    agree(lambda a: torch.addmv(a[0], a.t() @ a, a[1]), torch.randn(3, 4, generator=G))
    agree(lambda a: a.logit(1e-3), torch.rand(5, generator=G))
    for mode in ("reflect", "replicate"):
        agree(lambda a, m=mode: torch.nn.functional.pad(a, (1, 2), mode=m), X)
        agree(lambda a, m=mode: torch.nn.functional.pad(a[None], (1, 2, 3, 1), mode=m), X)
    out = torch.empty(0, device="mojo")
    torch.logaddexp(y.to("mojo"), y.to("mojo"), out=out)
    torch.testing.assert_close(out.cpu(), torch.logaddexp(y, y))
    assert X.to("mojo").equal(X.to("mojo")) and not X.to("mojo").equal(X.to("mojo") + 1)


def test_tensors_of_two_devices_are_refused() -> None:
    x, i = X.to("mojo:0"), torch.tensor([0, 2], device="mojo:0")
    other, j = X.to("mojo:1"), i.to("mojo:1")
    for call in (
        lambda: x.index_add(0, i, other[:2]),
        lambda: x.index_copy(0, i, other[:2]),
        lambda: x.index_select(0, j),
        lambda: x.masked_select(other > 0),
        lambda: torch.nn.functional.embedding(j, x[0]),
        lambda: torch.where(x > 0, x, other[0, 0, 0]),
        lambda: x * other[0, 0, 0].double(),
    ):
        with pytest.raises(RuntimeError, match="two devices"):
            call()
