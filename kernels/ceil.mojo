"""Rounding up, elementwise."""

import extensibility
from extensibility import _FusedInputTensor as FusedInputTensor
from extensibility import _FusedOutputTensor as FusedOutputTensor
from extensibility import foreach
from layout import Coord
from max.gpu.host import DeviceContext
from std.math import ceil


@extensibility.register("ceil")
struct Ceil:
    """The smallest integer that is not less than each element; integers are their own."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: FusedOutputTensor,
        input: FusedInputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](idx: Coord) {var input} -> SIMD[output.dtype, width]:
            var x = input._fused_load[width](idx)
            comptime if output.dtype.is_floating_point():
                return ceil(x)
            return x

        foreach[target=target](f, output, ctx)
