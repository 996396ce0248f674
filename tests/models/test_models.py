"""Whole models through `backend="max"`: one graph, eager's values, any batch and length."""

from __future__ import annotations

import pytest
import torch
from compiles import Compiles

from models.architectures import ARCHITECTURES, model
from torch_mojo.compiler import backend

QUICK = {n for n, a in ARCHITECTURES.items() if a.quick}
NAMES = [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in ARCHITECTURES]
TRAINED = [n for n, a in ARCHITECTURES.items() if a.trains]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def mark(values: tuple[torch.Tensor, ...], lengths: bool) -> None:
    """Let batch and length be dynamic."""
    for value in values:
        torch._dynamo.mark_dynamic(value, 0)
        if lengths:
            torch._dynamo.mark_dynamic(value, 1)


@pytest.mark.filterwarnings("ignore:Dynamo detected a call")  # Mamba's own cached functions
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_values(name: str, device: str, compiles: Compiles) -> None:
    torch._dynamo.reset()
    architecture = ARCHITECTURES[name]
    made = model(name).eval().to(device)
    compiled = torch.compile(made, backend=backend.max_backend, options={"fallback": "error"})
    with torch.no_grad():
        for batch, length in ((2, 6), (3, 9), (5, 7)):
            given = tuple(t.to(device) for t in architecture.inputs(batch, length))
            wanted = made(*given)
            if (batch, length) == (2, 6):
                mark(given, architecture.lengths)
            torch.testing.assert_close(compiled(*given), wanted, rtol=1e-3, atol=1e-4)
    assert len(compiles) <= architecture.graphs


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", TRAINED)
def test_training(name: str, device: str) -> None:
    """Ten steps have eager's loss curve."""
    torch._dynamo.reset()
    architecture = ARCHITECTURES[name]
    given = tuple(t.to(device) for t in architecture.inputs(4, 8))
    curves = []
    for compiling in (False, True):
        made = model(name).train().to(device)
        optimizer = torch.optim.SGD(made.parameters(), 0.05)

        def loss_of(*values: torch.Tensor, made: torch.nn.Module = made) -> torch.Tensor:
            return made(*values).float().square().mean()

        step = torch.compile(loss_of, backend=backend.max_backend) if compiling else loss_of
        curve = []
        for _ in range(10):
            torch.manual_seed(1)  # dropout
            optimizer.zero_grad()
            loss = step(*given)
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        curves.append(curve)
    assert curves[0][-1] < curves[0][0]
    torch.testing.assert_close(curves[1], curves[0], rtol=1e-3, atol=1e-5)
