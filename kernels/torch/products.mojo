"""Matrix products of one dtype: what generated libraries of them stand on.

A task computes a block of rows times one panel of columns, which is copied first so that it lies in one piece.
"""

from std.ffi import external_call
from std.memory import Pointer
from std.sys import simd_width_of, size_of
from std.utils.static_tuple import StaticTuple

from torch.words import WordPtr, load

comptime Task = def(begin: Int64, end: Int64, work: WordPtr) thin abi("C") -> None
comptime accum_of[T: DType] = DType.float32 if T == DType.float16 or T == DType.bfloat16 else T

comptime ROWS = 96  # of a task
comptime STRIP = 6  # rows that are computed together
comptime FEW = 4  # rows for which the panel is not copied

# words of a product
comptime P_A = 0
comptime P_B = 1
comptime P_C = 2
comptime P_BIAS = 3
comptime P_M = 4
comptime P_N = 5
comptime P_K = 6
comptime P_A_STEPS = 7  # of rows and columns
comptime P_B_STEPS = 9
comptime P_C_STEPS = 11
comptime P_BIAS_STEPS = 13
comptime P_ALPHA = 15  # float64
comptime P_BETA = 16
comptime P_BATCH_STEPS = 17  # of a, b, c and bias


@always_inline
def columns_of[T: DType]() -> Int:
    return 2 * simd_width_of[accum_of[T]]()


@always_inline
def strip[
    T: DType, rows: Int
](
    work: Int,
    a: Pointer[Scalar[T], MutAnyOrigin],
    panel: Pointer[Scalar[T], MutAnyOrigin],
    panel_step: Int,
    c: Int,
    bias: Int,
    column: Int,
    row: Int,
    count: Int,
):
    """Computes `rows` rows of `count` columns."""
    comptime A = accum_of[T]
    comptime W = simd_width_of[A]()
    var acc = StaticTuple[SIMD[A, W], 2 * rows](fill=SIMD[A, W](0))
    var step = load(work, P_A_STEPS)
    var along = load(work, P_A_STEPS + 1)
    for k in range(load(work, P_K)):
        var left = panel.unsafe_offset(k * panel_step).unsafe_load[W]().cast[A]()
        var right = panel.unsafe_offset(k * panel_step + W).unsafe_load[W]().cast[A]()
        comptime for r in range(rows):
            var x = SIMD[A, W](a.unsafe_offset(r * step + k * along)[].cast[A]())
            acc[2 * r] = x.fma(left, acc[2 * r])
            acc[2 * r + 1] = x.fma(right, acc[2 * r + 1])
    var alpha = Pointer[Float64, MutAnyOrigin](unsafe_from_address=work + P_ALPHA * 8)[].cast[A]()
    var beta = Pointer[Float64, MutAnyOrigin](unsafe_from_address=work + P_BETA * 8)[].cast[A]()
    var out = Pointer[Scalar[T], MutAnyOrigin](unsafe_from_address=c)
    var added = Pointer[Scalar[T], MutAnyOrigin](unsafe_from_address=bias if bias != 0 else 64)
    comptime for r in range(rows):
        var at = (row + r) * load(work, P_C_STEPS) + column * load(work, P_C_STEPS + 1)
        var from_ = (row + r) * load(work, P_BIAS_STEPS) + column * load(work, P_BIAS_STEPS + 1)
        comptime for half in range(2):
            var whole = count >= (half + 1) * W
            if whole and load(work, P_C_STEPS + 1) == 1 and bias == 0:
                out.unsafe_offset(at + half * W).unsafe_store((alpha * acc[2 * r + half]).cast[T]())
                continue
            for j in range(min(max(count - half * W, 0), W)):
                var value = alpha * acc[2 * r + half][j]
                var col = half * W + j
                if bias != 0:
                    var own = added.unsafe_offset(from_ + col * load(work, P_BIAS_STEPS + 1))[]
                    value += beta * own.cast[A]()
                out.unsafe_offset(at + col * load(work, P_C_STEPS + 1))[] = value.cast[T]()


def run[T: DType](begin: Int64, end: Int64, product: WordPtr) abi("C"):
    """Computes tasks begin to end: of each matrix of the batch, of each block of rows, of each panel."""
    comptime N = 2 * simd_width_of[accum_of[T]]()
    comptime BYTES = size_of[Scalar[T]]()
    var work = Int(product)
    var m = load(work, P_M)
    var n = load(work, P_N)
    var k = load(work, P_K)
    var panels = (n + N - 1) // N
    var blocks = (m + ROWS - 1) // ROWS
    var memory = external_call["malloc", Int](max(k, 1) * N * BYTES + 64)
    var panel = Pointer[Scalar[T], MutAnyOrigin](unsafe_from_address=memory)
    for task in range(Int(begin), Int(end)):
        var column = task % panels * N
        var block = task // panels % blocks
        var batch = task // (panels * blocks)
        var count = min(N, n - column)
        var a = load(work, P_A) + batch * load(work, P_BATCH_STEPS) * BYTES
        var b = load(work, P_B) + batch * load(work, P_BATCH_STEPS + 1) * BYTES
        var c = load(work, P_C) + batch * load(work, P_BATCH_STEPS + 2) * BYTES
        var bias = load(work, P_BIAS)
        if bias != 0:
            bias += batch * load(work, P_BATCH_STEPS + 3) * BYTES
        var down = load(work, P_B_STEPS)
        var across = load(work, P_B_STEPS + 1)
        var source = Pointer[Scalar[T], MutAnyOrigin](
            unsafe_from_address=b + column * across * BYTES
        )
        var used = panel
        var used_step = N
        if across == 1 and count == N and m < FEW:
            used = source
            used_step = down
        elif across == 1:
            for i in range(k):
                for j in range(count):
                    panel.unsafe_offset(i * N + j)[] = source.unsafe_offset(i * down + j)[]
                for j in range(count, N):
                    panel.unsafe_offset(i * N + j)[] = 0
        else:
            for j in range(count):
                for i in range(k):
                    panel.unsafe_offset(i * N + j)[] = source.unsafe_offset(i * down + j * across)[]
            for j in range(count, N):
                for i in range(k):
                    panel.unsafe_offset(i * N + j)[] = 0
        var row = block * ROWS
        var last = min(m, row + ROWS)
        while row < last:
            var rows = Pointer[Scalar[T], MutAnyOrigin](
                unsafe_from_address=a + row * load(work, P_A_STEPS) * BYTES
            )
            if row + STRIP <= last:
                strip[T, STRIP](work, rows, used, used_step, c, bias, column, row, count)
                row += STRIP
            else:
                strip[T, 1](work, rows, used, used_step, c, bias, column, row, count)
                row += 1
    external_call["free", NoneType](memory)


def fill_table[T: DType](table: WordPtr):
    """Writes the address of the task, the columns of a panel and the rows of a block."""
    var f: Task = run[T]
    table[unsafe_offset=0] = Pointer(to=f).unsafe_bitcast[Int]()[]
    table[unsafe_offset=1] = columns_of[T]()
    table[unsafe_offset=2] = ROWS
