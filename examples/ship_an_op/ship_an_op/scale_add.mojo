"""x + alpha * y."""

import extensibility
from extensibility import InputTensor, OutputTensor, foreach
from layout import Coord
from max.gpu.host import DeviceContext


@extensibility.register("scale_add")
struct ScaleAdd:
    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        y: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        alpha: Float32,
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](at: Coord) {var x, var y, var alpha} -> SIMD[output.dtype, width]:
            return x.load[width](at) + alpha.cast[output.dtype]() * y.load[width](at)

        foreach[target=target](f, output, ctx)
