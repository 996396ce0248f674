"""Inline kernels inside torch.compile, with Inductor and in a MAX graph."""

import pytest
import torch

import torch_mojo

AT = "thread_position_in_grid.x"
DOUBLE = torch_mojo.kernel(
    "double",
    source=f"y[{AT}] = 2 * x[{AT}]",
    inputs={"x": "T[...]"},
    outputs={"y": "T[...]"},
    grid="y.size",
)
PAIRS = torch_mojo.kernel(
    "pairs",
    source=f"y[{AT}] = x[2 * {AT}] + Scalar[T](K) * x[2 * {AT} + 1]",
    inputs={"x": "T[n]"},
    outputs={"y": "T[n // 2]"},
    params={"K": 1},
    grid="y.size",
)
EXP = torch_mojo.kernel(
    "exp",
    ["inp", "s"],
    ["out"],
    f"out[{AT}] = exp(inp[{AT}].cast[T]()).cast[U]() * s",
    "from std.math import exp",
)


def listed(x: torch.Tensor, s: float = 2.0) -> torch.Tensor:
    (y,) = EXP(
        inputs=[x, s],
        template=[("T", torch.float64), ("U", x.dtype)],
        grid=(x.numel(), 1, 1),
        threadgroup=(64, 1, 1),
        output_shapes=[x.shape],
        output_dtypes=[x.dtype],
    )
    return y


def chain(x: torch.Tensor) -> torch.Tensor:
    return PAIRS(DOUBLE(x + 1), K=3) + listed(x[: x.shape[0] // 2])


def wanted(x: torch.Tensor) -> torch.Tensor:
    y = 2 * (x + 1)
    return y[0::2] + 3 * y[1::2] + 2 * x[: x.shape[0] // 2].exp()


@pytest.mark.parametrize("dynamic", [False, True])
def test_inductor(dynamic: bool, device: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(chain, fullgraph=True, dynamic=dynamic)
    for n in (8, 12, 6):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), wanted(x))


def test_max(device: str) -> None:
    torch._dynamo.reset()
    x = torch.randn(8)
    compiled = torch.compile(chain, fullgraph=True, backend="max", options={"fallback": "error"})
    torch.testing.assert_close(compiled(x), wanted(x))


def test_max_with_any_size(device: str) -> None:
    """A kernel with named operands serves every size with one graph."""
    torch._dynamo.reset()

    def named(x: torch.Tensor) -> torch.Tensor:
        return PAIRS(DOUBLE(x + 1), K=3) * 2

    compiled = torch.compile(
        named, fullgraph=True, backend="max", dynamic=True, options={"fallback": "error"}
    )
    torch._dynamo.utils.counters.clear()
    for n in (8, 12, 6):
        x = torch.randn(n)
        y = 2 * (x + 1)
        torch.testing.assert_close(compiled(x), 2 * (y[0::2] + 3 * y[1::2]))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
