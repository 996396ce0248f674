"""Reductions and matrix products, without the CPU."""

import pytest
import torch
from against_cpu import agree

F = torch.nn.functional
X = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0))
DIMS = [0, 1, 2, -1, (0, 1), (0, 2), (1, 2), (0, 1, 2)]


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin"])
def test_over_dimensions(name: str) -> None:
    function = getattr(torch, name)
    for dim in DIMS:
        for keep in (False, True):
            for view in (
                lambda a: a,
                lambda a: a.transpose(0, 2),
                lambda a: a[:, ::2],
                lambda a: a[..., 1:],
            ):
                agree(lambda a, v=view, d=dim, k=keep: function(v(a), dim=d, keepdim=k), X)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places(name: str) -> None:
    function = getattr(torch, name)
    for dim in (0, 1, 2):
        agree(lambda a, d=dim: function(a, dim=d), X)
        agree(lambda a, d=dim: function(a.transpose(0, 2), dim=d, keepdim=True), X)
    agree(function, X)
    same = torch.tensor([[1.0, 3, 3], [float("nan"), 2, float("nan")]])
    agree(lambda a: function(a, dim=1), same)


def test_all_of_it() -> None:
    for function in (torch.sum, torch.mean, torch.max, torch.min):
        for x in (
            X,
            X.transpose(0, 1),
            torch.tensor(3.0),
            torch.randn(100_000),
            torch.tensor([1, float("nan")]),
        ):
            agree(function, x, tolerance=1e-4)
    agree(torch.sum, torch.empty(0, 3))
    agree(lambda a: a.sum(0), torch.empty(0, 3))
    agree(lambda a: a.max(1), X)
    agree(lambda a: a.min(0, keepdim=True), X)
    with pytest.raises((RuntimeError, IndexError)):
        torch.empty(0, device="mojo").max()
    agree(lambda a: a.sum(0), torch.randn(500, 300), tolerance=1e-4)
    agree(lambda a: a.sum(1), torch.randn(500, 300), tolerance=1e-4)


@pytest.mark.slow
def test_other_dtypes() -> None:
    agree(lambda a: ((a > 0).any(1), (a > -9).all(), (a > 0).sum(), (a > 3).any()), X)
    agree(lambda a: ((a * 10).int().sum(0), (a * 10).long().amax(1)), X)
    agree(lambda a: (a.half().sum(), a.bfloat16().mean(0)), X, tolerance=1e-2)
    agree(lambda a: a.sum(0, dtype=torch.float64), X)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (3, 4, 5), (7, 64, 33), (100, 200, 130), (1, 64, 64), (6, 0, 4)]
)
def test_products(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    a, b = torch.randn(m, k), torch.randn(k, n)
    agree(torch.mm, a, b, tolerance=1e-4)
    agree(lambda x, y: x @ y.t(), a, torch.randn(n, k), tolerance=1e-4)
    agree(lambda x, y: x.t() @ y, torch.randn(k, m), b, tolerance=1e-4)
    agree(torch.addmm, torch.randn(n), a, b, tolerance=1e-4)
    agree(
        lambda c, x, y: torch.addmm(c, x, y, beta=0.5, alpha=2),
        torch.randn(m, 1),
        a,
        b,
        tolerance=1e-4,
    )
    agree(
        lambda c, x, y: torch.addmm(c, x, y, beta=0),
        torch.full((m, 1), float("nan")),
        a,
        b,
        tolerance=1e-4,
    )
    agree(lambda c, x, y: c.clone().addmm_(x, y), torch.randn(m, n), a, b, tolerance=1e-4)
    agree(torch.bmm, torch.randn(3, m, k), torch.randn(3, k, n), tolerance=1e-4)
    agree(
        torch.baddbmm,
        torch.randn(3, 1, n),
        torch.randn(3, m, k),
        torch.randn(3, k, n),
        tolerance=1e-4,
    )
    agree(F.linear, torch.randn(2, m, k), torch.randn(n, k), torch.randn(n), tolerance=1e-4)


def test_softmax_and_norms() -> None:
    for dim in (0, 1, -1):
        agree(lambda a, d=dim: (a.softmax(d), a.log_softmax(d)), X)

    def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        leaves = [t.clone().requires_grad_() for t in (x, w, b)]
        out = F.layer_norm(leaves[0], (6,), leaves[1], leaves[2]).softmax(-1).log_softmax(0)
        (out * out).sum().backward()
        return out.detach(), *(t.grad for t in leaves)

    agree(layer, X, torch.randn(6), torch.randn(6), tolerance=1e-3)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(training: bool) -> None:
    def batch(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        leaves = [t.clone().requires_grad_() for t in (x, w, b)]
        mean, var = torch.zeros_like(w), torch.ones_like(w)
        out = F.batch_norm(leaves[0], mean, var, leaves[1], leaves[2], training=training)
        (out * out).sum().backward()
        return out.detach(), mean, var, *(t.grad for t in leaves)

    agree(batch, torch.randn(3, 6, 4, 4), torch.randn(6), torch.randn(6), tolerance=1e-3)


def test_batch_norm_in_two_steps() -> None:
    """As the CPU: running statistics after one step, and batches counted."""
    layer = torch.nn.BatchNorm1d(2).to("mojo")
    layer(torch.tensor([[0.0, 0], [2, 4]], device="mojo"))
    torch.testing.assert_close(layer.running_mean.cpu(), torch.tensor([0.1, 0.2]))
    torch.testing.assert_close(layer.running_var.cpu(), torch.tensor([1.1, 1.7]))
    layer(torch.tensor([[0.0, 0], [2, 4]], device="mojo"))
    assert layer.num_batches_tracked.item() == 2


def test_pieces() -> None:
    agree(lambda a: torch.cat([a, a[:2]], 0), X)
    agree(lambda a: (torch.cat([a, a], -1), torch.stack([a, a], 1)), X)
    agree(lambda a: a.reshape(-1) @ a.reshape(-1), X, tolerance=1e-4)
