"""torch's attention operators as the built-in kernel, below autograd."""

import pytest
import torch

from torch_mojo.aten import attention

aten = torch.ops.aten
PARTS = [
    None,
    *(
        pytest.param(shape, marks=pytest.mark.slow)
        for shape in ((5, 7), (1, 1, 5, 7), (2, 1, 5, 7), (2, 3, 1, 7), (2, 3, 5, 7))
    ),
]


@pytest.mark.parametrize("mask", PARTS)
def test_values_and_gradients(mask: tuple[int, ...] | None) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    extra = None if mask is None else torch.randn(mask)
    causal = mask is None
    names = (
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
    )
    wanted, levels = names[0](q, k, v, 0.0, causal, attn_mask=extra, scale=0.3)
    found, ours = attention.forward(q, k, v, 0.0, causal, attn_mask=extra, scale=0.3)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert found.stride() == wanted.stride()
    grad = torch.randn_like(wanted)
    theirs = names[1](grad, q, k, v, wanted, levels, 0.0, causal, attn_mask=extra, scale=0.3)
    mine = attention.backward(grad, q, k, v, found, ours, 0.0, causal, attn_mask=extra, scale=0.3)
    for f, w in zip(mine, theirs, strict=True):
        torch.testing.assert_close(f, w, rtol=1e-4, atol=1e-5)


def test_dropout_is_left_to_torch() -> None:
    q = torch.randn(1, 2, 3, 4)
    assert attention.forward(q, q, q, 0.5) is NotImplemented
