"""One row of an elementwise kernel: what generated libraries of such kernels stand on.

A kernel gets addresses and steps of its output and of up to three inputs, in this order. A step is in elements; 0
repeats one. `params` has two words for each number of the call: as a float64 and as an int.
"""

from std.ffi import external_call
from std.math import erf, exp, exp2, sqrt, tanh
from std.memory import Pointer

from aten_lines import NO_FAULT, fault_of
from aten_pointwise import integer_power, of_floats, of_integers, unary
from torch.words import WordPtr, load

comptime Row = def(
    addresses: WordPtr, steps: WordPtr, count: Int, params: WordPtr
) thin abi("C") -> None


comptime accum_of[dtype: DType] = DType.float32 if dtype == DType.float16 or dtype == DType.bfloat16 else dtype
"""What numbers are computed in."""


@always_inline
def at[dtype: DType](addresses: WordPtr, i: Int) -> Pointer[Scalar[dtype], MutAnyOrigin]:
    return Pointer[Scalar[dtype], MutAnyOrigin](unsafe_from_address=addresses[unsafe_offset=i])


@always_inline
def number[dtype: DType](params: WordPtr, i: Int) -> Scalar[dtype]:
    """Returns a number of the call."""
    comptime if dtype.is_floating_point():
        var word = params[unsafe_offset=2 * i]
        return Pointer(to=word).unsafe_bitcast[Float64]()[].cast[dtype]()
    else:
        return Scalar[dtype](params[unsafe_offset=2 * i + 1])


@always_inline
def fetch[
    dtype: DType, accum: DType, width: Int, step: Int
](address: Pointer[Scalar[dtype], MutAnyOrigin], i: Int) -> SIMD[accum, width]:
    """Reads elements that stand one behind another, or repeats one."""
    comptime if step == 0:
        return SIMD[accum, width](address[].cast[accum]())
    else:
        return address.unsafe_offset(i).unsafe_load[width]().cast[accum]()


@always_inline
def one_by_one[
    function: StaticString, dtype: DType, width: Int
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Applies a function of one floating-point number."""
    var result = SIMD[dtype, width]()
    comptime for lane in range(width):
        result[lane] = unary[function](x[lane])
    return result


@always_inline
def pair_by_pair[
    function: StaticString, dtype: DType, width: Int
](a: SIMD[dtype, width], b: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Applies a function of two numbers; a quotient by the integer 0 is 0."""
    var result = SIMD[dtype, width]()
    comptime if dtype.is_floating_point():
        comptime for lane in range(width):
            result[lane] = of_floats[function](a[lane], b[lane])
    else:
        var word = NO_FAULT
        var fault = fault_of(word)
        comptime for lane in range(width):
            result[lane] = of_integers[function](a[lane], b[lane], fault)
    return result


@always_inline
def power_of[
    dtype: DType, width: Int
](a: SIMD[dtype, width], b: SIMD[dtype, width]) -> SIMD[dtype, width]:
    var result = SIMD[dtype, width]()
    comptime for lane in range(width):
        comptime if dtype == DType.float64:
            result[lane] = external_call["pow", Scalar[dtype]](a[lane], b[lane])
        elif dtype == DType.float32:
            result[lane] = external_call["powf", Scalar[dtype]](a[lane], b[lane])
        else:
            result[lane] = integer_power(a[lane], b[lane])
    return result


@always_inline
def greater[
    dtype: DType, width: Int
](a: SIMD[dtype, width], b: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Returns the larger numbers; nan if one is nan."""
    return (a.gt(b) | ~a.eq(a)).select(a, b)


@always_inline
def smaller[
    dtype: DType, width: Int
](a: SIMD[dtype, width], b: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Returns the smaller numbers; nan if one is nan."""
    return (a.lt(b) | ~a.eq(a)).select(a, b)


@always_inline
def logistic[dtype: DType, width: Int](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime assert dtype.is_floating_point()
    return 1 / (1 + exp_of(-x))


@always_inline
def gelu_slope[dtype: DType, width: Int](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Returns the derivative of x * Phi(x)."""
    comptime assert dtype.is_floating_point()
    var density = exp_of(-0.5 * x * x) * 0.3989422804014327
    return 0.5 * (1 + erf(x * 0.7071067811865476)) + x * density


@always_inline
def gelu_tanh_slope[dtype: DType, width: Int](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime assert dtype.is_floating_point()
    var t = tanh_of(0.7978845608028654 * (x + 0.044715 * x * x * x))
    var inner = 0.7978845608028654 * (1 + 3 * 0.044715 * x * x)
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner


@always_inline
def round_even[dtype: DType, width: Int](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Rounds to the nearest whole number, halves to the even one."""
    return x.__round__()


@always_inline
def raised[
    dtype: DType, width: Int
](x: SIMD[dtype, width], exponent: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Returns powers of one exponent, which is often small."""
    comptime assert dtype.is_floating_point()
    if exponent[0] == 2:
        return x * x
    if exponent[0] == 3:
        return x * x * x
    if exponent[0] == 0.5:
        return sqrt(x)
    return power_of(x, exponent)


@always_inline
def exp_of[dtype: DType, width: Int](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Returns exp(x), of nan nan: Mojo's takes it for a large number."""
    comptime assert dtype.is_floating_point()
    return x.eq(x).select(exp(x), x)


@always_inline
def exp2_of[dtype: DType, width: Int](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Returns 2 ** x; Mojo's stops at the largest exponent."""
    comptime assert dtype.is_floating_point()
    comptime most = 1024 if dtype == DType.float64 else 128
    comptime infinite = SIMD[dtype, width](Scalar[dtype].MAX)
    var found = x.ge(SIMD[dtype, width](most)).select(infinite, exp2(x))
    found = x.lt(SIMD[dtype, width](-most - 60)).select(SIMD[dtype, width](0), found)
    return x.eq(x).select(found, x)


@always_inline
def tanh_of[dtype: DType, width: Int](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime assert dtype.is_floating_point()
    return x.eq(x).select(tanh(x), x)


@always_inline
def lerped[
    dtype: DType, width: Int
](a: SIMD[dtype, width], b: SIMD[dtype, width], weight: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Goes from a to b, from the nearer end."""
    var near = abs(weight).lt(0.5)
    return near.select(a + weight * (b - a), b - (b - a) * (1 - weight))
