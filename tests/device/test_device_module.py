"""Registration, torch.mojo and torch.accelerator."""

import subprocess
import sys

import pytest
import torch

import torch_mojo
from torch_mojo.errors import MojoError


def test_torch_sees_it() -> None:
    assert torch.accelerator.current_accelerator() == torch.device("mojo")
    assert torch.accelerator.is_available() and torch.mojo.is_available()
    assert torch.accelerator.device_count() == torch.mojo.device_count() == 2


def test_a_second_registration() -> None:
    torch_mojo.register_device(host_devices=2)
    with pytest.raises(MojoError, match=r"2 host device\(s\), not 3"):
        torch_mojo.register_device(host_devices=3)


def test_nothing_happens_at_import() -> None:
    code = "import torch, torch_mojo; assert not hasattr(torch, 'mojo'); torch.ones(1) + 1"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_current_device() -> None:
    assert torch.mojo.current_device() == 0
    with torch.mojo.device(1):
        assert torch.mojo.current_device() == torch.accelerator.current_device_index() == 1
        assert torch.empty(2, device="mojo").device == torch.device("mojo", 1)
    assert torch.mojo.current_device() == 0
    with pytest.raises(RuntimeError, match="mojo:5 does not exist"):
        torch.mojo.set_device(5)
    with pytest.raises(RuntimeError, match="mojo:7 does not exist"):
        torch.empty(1, device="mojo:7")
    with pytest.raises(ValueError, match="got cpu"):
        torch.mojo.synchronize("cpu")


def test_several_devices() -> None:
    x = torch.tensor([[3.0, 1], [2, 5]], device="mojo:1", requires_grad=True)
    x.min(0).values.sum().backward()
    assert x.grad.tolist() == [[0, 1], [1, 0]] and x.grad.device == torch.device("mojo:1")
    assert (x.detach().to("mojo:0") + 1).device.index == 0
    with pytest.raises(RuntimeError, match="mojo:1 and mojo:0"):
        x + torch.ones(2, 2, device="mojo:0")
    with pytest.raises(RuntimeError, match="mojo:1 and cpu"):
        x + torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="dtype float, but got double"):
        torch.mm(
            x.detach(), x.detach(), out=torch.empty(2, 2, device="mojo:1", dtype=torch.float64)
        )


def test_default_device() -> None:
    torch.set_default_device("mojo")
    try:
        assert torch.ones(3).device == torch.tensor([1]).device == torch.device("mojo:0")
        assert torch.nn.Linear(2, 2).weight.device == torch.device("mojo:0")
    finally:
        torch.set_default_device(None)


def test_methods() -> None:
    x = torch.ones(2).mojo()
    assert x.is_mojo and x.device == torch.device("mojo:0")
    assert torch.nn.Linear(2, 2).mojo().weight.is_mojo
    assert type(x) is torch.Tensor
