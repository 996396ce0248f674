"""One step of a reduction: what generated libraries of reductions stand on.

An accumulator is 8 bytes: a float64 for floating-point numbers, an int64 for integers.
"""

from std.memory import Pointer
from std.sys import simd_width_of

from torch.words import WordPtr

comptime Step = def(source: Int, count: Int, step: Int, acc: WordPtr) thin abi("C") -> None
comptime accum_of[T: DType] = DType.float64 if T.is_floating_point() else DType.int64

comptime SUM = 0
comptime PROD = 1
comptime MAX = 2
comptime MIN = 3
comptime ANY = 4
comptime ALL = 5
comptime OPERATIONS = 6


@always_inline
def combine[
    op: Int, dtype: DType, width: Int
](acc: SIMD[dtype, width], x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime if op == SUM:
        return acc + x
    elif op == PROD:
        return acc * x
    elif op == MAX:
        return (acc.gt(x) | ~acc.eq(acc)).select(acc, x)
    elif op == MIN:
        return (acc.lt(x) | ~acc.eq(acc)).select(acc, x)
    elif op == ANY:
        return (~acc.eq(0) | ~x.eq(0)).cast[dtype]()
    else:
        return (~acc.eq(0) & ~x.eq(0)).cast[dtype]()


@always_inline
def fold[op: Int, dtype: DType, width: Int](x: SIMD[dtype, width]) -> Scalar[dtype]:
    var found = x[0]
    comptime for lane in range(1, width):
        found = combine[op, dtype, 1](found, x[lane])[0]
    return found


def inner[op: Int, T: DType](source: Int, count: Int, step: Int, acc: WordPtr) abi("C"):
    """Combines elements into one accumulator."""
    comptime A = accum_of[T]
    comptime W = 2 * simd_width_of[A]()
    var data = Pointer[Scalar[T], MutAnyOrigin](unsafe_from_address=source)
    var cell = Pointer[Scalar[A], MutAnyOrigin](unsafe_from_address=Int(acc))
    var found = cell[]
    var i = 0
    if step == 1 and count >= 2 * W:
        var first = data.unsafe_load[W]().cast[A]()
        var second = data.unsafe_offset(W).unsafe_load[W]().cast[A]()
        comptime if op >= ANY:
            first = combine[op](first, first)
            second = combine[op](second, second)
        i = 2 * W
        while i + 2 * W <= count:
            first = combine[op](first, data.unsafe_offset(i).unsafe_load[W]().cast[A]())
            second = combine[op](second, data.unsafe_offset(i + W).unsafe_load[W]().cast[A]())
            i += 2 * W
        found = combine[op, A, 1](found, fold[op](combine[op](first, second)))[0]
    while i < count:
        found = combine[op, A, 1](found, data.unsafe_offset(i * step)[].cast[A]())[0]
        i += 1
    cell[] = found


def outer[op: Int, T: DType](source: Int, count: Int, step: Int, acc: WordPtr) abi("C"):
    """Combines each of the elements into an accumulator of its own."""
    comptime A = accum_of[T]
    comptime W = 2 * simd_width_of[A]()
    var data = Pointer[Scalar[T], MutAnyOrigin](unsafe_from_address=source)
    var cells = Pointer[Scalar[A], MutAnyOrigin](unsafe_from_address=Int(acc))
    var i = 0
    if step == 1:
        while i + W <= count:
            var x = data.unsafe_offset(i).unsafe_load[W]().cast[A]()
            cells.unsafe_offset(i).unsafe_store(
                combine[op](cells.unsafe_offset(i).unsafe_load[W](), x)
            )
            i += W
    while i < count:
        var x = data.unsafe_offset(i * step)[].cast[A]()
        cells.unsafe_offset(i)[] = combine[op, A, 1](cells.unsafe_offset(i)[], x)[0]
        i += 1


def best[most: Bool, T: DType](source: Int, count: Int, step: Int, acc: WordPtr) abi("C"):
    """Finds the first of the largest or smallest elements; nan counts as both. The accumulator is its number."""
    var data = Pointer[Scalar[T], MutAnyOrigin](unsafe_from_address=source)
    var found = data[]
    var at = 0
    for i in range(1, count):
        var x = data.unsafe_offset(i * step)[]
        var better = x > found if most else x < found
        if found == found and (better or x != x):
            found = x
            at = i
    acc[] = at


def fill_table[T: DType](table: WordPtr):
    """Writes the addresses of all steps for a dtype: of each operation inner and outer, then both best."""
    comptime for op in range(OPERATIONS):
        var f: Step = inner[op, T]
        var g: Step = outer[op, T]
        table[unsafe_offset=2 * op] = Pointer(to=f).unsafe_bitcast[Int]()[]
        table[unsafe_offset=2 * op + 1] = Pointer(to=g).unsafe_bitcast[Int]()[]
    var most: Step = best[True, T]
    var least: Step = best[False, T]
    table[unsafe_offset=2 * OPERATIONS] = Pointer(to=most).unsafe_bitcast[Int]()[]
    table[unsafe_offset=2 * OPERATIONS + 1] = Pointer(to=least).unsafe_bitcast[Int]()[]
