"""Gradients, parameters that change, and frozen ones."""

from __future__ import annotations

import copy

import pytest
import torch
from compiles import Compiles
from packing import compile_max

from torch_mojo.compiler.backend import max_backend


class Net(torch.nn.Module):
    """Two layers with everything a transformer block's MLP has."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.second = torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return class probabilities' logarithms."""
        h = self.norm(torch.nn.functional.gelu(self.first(x)))
        return torch.log_softmax(self.second(torch.tanh(h)), -1)


@pytest.mark.slow
def test_an_mlp_trains(compiles: Compiles) -> None:
    """Three steps of SGD leave the same weights as in eager torch, for changing batch sizes."""
    torch.manual_seed(0)
    net = Net()
    twin = copy.deepcopy(net)
    compiled = compile_max(net, dynamic=True)
    for module, run in ((net, compiled), (twin, twin)):
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(module.parameters(), 0.5)
        for rows in (5, 3, 8):
            x = torch.randn(rows, 8, requires_grad=True)
            loss = torch.nn.functional.nll_loss(run(x), torch.arange(rows) % 4)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for (name, p), q in zip(net.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, msg=lambda m, n=name: f"{n}: {m}")
    assert len(compiles) == 2


def test_weights_are_read_in_every_call(compiles: Compiles) -> None:
    """U45: after fill_, load_state_dict and a replaced parameter the new weight counts."""
    layer = torch.nn.Linear(1, 1, bias=False)
    x = torch.tensor([[3.0]])
    with torch.no_grad():
        layer.weight.fill_(2)
        compiled = compile_max(lambda x: torch.relu(layer(x)) + 1 - 1)
        assert compiled(x).item() == 6
        layer.weight.fill_(5)
        assert compiled(x).item() == 15
        layer.load_state_dict({"weight": torch.tensor([[7.0]])}, assign=True)
        assert compiled(x).item() == 21
        layer.weight.data = torch.tensor([[-4.0]])
        assert compiled(-x).item() == 12
    assert len(compiles) <= 2


@pytest.mark.slow
def test_frozen_weights() -> None:
    """Freeze bakes the weight in, but only where no gradient is needed."""
    layer = torch.nn.Linear(2, 2, bias=False)
    x = torch.tensor([[1.0, 2.0]])
    compiled = torch.compile(layer, backend=max_backend, options={"freeze": True})
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        assert compiled(x).tolist() == [[1, 2]]
        layer.weight.fill_(5)
        assert compiled(x).tolist() == [[1, 2]]
    assert compiled(x).tolist() == [[15, 15]]


@pytest.mark.slow
def test_the_same_tensor_twice() -> None:
    """U28: the gradient of x * x is 2x, and adds up."""
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    compiled = compile_max(lambda a, b: (a * b * 1).sum() * 2 / 2)
    compiled(x, x).backward()
    assert x.grad is not None and x.grad.tolist() == [2, 4, 6]
    compiled(x, x).backward()
    assert x.grad.tolist() == [4, 8, 12]
