"""Convolutions, transposed ones and their gradients, as products with columns of windows."""

import random
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torch_mojo.aten import convolution

aten = torch.ops.aten


def draw(seed: int, dtype: torch.dtype) -> tuple[Any, ...] | None:
    """Return the arguments of one call, or None where torch refuses them."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    n, groups, transposed = rng.choice([1, 2, 3]), rng.choice([1, 1, 2]), rng.random() < 0.4
    inside, outside = groups * rng.randint(1, 3), groups * rng.randint(1, 3)
    kernel, stride, padding, dilation = (
        [rng.randint(low, high) for _ in range(n)] for low, high in ((1, 3), (1, 3), (0, 2), (1, 2))
    )
    extra = [rng.randint(0, s - 1) if transposed else 0 for s in stride]
    x = torch.randn(rng.randint(1, 3), inside, *(rng.randint(6, 9) for _ in range(n)), dtype=dtype)
    if n == 2 and rng.random() < 0.5:
        x = x.to(memory_format=torch.channels_last)
    first, second = (inside, outside // groups) if transposed else (outside, inside // groups)
    weight = torch.randn(first, second, *kernel, dtype=dtype)
    bias = torch.randn(outside, dtype=dtype) if rng.random() < 0.5 else None
    args = (x, weight, bias, stride, padding, dilation, transposed, extra, groups)
    try:
        return args if aten.convolution(*args).numel() else None
    except RuntimeError:
        return None


def near(found: torch.Tensor, wanted: torch.Tensor) -> None:
    loose = 1e-2 if wanted.dtype in (torch.float16, torch.bfloat16) else 1e-4
    torch.testing.assert_close(found, wanted, rtol=loose, atol=loose * 10)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        pytest.param(torch.float64, marks=pytest.mark.slow),
        pytest.param(torch.bfloat16, marks=pytest.mark.slow),
    ],
)
def test_values_and_gradients(dtype: torch.dtype) -> None:
    tried = 0
    for seed in range(80):
        args = draw(seed, dtype)
        if args is None:
            continue
        tried += 1
        wanted = aten.convolution(*args)
        found = convolution.convolution(*args)
        near(found, wanted)
        x, weight, bias, *rest = args
        grad = torch.randn_like(wanted)
        mask = [seed % 3 != 0, seed % 3 != 1, bias is not None]
        sizes = None if bias is None else list(bias.shape)
        theirs = aten.convolution_backward(grad, x, weight, sizes, *rest, mask)
        ours = convolution.convolution_backward(grad, x, weight, sizes, *rest, mask)
        for wants, f, w in zip(mask, ours, theirs, strict=True):
            assert (f is not None) == wants
            if f is not None:
                near(f, w)
    assert tried > 40


def test_the_layout_is_torchs() -> None:
    x, weight = torch.randn(2, 4, 9, 8), torch.randn(6, 4, 3, 3)
    for given in (x, x.to(memory_format=torch.channels_last)):
        args = (given, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        assert convolution.convolution(*args).stride() == aten.convolution(*args).stride()


def test_any_batch() -> None:
    """One trace serves every batch size, and no symbolic size reaches a kernel's arguments."""

    weight = torch.randn(6, 4, 3, 3)

    def f(x: torch.Tensor) -> torch.Tensor:
        args = (x, weight, None, [2, 1], [1, 1], [1, 1], False, [0, 0], 1)
        return convolution.convolution(*args)

    trace = make_fx(f, tracing_mode="symbolic", _allow_non_fake_inputs=True)
    gm = trace(torch.randn(3, 4, 9, 8))
    for node in gm.graph.nodes:
        if "mojo_aten" in str(node.target):
            assert all(isinstance(a, (torch.fx.Node, int)) for a in node.args)
    x = torch.randn(5, 4, 9, 8)
    near(gm(x), aten.convolution(x, weight, None, [2, 1], [1, 1], [1, 1], False, [0, 0], 1))
