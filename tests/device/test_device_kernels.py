"""ATen operators by `mojo_aten::*` kernels: built for the CPU or for the device, they are the same."""

import pytest
import torch
from against_cpu import agree

F = torch.nn.functional
pytestmark = pytest.mark.slow  # each builds kernels


def test_convolution() -> None:
    def both(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        leaves = [t.clone().requires_grad_() for t in (x, w, b)]
        out = F.conv2d(*leaves, padding=1, stride=2)
        (out * out).sum().backward()
        return out.detach(), *(t.grad for t in leaves)

    agree(both, torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(4), tolerance=1e-3)


def test_pooling() -> None:
    def both(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = x.clone().requires_grad_()
        out = F.max_pool2d(x, 2)
        (out * out).sum().backward()
        return out.detach(), x.grad

    agree(both, torch.randn(2, 3, 8, 8))


def test_rows() -> None:
    index = torch.tensor([2, 0, 2])
    agree(lambda w, i: (F.embedding(i, w), w.index_select(0, i)), torch.randn(3, 5), index)


def test_sorting() -> None:
    agree(lambda x: tuple(x.sort(-1)), torch.randn(3, 9))
