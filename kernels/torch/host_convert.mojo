"""Copies between tensors of two dtypes: a row for each pair, as those of the table in device/rows.py."""

from std.memory import Pointer
from std.sys import simd_width_of

from torch.words import WordPtr

comptime Conversion = def(
    addresses: WordPtr, steps: WordPtr, count: Int, params: WordPtr
) thin abi("C") -> None

# c10::ScalarType of what is converted; a bool is the byte 0 or 1
comptime CODES = [0, 1, 2, 3, 4, 5, 6, 7, 15]
comptime DTYPES = [
    DType.uint8,
    DType.int8,
    DType.int16,
    DType.int32,
    DType.int64,
    DType.float16,
    DType.float32,
    DType.float64,
    DType.bfloat16,
]
comptime BOOL = 11


@always_inline
def converted[
    S: DType, D: DType, test: Bool, width: Int
](x: SIMD[S, width]) -> SIMD[D, width]:
    """Converts as torch's CPU kernels do: small integers are made of int64."""
    comptime if test:
        return (~x.eq(0)).cast[D]()
    elif S.is_floating_point() and not D.is_floating_point() and D != DType.int32:
        return x.cast[DType.int64]().cast[D]()
    elif S == DType.float64 and (D == DType.float16 or D == DType.bfloat16):
        return x.cast[DType.float32]().cast[D]()
    else:
        return x.cast[D]()


def convert_row[
    S: DType, D: DType, test: Bool
](addresses: WordPtr, steps: WordPtr, count: Int, params: WordPtr) abi("C"):
    var out = Pointer[Scalar[D], MutAnyOrigin](unsafe_from_address=addresses[unsafe_offset=0])
    var source = Pointer[Scalar[S], MutAnyOrigin](unsafe_from_address=addresses[unsafe_offset=1])
    var s0 = steps[unsafe_offset=0]
    var s1 = steps[unsafe_offset=1]
    comptime W = simd_width_of[DType.float32]()
    var i = 0
    if s0 == 1 and s1 == 1:
        while i + W <= count:
            var x = source.unsafe_offset(i).unsafe_load[W]()
            out.unsafe_offset(i).unsafe_store(converted[S, D, test](x))
            i += W
    while i < count:
        out.unsafe_offset(i * s0)[] = converted[S, D, test, 1](source.unsafe_offset(i * s1)[])[0]
        i += 1


@always_inline
def address_of_row[S: DType, D: DType, test: Bool]() -> Int:
    var f: Conversion = convert_row[S, D, test]
    return Pointer(to=f).unsafe_bitcast[Int]()[]


def conversion(source: Int, to: Int) -> Int:
    """Returns the row for two dtypes by their codes, or 0 if one is none of these."""
    var own = 0 if source == BOOL else source
    comptime for i in range(9):
        comptime code = CODES[i]
        if own == code:
            if to == BOOL:
                return address_of_row[DTYPES[i], DType.uint8, True]()
            comptime for j in range(9):
                comptime goal = CODES[j]
                if to == goal:
                    return address_of_row[DTYPES[i], DTYPES[j], False]()
    return 0
