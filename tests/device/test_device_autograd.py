"""Gradients, also from other threads; errors in backward; autocast."""

import subprocess
import sys
import threading

import pytest
import torch


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("no gradient today")


def test_gradients() -> None:
    torch.manual_seed(0)
    w, x = torch.randn(3, 3), torch.randn(2, 3)
    grads = []
    for device in ("cpu", "mojo:1"):
        own = w.clone().to(device).requires_grad_()
        loss = torch.cat([(x.to(device) @ own).relu(), own], 0).pow(2).sum()
        assert own.is_leaf
        loss.backward()
        assert own.grad.device == own.device
        grads.append(own.grad.cpu())
    torch.testing.assert_close(*grads)


def test_an_error_in_backward_is_an_exception() -> None:
    for _ in range(3):
        x = torch.ones(3, device="mojo", requires_grad=True)
        with pytest.raises(ValueError, match="no gradient today"):
            Fails.apply(x).sum().backward()
    y = torch.ones(3, device="mojo", requires_grad=True)
    (y * 2).sum().backward()
    assert y.grad.tolist() == [2, 2, 2]


def test_backward_in_threads() -> None:
    found = {}

    def work(i: int) -> None:
        x = torch.full((4,), float(i), device=f"mojo:{i % 2}", requires_grad=True)
        for _ in range(20):
            x.grad = None
            (x * x).sum().backward()
        found[i] = (x.grad.tolist(), x.grad.device.index)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert found == {i: ([2.0 * i] * 4, i % 2) for i in range(6)}


def test_in_place_and_views() -> None:
    x = torch.zeros(2, 4, device="mojo")
    x[:, ::2].add_(1)
    assert x.tolist() == [[1, 0, 1, 0]] * 2 and x._version == 1
    y = torch.arange(6.0, device="mojo").view(3, 2)
    y.t().add_(1)
    assert y.tolist() == [[1, 2], [3, 4], [5, 6]]
    z = torch.ones(3, device="mojo", requires_grad=True)
    w = z * 1
    w[1:].mul_(3)
    w.sum().backward()
    assert z.grad.tolist() == [1, 3, 3]


def test_autocast() -> None:
    x = torch.ones(2, 2, device="mojo")
    layer = torch.nn.Linear(2, 2).to("mojo")
    with torch.autocast("mojo", dtype=torch.bfloat16):
        assert (x @ x).dtype == layer(x).dtype == torch.bfloat16
        assert x.bfloat16().exp().dtype == torch.softmax(x @ x, 1).dtype == torch.float32
        assert torch.cat([x, x @ x]).dtype == (x + 1).dtype == torch.float32
        loss = layer(x).sum()
    loss.backward()
    assert layer.weight.grad.dtype == torch.float32
    with torch.autocast("mojo"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        torch.nn.functional.binary_cross_entropy(x, x)
    assert (x @ x).dtype == torch.float32


def test_a_module_keeps_its_parameters_when_it_moves() -> None:
    """Tied weights, an optimizer and a compiled function made before go on with the same Parameters."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    compiled = torch.compile(model, backend="eager")
    for device in ("cpu", "mojo:0", "mojo:1", "cpu"):
        model.to(device)
        assert model[0].weight is model[1].weight is weight and str(weight.device) == device
        before = weight.detach().cpu().clone()
        compiled(torch.ones(2, 3, device=device)).sum().backward()
        assert str(weight.grad.device) == device
        optimizer.step()
        optimizer.zero_grad()
        optimizer.state.clear()  # torch's optimizers keep their state where it was, on any device
        assert not torch.equal(before, weight.detach().cpu())
    model.load_state_dict({k: torch.ones_like(v) for k, v in model.state_dict().items()})
    assert model[0].weight is weight and weight.sum().item() == 9


def test_registration_after_a_backward_warns() -> None:
    program = """
import torch, torch_mojo
torch.ones((), requires_grad=True).backward()
torch_mojo.register_device()
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert "came after the first backward of this process" in result.stderr
    early = program.replace("torch.ones((), requires_grad=True).backward()", "")
    result = subprocess.run(
        [sys.executable, "-c", early], capture_output=True, text=True, check=False, timeout=300
    )
    assert "backward" not in result.stderr
