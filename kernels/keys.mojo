"""Elements as unsigned numbers in their order: nan is the largest, and both zeros are the same."""

from std.memory import bitcast
from std.sys import size_of
from std.utils.numerics import isnan

comptime key_of[dtype: DType] = DType.uint8 if size_of[dtype]() == 1 else (
    DType.uint16 if size_of[dtype]()
    == 2 else (DType.uint32 if size_of[dtype]() == 4 else DType.uint64)
)


@always_inline
def key[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width], largest: Bool) -> SIMD[key_of[dtype], width]:
    """Returns numbers in the order of the elements, the other way round for the smallest."""
    comptime unsigned = key_of[dtype]
    comptime top = Scalar[unsigned](1) << Scalar[unsigned](8 * size_of[dtype]() - 1)
    var bits: SIMD[unsigned, width]
    comptime if dtype == .bool:
        bits = x.cast[unsigned]()
    else:
        bits = bitcast[unsigned, width](x)
    comptime if dtype.is_floating_point():
        var negative = (bits & top).ne(0)
        bits = negative.select(~bits, bits | top)
        bits = x.eq(0).select(SIMD[unsigned, width](top), bits)
        bits = isnan(x).select(~SIMD[unsigned, width](0), bits)
    elif dtype.is_signed():
        bits ^= top
    return bits if largest else ~bits
