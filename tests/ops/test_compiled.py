"""All built-in functions inside one compiled function: Inductor, and MAX with the same kernels in its graph."""

from collections.abc import Callable
from typing import Any

import checks
import pytest
import torch

import torch_mojo
from torch_mojo import functional as F

nn = torch.nn.functional


def inputs(n: int, device: str) -> dict[str, torch.Tensor]:
    """Tensors for every function; only the batch is `n`."""
    g = torch.Generator().manual_seed(n)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=g).to(device)

    return {
        "x": randn(n, 8),
        "y": randn(n, 8),
        "w": randn(8),
        "i": torch.randint(-9, 9, (n, 8), generator=g).to(device),
        "classes": torch.randint(0, 8, (n,), generator=g).to(device),
        "image": randn(n, 2, 5, 6),
        "grid": randn(n, 3, 4, 2) * 0.5,
        "q": randn(n, 4, 6, 8),
        "kv": randn(n, 2, 6, 8),
        "angle": randn(6, 8),
        "lengths": torch.full((n,), 5).to(device),
        "matrices": torch.eye(3).expand(n, 3, 3).to(device) + 0.1 * randn(n, 3, 3),
    }


def ours(t: dict[str, torch.Tensor]) -> list[Any]:
    x, y, w, i, q, kv = (t[k] for k in ("x", "y", "w", "i", "q", "kv"))
    cos, sin = t["angle"].cos(), t["angle"].sin()
    return [
        F.ceil(x * 3) + 1,
        F.bitwise_and(i, 6) + F.bitwise_xor(i, i + 1),
        F.bitwise_left_shift(F.bitwise_not(i), 2),
        F.softmax(x, -1),
        F.log_softmax(x * 2, 1),
        F.rms_norm(x, [8], w, 1e-5),
        F.add_rms_norm(x, y, w, 1e-5),
        F.layer_norm(x, [8], w, w),
        F.silu_mul(x, y),
        F.gelu_backward(x, y),
        F.cross_entropy(x, t["classes"]),
        F.rotary_embedding(q, cos, sin),
        F.scaled_dot_product_attention(q, kv, kv, is_causal=True, enable_gqa=True),
        F.decode_attention(q[:, :, 0], kv, kv, t["lengths"]),
        F.adaptive_avg_pool2d(t["image"], (2, 3)),
        F.grid_sample(t["image"], t["grid"]),
        F.inv3x3(t["matrices"]),
    ]


def theirs(t: dict[str, torch.Tensor]) -> list[Any]:
    x, y, w, i, q, kv = (t[k] for k in ("x", "y", "w", "i", "q", "kv"))
    cos, sin = t["angle"].cos(), t["angle"].sin()
    turned = torch.cat((-q[..., 4:], q[..., :4]), -1)
    sdpa = nn.scaled_dot_product_attention
    return [
        (x * 3).ceil() + 1,
        (i & 6) + (i ^ (i + 1)),
        ~i << 2,
        x.softmax(-1),
        (x * 2).log_softmax(1),
        nn.rms_norm(x, [8], w, 1e-5),
        (nn.rms_norm(x + y, [8], w, 1e-5), x + y),
        nn.layer_norm(x, [8], w, w),
        nn.silu(x) * y,
        torch.ops.aten.gelu_backward(x, y),
        nn.cross_entropy(x, t["classes"]),
        q * cos + turned * sin,
        sdpa(q, kv, kv, is_causal=True, enable_gqa=True),
        sdpa(q[:, :, :1], kv[:, :, :5], kv[:, :, :5], enable_gqa=True)[:, :, 0],
        nn.adaptive_avg_pool2d(t["image"], (2, 3)),
        nn.grid_sample(t["image"], t["grid"], align_corners=False),
        torch.linalg.inv(t["matrices"]),
    ]


def compare(function: Callable[..., Any], device: str, sizes: tuple[int, ...]) -> None:
    for n in sizes:
        t = inputs(n, device)
        for found, wanted in zip(function(t), theirs(t), strict=True):
            for f, r in zip(checks.outputs(found), checks.outputs(wanted), strict=True):
                checks.close(f, r, 5)


@pytest.mark.parametrize("device", checks.DEVICES)
def test_inductor(device: str) -> None:
    compare(torch.compile(ours, fullgraph=True), device, (3, 4, 5))


@pytest.mark.slow
@pytest.mark.parametrize("device", checks.DEVICES)
def test_max(device: str) -> None:
    t = inputs(3, device)
    refused = torch_mojo.explain(ours, t).unsupported
    assert not any("mojo" in name for name in refused), refused
    compare(torch.compile(ours, backend="max", dynamic=True), device, (3, 4, 5))


@pytest.mark.slow
def test_gradients_through_max() -> None:
    def loss(t: dict[str, torch.Tensor]) -> torch.Tensor:
        x = F.rms_norm(F.silu_mul(t["x"], t["y"]), [8], t["w"], 1e-5)
        return F.cross_entropy(x, t["classes"])

    def reference(t: dict[str, torch.Tensor]) -> torch.Tensor:
        x = nn.rms_norm(nn.silu(t["x"]) * t["y"], [8], t["w"], 1e-5)
        return nn.cross_entropy(x, t["classes"])

    for function, wanted in ((torch.compile(loss, backend="max"), reference),):
        found = []
        for f in (function, wanted):
            t = inputs(4, "cpu")
            leaves = [t[k].requires_grad_() for k in ("x", "y", "w")]
            found.append(torch.autograd.grad(f(t), leaves))
        for a, b in zip(*found, strict=True):
            checks.close(a, b, 5)
