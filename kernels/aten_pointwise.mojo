"""Functions of one and of two numbers, elementwise, as ATen computes them.

Each element is taken by itself, in the dtype of the result; halves in float32.
"""

import extensibility
from extensibility import _FusedInputTensor as FusedInputTensor
from extensibility import _FusedOutputTensor as FusedOutputTensor
from extensibility import foreach
from layout import Coord
from max.gpu.host import DeviceContext
from std.ffi import external_call
from std.math import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    copysign,
    cosh,
    floor,
    hypot,
    lgamma,
    nextafter,
    sinh,
    tan,
    trunc,
)
from std.sys import is_gpu
from std.utils.numerics import isinf, isnan, nan

from aten_lines import NO_FAULT, Fault, fault_of
from aten_special import (
    bessel_i,
    digamma,
    erfc_of,
    erfcx,
    erfinv,
    ndtri,
    trigamma,
    zeta,
)

comptime accum_of[dtype: DType] = DType.float32 if dtype.is_half_float() else dtype


@always_inline
def in_c[
    function: StaticString, of_float: StaticString, dtype: DType
](x: Scalar[dtype]) -> Scalar[dtype]:
    """Returns a function of the C library."""
    comptime if dtype == .float64:
        return external_call[function, Scalar[dtype]](x)
    else:
        return external_call[of_float, Scalar[dtype]](x)


@always_inline
def elementary[function: StaticString, dtype: DType](x: Scalar[dtype]) -> Scalar[dtype]:
    """Returns what the C library has; Mojo's own, which a GPU has to do with, does not know where there is none."""
    comptime assert dtype.is_floating_point()
    comptime if not is_gpu():
        comptime if function == "acos":
            return in_c["acos", "acosf"](x)
        comptime if function == "acosh":
            return in_c["acosh", "acoshf"](x)
        comptime if function == "asin":
            return in_c["asin", "asinf"](x)
        comptime if function == "asinh":
            return in_c["asinh", "asinhf"](x)
        comptime if function == "atan":
            return in_c["atan", "atanf"](x)
        comptime if function == "atanh":
            return in_c["atanh", "atanhf"](x)
        comptime if function == "cosh":
            return in_c["cosh", "coshf"](x)
        comptime if function == "sinh":
            return in_c["sinh", "sinhf"](x)
        comptime if function == "tan":
            return in_c["tan", "tanf"](x)
        comptime if function == "lgamma":
            return in_c["lgamma", "lgammaf"](x)
        comptime if function == "bessel_j0":
            return in_c["j0", "j0f"](x)
        comptime if function == "bessel_j1":
            return in_c["j1", "j1f"](x)
        comptime if function == "bessel_y0":
            return in_c["y0", "y0f"](x)
        comptime if function == "bessel_y1":
            return in_c["y1", "y1f"](x)
    comptime if function == "acos":
        return acos(x) if abs(x) <= 1 else nan[dtype]()
    elif function == "acosh":
        return acosh(x) if x >= 1 else nan[dtype]()
    elif function == "asin":
        return asin(x) if abs(x) <= 1 else nan[dtype]()
    elif function == "asinh":
        return asinh(x)
    elif function == "atan":
        return atan(x)
    elif function == "atanh":
        return atanh(x) if abs(x) <= 1 else nan[dtype]()
    elif function == "cosh":
        return cosh(x)
    elif function == "sinh":
        return sinh(x)
    elif function == "tan":
        return tan(x)
    elif function == "lgamma":
        return abs(x) if isinf(x) else lgamma(x)
    else:
        comptime assert False, "no such function"


@always_inline
def unary[function: StaticString, dtype: DType](x: Scalar[dtype]) -> Scalar[dtype]:
    """Returns a function of a floating-point number."""
    comptime if function == "erfc":
        return erfc_of(x)
    elif function == "erfinv":
        return erfinv(x)
    elif function == "erfcx":
        return erfcx(x.cast[DType.float64]()).cast[dtype]()
    elif function == "digamma":
        return digamma(x)
    elif function == "trigamma":
        return trigamma(x)
    elif function == "ndtri":
        return ndtri(x)
    elif function == "i0":
        return bessel_i[0, False](x)
    elif function == "i0e":
        return bessel_i[0, True](x)
    elif function == "i1":
        return bessel_i[1, False](x)
    elif function == "i1e":
        return bessel_i[1, True](x)
    elif function.startswith("bessel_"):
        return nan[dtype]() if isinf(x) else elementary[function](x)
    else:
        return elementary[function](x)


@always_inline
def pair_in_c[
    function: StaticString, of_float: StaticString, dtype: DType
](a: Scalar[dtype], b: Scalar[dtype]) -> Scalar[dtype]:
    """Returns a function of two numbers of the C library."""
    comptime if dtype == .float64:
        return external_call[function, Scalar[dtype]](a, b)
    else:
        return external_call[of_float, Scalar[dtype]](a, b)


@always_inline
def fmod[dtype: DType](a: Scalar[dtype], b: Scalar[dtype]) -> Scalar[dtype]:
    """Returns what is left of a after taking b off as often as it goes, with the sign of a; it is exact."""
    comptime assert dtype.is_floating_point()
    comptime if not is_gpu():
        return pair_in_c["fmod", "fmodf"](a, b)
    if isnan(a) or isnan(b) or isinf(a) or b == 0:
        return nan[dtype]()
    if isinf(b):
        return a
    var rest = abs(a)
    var least = abs(b)
    var piece = least
    while piece <= rest - piece:
        piece += piece
    while piece > least:
        if rest >= piece:
            rest -= piece
        piece /= 2
    if rest >= least:
        rest -= least
    return copysign(rest, a)


@always_inline
def floored[dtype: DType](a: Scalar[dtype], b: Scalar[dtype]) -> Scalar[dtype]:
    """Returns a / b rounded down, with Python's care for what rounding the quotient would hide."""
    comptime assert dtype.is_floating_point()
    if b == 0:
        return a / b
    var rest = fmod(a, b)
    var quotient = (a - rest) / b
    if rest != 0 and (b < 0) != (rest < 0):
        quotient -= 1
    if quotient == 0:
        return copysign(Scalar[dtype](0), a / b)
    var down = floor(quotient)
    return down + 1 if quotient - down > 0.5 else down


@always_inline
def of_floats[
    function: StaticString, dtype: DType
](a: Scalar[dtype], b: Scalar[dtype]) -> Scalar[dtype]:
    """Returns a function of two floating-point numbers."""
    comptime assert dtype.is_floating_point()
    comptime if not is_gpu():
        comptime if function == "atan2":
            return pair_in_c["atan2", "atan2f"](a, b)
        elif function == "hypot":
            return pair_in_c["hypot", "hypotf"](a, b)
    comptime if function == "atan2":
        return atan2(a, b)
    elif function == "copysign":
        return copysign(a, b)
    elif function == "fmax":
        return b if isnan(a) or b > a else a
    elif function == "fmin":
        return b if isnan(a) or b < a else a
    elif function == "hypot":
        return hypot(a, b)
    elif function == "fmod":
        return fmod(a, b)
    elif function == "remainder":
        var rest = fmod(a, b)
        return rest + b if rest != 0 and (b < 0) != (rest < 0) else rest
    elif function == "div_floor":
        return floored(a, b)
    elif function == "div_trunc":
        return trunc(a / b)
    elif function == "zeta":
        return zeta(a, b)
    else:
        comptime assert False, "no such function"


@always_inline
def quotient[dtype: DType](a: Scalar[dtype], b: Scalar[dtype]) -> Scalar[dtype]:
    """Returns a / b rounded towards 0; b is not 0."""
    comptime if dtype.is_unsigned():
        return a // b
    if b == -1:
        return 0 - a  # the processor stops at the quotient that has no place
    var down = a // b
    return down + 1 if down * b != a and (a < 0) != (b < 0) else down


@always_inline
def greatest_divisor[dtype: DType](first: Scalar[dtype], second: Scalar[dtype]) -> Scalar[dtype]:
    """Returns the greatest common divisor."""
    var a = abs(first)
    var b = abs(second)
    while a != 0:
        var rest = b - quotient(b, a) * a
        b = a
        a = rest
    return b


@always_inline
def integer_power[dtype: DType](base: Scalar[dtype], exponent: Scalar[dtype]) -> Scalar[dtype]:
    """Returns base ** exponent, cut off; of a negative exponent, the quotient rounded towards 0."""
    var a = base
    var b = exponent
    if b < 0:
        if a == -1:
            return 1 if b & 1 == 0 else a
        return 1 if a == 1 else 0
    var result = Scalar[dtype](1)
    while b != 0:
        if b & 1 != 0:
            result *= a
        b >>= 1
        a *= a
    return result


@always_inline
def of_integers[
    function: StaticString, dtype: DType
](a: Scalar[dtype], b: Scalar[dtype], fault: Fault) -> Scalar[dtype]:
    """Returns a function of two integers; a division by zero is reported, and is 0."""
    comptime if function == "gcd":
        return greatest_divisor(a, b)
    elif function == "lcm":
        var divisor = greatest_divisor(a, b)
        return 0 if divisor == 0 else abs(quotient(a, divisor) * b)
    elif function == "pow":
        return integer_power(a, b)
    else:
        if b == 0:
            comptime if not is_gpu():
                fault[] = 0
            return 0
        var cut = quotient(a, b)
        comptime if function == "div_trunc":
            return cut
        var rest = a - cut * b
        comptime if function == "fmod":
            return rest
        var wrong = rest != 0 and (rest < 0) != (b < 0)
        comptime if function == "remainder":
            return rest + b if wrong else rest
        elif function == "div_floor":
            return cut - 1 if wrong else cut
        else:
            comptime assert False, "no such function"


@extensibility.register("aten_unary")
struct Unary[function: StaticString]:
    """A function of each number, cast to the dtype of the output first."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: FusedOutputTensor,
        input: FusedInputTensor[rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime accum = accum_of[output.dtype]

        @always_inline
        def f[width: Int](idx: Coord) {var input} -> SIMD[output.dtype, width]:
            var x = input._fused_load[width](idx).cast[output.dtype]().cast[accum]()
            var result = SIMD[accum, width]()
            comptime for lane in range(width):
                result[lane] = unary[Self.function](x[lane])
            return result.cast[output.dtype]()

        foreach[target=target](f, output, ctx)


@extensibility.register("aten_signbit")
struct SignBit:
    """Whether a number is less than 0 or, of floating-point numbers, has a minus."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: FusedOutputTensor[dtype=DType.bool, ...],
        input: FusedInputTensor[rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](idx: Coord) {var input} -> SIMD[output.dtype, width]:
            var x = input._fused_load[width](idx)
            comptime if x.dtype.is_floating_point():
                x = copysign(SIMD[x.dtype, width](1), x)
            return x.lt(SIMD[x.dtype, width](0)).cast[output.dtype]()

        foreach[target=target](f, output, ctx)


@extensibility.register("aten_nextafter")
struct NextAfter:
    """The number behind the first one, in the direction of the second."""

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
            return nextafter(
                input._fused_load[width](idx).cast[output.dtype](),
                other._fused_load[width](idx).cast[output.dtype](),
            )

        foreach[target=target](f, output, ctx)


@extensibility.register("aten_binary")
struct Binary[function: StaticString]:
    """A function of two numbers, cast to the dtype of the output first."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: FusedOutputTensor,
        input: FusedInputTensor[rank=output.rank, ...],
        other: FusedInputTensor[rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime accum = accum_of[output.dtype]
        var word = NO_FAULT
        var fault = fault_of(word)

        @always_inline
        def f[
            width: Int
        ](idx: Coord) {var input, var other, var fault} -> SIMD[output.dtype, width]:
            var a = input._fused_load[width](idx).cast[output.dtype]().cast[accum]()
            var b = other._fused_load[width](idx).cast[output.dtype]().cast[accum]()
            var result = SIMD[accum, width]()
            comptime for lane in range(width):
                comptime if accum.is_floating_point():
                    result[lane] = of_floats[Self.function](a[lane], b[lane])
                else:
                    result[lane] = of_integers[Self.function](a[lane], b[lane], fault)
            return result.cast[output.dtype]()

        foreach[target=target](f, output, ctx)
        if word != NO_FAULT:
            raise Error("ZeroDivisionError")
