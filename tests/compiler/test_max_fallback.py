"""What does not go into a MAX graph: islands, random numbers, indices, errors, options."""

from __future__ import annotations

import warnings

import pytest
import torch
from compiles import Compiles
from packing import compile_max, same

from torch_mojo.compiler.backend import Options, max_backend
from torch_mojo.compiler.explain import explain
from torch_mojo.errors import UnsupportedOpError


def mixed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two islands around a function that MAX does not have."""
    a = torch.sin(x) * 2 + 1
    s = torch.special.airy_ai(a)
    return (torch.cos(s) * 3 - 1).sum(1), a.t() * x.shape[0]


def test_islands(compiles: Compiles) -> None:
    """An operator without a lowering runs between two MAX graphs; one warning names it."""
    torch.manual_seed(0)
    compiled = compile_max(mixed, fallback="eager", dynamic=True)
    with pytest.warns(UserWarning, match=r"aten\.special_airy_ai\.default: no lowering"):
        same(compiled(torch.randn(3, 4)), mixed(_replay(3)), "3")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = torch.randn(5, 4)
        same(compiled(x), mixed(x), "5")
    assert len(compiles) == 2


def _replay(rows: int) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(rows, 4)


def test_refusing_to_fall_back() -> None:
    """fallback="error" names the operators."""
    with pytest.raises(Exception, match=r"aten\.special_airy_ai\.default: no lowering") as caught:
        compile_max(mixed)(torch.randn(3, 4))
    chain = [caught.value, caught.value.__cause__, getattr(caught.value, "inner_exception", None)]
    assert any(isinstance(e, UnsupportedOpError) for e in chain)


def test_explain(compiles: Compiles) -> None:
    """The report names both sides, and nothing is compiled."""
    report = explain(mixed, torch.randn(3, 4))
    assert report.unsupported == {"aten.special_airy_ai.default": "no lowering"}
    assert [g.islands[0]["aten.sin.default"] for g in report.graphs] == [1]
    assert "eager: aten.special_airy_ai.default: no lowering" in str(
        report
    ) and "2 MAX graph(s)" in str(report)
    assert len(compiles) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fusion": 1}, "'fusion'"),
        ({"freezing": True}, r"'freezing'.\nDid you mean 'freeze'\?"),
        ({"fall_back": "eager", "max_autotune": True}, "'fall_back', 'max_autotune'"),
        ({"fallback": "never"}, "'never'"),
        ({"freeze": 1}, "1 of type int"),
    ],
)
def test_wrong_options(options: dict, message: str) -> None:
    """An unknown option or value is refused by name."""
    with pytest.raises(Exception, match=message):
        torch.compile(lambda x: x + 1, backend=max_backend, options=options)(torch.ones(2))


def test_torchs_modes() -> None:
    """Each mode that Inductor takes is one of ours, and changes nothing."""
    from torch._inductor import list_mode_options

    for mode in (None, *list_mode_options()):
        assert Options.parse({"fallback": "error"}, mode) == Options("error")


def test_it_is_listed() -> None:
    """torch finds the backend by its name, without an import of ours."""
    assert "max" in torch.compiler.list_backends()


def test_wrong_mode() -> None:
    """So is a mode."""
    with pytest.raises(Exception, match="fastest"):
        torch.compile(lambda x: x + 1, backend=max_backend, mode="fastest")(torch.ones(2))


@pytest.mark.slow
def test_dropout() -> None:
    """U37: eager's own masks for the same seed; other masks in the next call; a right gradient."""
    x = torch.ones(1000, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5)

    compiled = compile_max(f)
    torch.manual_seed(7)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(7)
    again, eager = compiled(x), None
    assert torch.equal(first, again) and not torch.equal(first, second)
    assert set(first.tolist()) == {0.0, 2.0}
    first.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, (first != 0) * 2.0)
    torch.manual_seed(7)
    eager = f(x)
    assert torch.equal(first, eager)
    assert torch.equal(
        compile_max(lambda x: torch.nn.functional.dropout(x, 0.5, training=False))(x), x
    )


class Noisy(torch.nn.Module):
    """Dropout, noise and attention with dropout between layers."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.first, self.drop = torch.nn.Linear(8, 8), torch.nn.Dropout(0.3)
        self.second = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run them; (batch, length, 8) to (batch, length)."""
        h = self.drop(torch.relu(self.first(x)))
        h = h + torch.randn_like(h) * 0.1
        q = h.unflatten(-1, (2, 4)).transpose(1, 2)
        a = torch.nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=0.2)
        return self.drop(torch.relu(self.second(h + a.transpose(1, 2).flatten(2)))).sum(-1)


def test_random_numbers_split_no_graph() -> None:
    """They are drawn before the graph, static or dynamic, whatever they are to be like."""
    x = torch.randn(3, 5, 8)
    for dynamic in (False, True):
        torch._dynamo.reset()
        if dynamic:
            torch._dynamo.mark_dynamic(x, (0, 1))
        report = explain(Noisy(), x)
        assert [len(g.islands) for g in report.graphs] == [1, 1], "forward and backward"


@pytest.mark.slow
def test_noise_is_eager_s(compiles: Compiles) -> None:
    """Values and gradients for a seed, at every size, from one graph forward and one backward."""
    torch.manual_seed(0)
    module = Noisy()
    weights = list(module.parameters())
    compiled = compile_max(module, dynamic=True)
    for x in (torch.randn(3, 5, 8), torch.randn(4, 7, 8)):
        results = []
        for run in (compiled, module):
            torch.manual_seed(3)
            y = run(x)
            results.append((y, torch.autograd.grad(y.sum(), weights), torch.rand(2)))
        torch.testing.assert_close(*results)
    assert len(compiles) == 2


@pytest.mark.slow
def test_random_numbers_keep_their_order(compiles: Compiles) -> None:
    """Draws around and inside MAX graphs come in the program's order."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = torch.rand(3) + x.sin() * 2 - 1
        b = torch.bernoulli(torch.sigmoid(a * 2 + 1))
        c = torch.randn(3)
        return a, b, c, torch.rand_like(x) * b + c * 2 - a

    x = torch.ones(3)
    torch.manual_seed(3)
    expected = f(x)
    torch.manual_seed(3)
    same(compile_max(f)(x), expected, "random")
    assert len(compiles) >= 1


@pytest.mark.slow
def test_indices() -> None:
    """U41: advanced indexing wraps, embedding and index_add raise, and the process goes on."""
    w = torch.tensor([10.0, 20.0, 30.0])
    take = compile_max(lambda w, i: w[i])
    assert take(w, torch.tensor([-1, 0])).tolist() == [30, 10]
    assert take(w, torch.tensor([-1, 0], dtype=torch.int32)).tolist() == [30, 10]
    look = compile_max(torch.nn.functional.embedding)
    add = compile_max(lambda w, i: w.index_add(0, i, torch.ones(1)))
    gather = compile_max(lambda w, i: w.gather(0, i))
    for bad in (-2, 3):
        with pytest.raises((IndexError, RuntimeError), match=r"out of|index"):
            look(torch.tensor([bad]), w[:, None])
    with pytest.raises((IndexError, RuntimeError), match=r"out of|index"):
        add(w, torch.tensor([-1]))
    with pytest.raises(
        RuntimeError, match=r"^index 3 is out of bounds for dimension 0 with size 3$"
    ):
        gather(w, torch.tensor([3]))
    assert look(torch.tensor([2, 0]), w[:, None]).tolist() == [[30], [10]]


def test_graphs_of_nothing() -> None:
    """U43: no inputs, only constants, no outputs, out=."""
    assert compile_max(lambda: torch.ones(3) * 2)().tolist() == [2, 2, 2]
    total = compile_max(lambda: torch.tensor(5.0).cumsum(0))()
    assert total.item() == 5.0 and total.dim() == 0

    def only_checks(x: torch.Tensor) -> None:
        assert x.shape[0] == 2

    assert compile_max(only_checks)(torch.ones(2)) is None
    out = torch.empty(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile_max(lambda x, out: torch.abs(x, out=out), fallback="eager")(
            torch.tensor([-1.0, 2.0]), out
        )
    assert out.tolist() == [1, 2]


@pytest.mark.slow
def test_empty_inputs() -> None:
    """U11: zero sizes give eager's values."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + x * 2, x.sum(-1), (x * 3).amax() if x.numel() else x

    for x in (torch.zeros(3, 0), torch.zeros(0, 3), torch.zeros(0)):
        same(compile_max(f)(x), f(x), f"{tuple(x.shape)}")


def test_batch_norm() -> None:
    """U45: training updates the running statistics."""
    norm = torch.nn.BatchNorm1d(2)
    x = torch.tensor([[0.0, 0.0], [2.0, 4.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = compile_max(norm, fallback="eager")
        compiled(x)
        torch.testing.assert_close(norm.running_mean, torch.tensor([0.1, 0.2]))
        torch.testing.assert_close(norm.running_var, torch.tensor([1.1, 1.7]))
        assert norm.num_batches_tracked == 1
        compiled(x)
    assert norm.num_batches_tracked == 2
