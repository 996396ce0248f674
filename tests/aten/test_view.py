"""Operators that move elements."""

import pytest
import torch

from torch_mojo.aten import view_rules


@pytest.mark.parametrize("dims", [[0], [1, -1], [0, 2], []])
def test_flip(dims: list[int]) -> None:
    x = torch.randn(2, 3, 4)
    assert torch.equal(view_rules.flip(x, dims), torch.flip(x, dims))
    assert torch.equal(view_rules.flip(x[:0], dims), torch.flip(x[:0], dims))
    whole = view_rules.flip(torch.tensor(3.0), [])
    assert whole.item() == 3 and whole.dim() == 0
