"""`mojo::` operators and inline kernels on the device: the CPU's specializations serve it."""

import ops
import pytest
import torch

import torch_mojo
from torch_mojo import functional


def test_values_gradients_and_no_second_build() -> None:
    x = torch.randn(4, 8)
    wanted = functional.rms_norm(x, (8,), torch.ones(8))
    before = functional.rms_norm.op.specializations
    y = x.to("mojo:1").requires_grad_()
    found = functional.rms_norm(y, (8,), torch.ones(8, device="mojo:1"))
    assert found.device == y.device
    torch.testing.assert_close(found.cpu(), wanted)
    assert functional.rms_norm.op.specializations == before


def test_gradients() -> None:
    x = torch.tensor([1.0, 2.0, 3.0], device="mojo", requires_grad=True)
    ops.mul(x, x).sum().backward()
    assert x.grad.tolist() == [2, 4, 6] and x.grad.device == x.device


def test_devices_are_checked() -> None:
    x = torch.ones(3, device="mojo")
    with pytest.raises(torch_mojo.errors.SignatureError, match=r"mojo:0 and .* cpu"):
        ops.mul(x, torch.ones(3))
