"""The first and second derivative of GELU, times a gradient, elementwise."""

import extensibility
from extensibility import _FusedInputTensor as FusedInputTensor
from extensibility import _FusedOutputTensor as FusedOutputTensor
from extensibility import foreach
from layout import Coord
from max.gpu.host import DeviceContext
from std.math import erf, exp
from std.utils.numerics import isnan

from logistic import logistic

comptime accum_of[dtype: DType] = DType.float64 if dtype == .float64 else DType.float32


@always_inline
def derivative[
    approximate: StaticString, order: Int, dtype: DType, width: Int
](x: SIMD[dtype, width]) -> SIMD[dtype, width] where dtype.is_floating_point():
    """Returns the derivative of x * P(x), where P is the normal distribution or its approximation.

    That is s(2 * k * (x + a * x^3)) with the logistic function s, which 0.5 * (1 + tanh) is.
    """
    comptime if approximate == "tanh":
        comptime k = 0.7978845608028654  # sqrt(2 / pi)
        comptime a = 0.044715
        var square = x * x
        var inner = 2 * k * x * (1 + a * square)
        var slope = 2 * k * (1 + 3 * a * square)
        var s = logistic(inner)
        var flat = s * (1 - s)
        # far out flat is 0 and the rest infinite
        comptime if order == 1:
            return s + flat.eq(0).select(SIMD[dtype, width](0), flat * x * slope)
        var bend = x * (12 * k * a * x + (1 - 2 * s) * slope * slope)
        return flat.eq(0).select(SIMD[dtype, width](0), flat * (2 * slope + bend))
    else:
        var density = 0.3989422804014327 * exp(-0.5 * x * x)  # 1 / sqrt(2 * pi)
        comptime if order == 1:
            var p = 0.5 + 0.5 * erf(x * 0.7071067811865476)
            return p + density.eq(0).select(SIMD[dtype, width](0), x * density)
        return density.eq(0).select(SIMD[dtype, width](0), density * (2 - x * x))


@extensibility.register("gelu_backward")
struct GeluBackward[order: Int]:
    """A gradient times the derivative at `self`."""

    @staticmethod
    def execute[
        target: StaticString, approximate: StaticString
    ](
        output: FusedOutputTensor,
        grad_output: FusedInputTensor[rank=output.rank, ...],
        self: FusedInputTensor[rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime accum = accum_of[output.dtype]
        comptime assert accum.is_floating_point()

        @always_inline
        def f[width: Int](idx: Coord) {var grad_output, var self} -> SIMD[output.dtype, width]:
            var g = grad_output._fused_load[width](idx).cast[accum]()
            var x = self._fused_load[width](idx).cast[accum]()
            var d = isnan(x).select(x, derivative[approximate, Self.order](x))
            return (g * d).cast[output.dtype]()

        foreach[target=target](f, output, ctx)
