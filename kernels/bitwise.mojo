"""And, or, xor, not and shifts, elementwise."""

import extensibility
from extensibility import _FusedInputTensor as FusedInputTensor
from extensibility import _FusedOutputTensor as FusedOutputTensor
from extensibility import foreach
from layout import Coord
from max.gpu.host import DeviceContext
from std.sys import bit_width_of


@always_inline
def combine[
    operation: StaticString, dtype: DType, width: Int
](a: SIMD[dtype, width], b: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Returns `a operation b`; a shift by a count out of range leaves nothing but the sign."""
    comptime if operation == "and":
        return a & b
    elif operation == "or":
        return a | b
    elif operation == "xor":
        return a ^ b
    elif dtype == .bool:
        return a  # the declaration refuses to shift bools
    comptime none = SIMD[dtype, width](0)
    comptime last = SIMD[dtype, width](Scalar[dtype](bit_width_of[dtype]() - 1))
    var outside = b.gt(last)
    comptime if dtype.is_signed():
        outside |= b.lt(none)
    comptime if operation == "left_shift":
        return outside.select(none, a << outside.select(none, b))
    elif dtype.is_signed():
        return a >> outside.select(last, b)
    else:
        return outside.select(none, a >> outside.select(none, b))


@extensibility.register("bitwise")
struct Bitwise[operation: StaticString]:
    """Tensor and tensor, both cast to the dtype of the output first."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: FusedOutputTensor,
        input: FusedInputTensor[rank=output.rank, ...],
        other: FusedInputTensor[rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](idx: Coord) {var input, var other} -> SIMD[output.dtype, width]:
            return combine[Self.operation](
                input._fused_load[width](idx).cast[output.dtype](),
                other._fused_load[width](idx).cast[output.dtype](),
            )

        foreach[target=target](f, output, ctx)


@extensibility.register("bitwise_scalar")
struct BitwiseScalar[operation: StaticString]:
    """Tensor and number."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: FusedOutputTensor,
        input: FusedInputTensor[rank=output.rank, ...],
        other: Int64,
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](idx: Coord) {var input, var other} -> SIMD[output.dtype, width]:
            return combine[Self.operation](
                input._fused_load[width](idx).cast[output.dtype](),
                SIMD[output.dtype, width](other.cast[output.dtype]()),
            )

        foreach[target=target](f, output, ctx)


@extensibility.register("bitwise_scalar_tensor")
struct BitwiseScalarTensor[operation: StaticString]:
    """Number and tensor."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: FusedOutputTensor,
        input: Int64,
        other: FusedInputTensor[rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](idx: Coord) {var input, var other} -> SIMD[output.dtype, width]:
            return combine[Self.operation](
                SIMD[output.dtype, width](input.cast[output.dtype]()),
                other._fused_load[width](idx).cast[output.dtype](),
            )

        foreach[target=target](f, output, ctx)


@extensibility.register("bitwise_not")
struct BitwiseNot:
    """All bits the other way; of a bool, its negation."""

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
            return ~input._fused_load[width](idx)

        foreach[target=target](f, output, ctx)
