"""Two ordinary MAX custom operators; `sub` differs from `add` only to be compiled by itself."""

import extensibility
from extensibility import InputTensor, OutputTensor, foreach
from layout import Coord
from max.gpu.host import DeviceContext


@extensibility.register("add")
struct Add:
    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        a: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        b: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def add[width: Int](at: Coord) {var a, var b} -> SIMD[output.dtype, width]:
            return a.load[width](at) + b.load[width](at)

        foreach[target=target](add, output, ctx)


@extensibility.register("sub")
struct Subtract:
    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        a: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        b: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def subtract[width: Int](at: Coord) {var a, var b} -> SIMD[output.dtype, width]:
            return a.load[width](at) - b.load[width](at)

        foreach[target=target](subtract, output, ctx)
