"""Operators of all kinds, for a library that is built ahead of time; a test copies this file."""

import torch

try:
    import torch_mojo
except ImportError:
    import _torch_mojo_many as torch_mojo

SOURCE = """
import extensibility
from extensibility import InputTensor, OutputTensor, foreach
from extensibility import _MutableInputTensor as MutableInputTensor
from layout import Coord
from max.gpu.host import DeviceContext


@extensibility.register("shifted")
struct Shifted[times: Int]:
    @staticmethod
    def execute[has_bias: Bool, has_steps: Bool](
        output: OutputTensor[rank=1, ...],
        x: InputTensor[dtype=output.dtype, rank=1, ...],
        bias: InputTensor[dtype=output.dtype, rank=1, ...],
        by: Int64,
        negate: Bool,
        steps: List[Int64],
    ) raises:
        if by < 0:
            raise Error("by is negative: ", by)
        var more = by
        for step in steps:
            more += step
        for i in range(x.dim_size(0)):
            var value = x[i] * Scalar[output.dtype](Self.times) + more.cast[output.dtype]()
            comptime if has_bias:
                value += bias[i]
            output[i] = -value if negate else value


@extensibility.register("double_")
struct Double:
    @staticmethod
    def execute(x: MutableInputTensor[dtype=DType.float32, rank=1, ...]) raises:
        for i in range(x.dim_size(0)):
            x[i] = x[i] * 2


@extensibility.register("positive")
struct Positive:
    @staticmethod
    def execute(
        output: OutputTensor[dtype=DType.float32, rank=1, ...],
        x: InputTensor[dtype=DType.float32, rank=1, ...],
    ) raises:
        var at = 0
        for i in range(x.dim_size(0)):
            if x[i] > 0:
                output[at] = x[i]
                at += 1


@extensibility.register("plus")
struct Plus:
    @staticmethod
    def execute[target: StaticString](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        y: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](at: Coord) {var x, var y} -> SIMD[output.dtype, width]:
            return x.load[width](at) + y.load[width](at)

        foreach[target=target](f, output, ctx)
"""


@torch_mojo.mojo_op("ship_many::shifted", source=SOURCE)
def shifted(
    x: torch.Tensor,
    bias: torch.Tensor | None = None,
    by: int = 0,
    negate: bool = False,
    times: int = 1,
    steps: list[int] | None = None,
) -> torch.Tensor:
    """x * times + by + sum(steps) + bias, negated or not."""
    return x.new_empty(x.shape)


@torch_mojo.mojo_op("ship_many::double_", source=SOURCE, mutates_args=("x",))
def double_(x: torch.Tensor) -> None:
    """Double in place."""


@torch_mojo.mojo_op("ship_many::positive", source=SOURCE)
def positive(x: torch.Tensor) -> torch.Tensor:
    """Return the positive elements."""
    return x.new_empty(int((x > 0).sum()))


@torch_mojo.mojo_op("ship_many::plus", source=SOURCE, broadcast=True)
def plus(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y, broadcast."""
    return x.new_empty(torch.broadcast_shapes(x.shape, y.shape))
