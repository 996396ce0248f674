"""Whole models trained on the device have the CPU's loss curve."""

from collections.abc import Callable

import pytest
import torch
from models.architectures import ARCHITECTURES, model

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "resnet": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    "gpt2": lambda p: torch.optim.AdamW(p, 1e-3),
    "llama": lambda p: torch.optim.Adam(p, 1e-3, foreach=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_steps(name: str) -> None:
    curves = []
    for device in ("cpu", "mojo"):
        architecture = ARCHITECTURES[name]
        torch.manual_seed(0)
        given = [t.to(device) for t in architecture.inputs(4, 8)]
        made = model(name).train().to(device)
        optimizer = OPTIMIZERS[name](made.parameters())
        curve = []
        for _ in range(10):
            torch.manual_seed(1)  # dropout
            optimizer.zero_grad()
            loss = made(*given).float().square().mean()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        assert all(p.device.type == device for p in made.parameters())
        curves.append(curve)
    assert curves[0][-1] < curves[0][0]
    torch.testing.assert_close(curves[1], curves[0], rtol=1e-3, atol=1e-5)
