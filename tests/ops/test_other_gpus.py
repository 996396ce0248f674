"""The built-in kernels compile for GPUs that are not NVIDIA's. Nothing of them runs here."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cross import cross_build

from torch_mojo import functional as F
from torch_mojo.errors import MojoCompileError

X = torch.randn(6, 40)
PICTURES, PLACES = torch.randn(2, 3, 5, 7), torch.rand(2, 4, 4, 2)
QUERY = torch.randn(2, 4, 8, 32)
LABELS = torch.tensor([1, 2, 0, 3, 1, 2])

CALLS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "ceil": lambda ops: (ops.ceil.default, X),
    "bitwise_left_shift": lambda ops: (ops.bitwise_left_shift.Tensor, X.long(), X.long()),
    "gelu_backward": lambda ops: (ops.gelu_backward.default, X, X),
    "silu_mul": lambda ops: (ops.silu_mul.default, X, X),
    "softmax": lambda ops: (ops.softmax.default, X, -1),
    "rms_norm": lambda ops: (ops.rms_norm.default, X, [40], X[0]),
    "layer_norm_backward": lambda ops: (
        *(ops.layer_norm_backward.default, X, X, X[0], X[0]),
        1e-5,
    ),
    "cross_entropy": lambda ops: (
        *(ops.cross_entropy_forward.default, X, LABELS, None, -100, "mean", 0.1),
    ),
    "topk": lambda ops: (ops.topk.default, X, 4),
    "adaptive_avg_pool2d": lambda ops: (ops.adaptive_avg_pool2d.default, PICTURES, [3, 5]),
    "grid_sample": lambda ops: (
        *(ops.grid_sample.default, PICTURES, PLACES, "bilinear", "zeros", False),
    ),
    "inv3x3": lambda ops: (ops.inv3x3.default, torch.eye(3).expand(5, 3, 3).contiguous()),
    "attention": lambda ops: (
        *(ops.attention_forward.default, QUERY, QUERY, QUERY, None, None, 0, 0.5, 1.0, 64),
    ),
}
QUICK = ("ceil",)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CALLS]
)
def test_for_amd(name: str) -> None:
    F.ceil(torch.ones(1))  # registers all
    built = cross_build(*CALLS[name](torch.ops.mojo), accelerator="gfx942").read_bytes()
    inner = built.find(b"\x7fELF", 4)
    assert inner > 0, "no code object inside of the library"
    assert int.from_bytes(built[inner + 18 : inner + 20], "little") == 224, "not an AMD GPU's"
    assert b"gfx942" in built and b"amdhsa" in built


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CALLS]
)
def test_for_apple(name: str) -> None:
    """All but the last step, which is done by Xcode's own tools."""
    F.ceil(torch.ones(1))
    try:
        built = cross_build(*CALLS[name](torch.ops.mojo), accelerator="metal:4").read_bytes()
        assert b"MTLB" in built
    except MojoCompileError as e:
        assert "xcrun" in str(e) and "macOS with Xcode" in str(e), e
