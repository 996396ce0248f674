"""Single numbers of any dtype, by c10's codes."""

from std.memory import Pointer

from torch.cxx import SCALAR_BOOL, SCALAR_DOUBLE, SCALAR_INT
from torch.words import load, store


@always_inline
def is_floating(dtype: Int) -> Bool:
    """Tells whether kernels take numbers of a dtype as floating-point ones."""
    return dtype >= 5 and dtype <= 7 or dtype == 15


@always_inline
def is_integral(dtype: Int) -> Bool:
    return dtype <= 4 or dtype == 11


@always_inline
def number_of(scalar: Int, into: Int) -> Bool:
    """Writes a Scalar as a float64 and as an int; returns False for a complex one."""
    var tag = load(scalar, 0) & 0xFFFFFFFF
    var word = load(scalar, 2)
    if tag == SCALAR_DOUBLE:
        store(into, 0, word)
        var value = Pointer(to=word).unsafe_bitcast[Float64]()[]
        store(into, 1, Int(value) if abs(value) < 9.0e18 else 0)
        return True
    if tag == SCALAR_BOOL:
        word &= 1
    elif tag != SCALAR_INT:
        return False
    var value = Float64(word)
    store(into, 0, Pointer(to=value).unsafe_bitcast[Int]()[])
    store(into, 1, word)
    return True


@always_inline
def read[dtype: DType](address: Int) -> Scalar[dtype]:
    return Pointer[Scalar[dtype], MutAnyOrigin](unsafe_from_address=address)[]


@always_inline
def write[dtype: DType](address: Int, real: Float64, whole: Int, integral: Bool):
    comptime if dtype.is_floating_point():
        var value = Scalar[dtype](whole) if integral else real.cast[dtype]()
        Pointer[Scalar[dtype], MutAnyOrigin](unsafe_from_address=address)[] = value
    else:
        var value = Scalar[dtype](whole) if integral else Scalar[dtype](Int(real))
        Pointer[Scalar[dtype], MutAnyOrigin](unsafe_from_address=address)[] = value


@always_inline
def convert(source: Int, from_address: Int, dtype: Int, to: Int) -> Bool:
    """Converts one number; returns False if one of the dtypes is none of these."""
    var real = Float64(0)
    var whole = 0
    if source == 0:
        whole = Int(read[DType.uint8](from_address))
    elif source == 1:
        whole = Int(read[DType.int8](from_address))
    elif source == 2:
        whole = Int(read[DType.int16](from_address))
    elif source == 3:
        whole = Int(read[DType.int32](from_address))
    elif source == 4:
        whole = Int(read[DType.int64](from_address))
    elif source == 5:
        real = read[DType.float16](from_address).cast[DType.float64]()
    elif source == 6:
        real = read[DType.float32](from_address).cast[DType.float64]()
    elif source == 7:
        real = read[DType.float64](from_address)
    elif source == 11:
        whole = Int(read[DType.uint8](from_address) & 1)
    elif source == 15:
        real = read[DType.bfloat16](from_address).cast[DType.float64]()
    else:
        return False
    var integral = is_integral(source)
    if dtype == 0:
        write[DType.uint8](to, real, whole, integral)
    elif dtype == 1:
        write[DType.int8](to, real, whole, integral)
    elif dtype == 2:
        write[DType.int16](to, real, whole, integral)
    elif dtype == 3:
        write[DType.int32](to, real, whole, integral)
    elif dtype == 4:
        write[DType.int64](to, real, whole, integral)
    elif dtype == 5:
        write[DType.float16](to, real, whole, integral)
    elif dtype == 6:
        write[DType.float32](to, real, whole, integral)
    elif dtype == 7:
        write[DType.float64](to, real, whole, integral)
    elif dtype == 11:
        write[DType.uint8](to, real, Int(whole != 0 or real != 0), True)
    elif dtype == 15:
        write[DType.bfloat16](to, real, whole, integral)
    else:
        return False
    return True
