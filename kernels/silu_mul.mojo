"""The product of SwiGLU, silu(gate) * up, and its gradients, elementwise."""

import extensibility
from extensibility import _FusedInputTensor as FusedInputTensor
from extensibility import _FusedOutputTensor as FusedOutputTensor
from extensibility import foreach
from layout import Coord
from max.gpu.host import DeviceContext

from logistic import logistic

comptime accum_of[dtype: DType] = DType.float64 if dtype == .float64 else DType.float32


@extensibility.register("silu_mul")
struct SiluMul:
    """Multiplies gate * logistic(gate) by up."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: FusedOutputTensor,
        gate: FusedInputTensor[rank=output.rank, ...],
        up: FusedInputTensor[rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime accum = accum_of[output.dtype]
        comptime assert accum.is_floating_point()

        @always_inline
        def f[width: Int](idx: Coord) {var gate, var up} -> SIMD[output.dtype, width]:
            var g = gate._fused_load[width](idx).cast[accum]()
            var u = up._fused_load[width](idx).cast[accum]()
            return (g * logistic(g) * u).cast[output.dtype]()

        foreach[target=target](f, output, ctx)


@extensibility.register("silu_mul_backward")
struct SiluMulBackward:
    """With s = logistic(gate): grad * up * s * (1 + gate * (1 - s)) and grad * gate * s."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        grad_gate: FusedOutputTensor,
        grad_up: FusedOutputTensor[dtype=grad_gate.dtype, rank=grad_gate.rank, ...],
        grad: FusedInputTensor[rank=grad_gate.rank, ...],
        gate: FusedInputTensor[rank=grad_gate.rank, ...],
        up: FusedInputTensor[rank=grad_gate.rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime accum = accum_of[grad_gate.dtype]
        comptime assert accum.is_floating_point()

        @always_inline
        def f[
            width: Int
        ](idx: Coord) {var grad_up, var grad, var gate, var up} -> SIMD[grad_gate.dtype, width]:
            var d = grad._fused_load[width](idx).cast[accum]()
            var g = gate._fused_load[width](idx).cast[accum]()
            var u = up._fused_load[width](idx).cast[accum]()
            var s = logistic(g)
            grad_up._fused_store[width](idx, (d * g * s).cast[grad_up.dtype]())
            return (d * u * s * (1 + g * (1 - s))).cast[grad_gate.dtype]()

        foreach[target=target](f, grad_gate, ctx)
