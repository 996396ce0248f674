"""Reductions over rows: what softmax, the norms and their like share.

A tensor is taken as rows x columns: some neighbouring dimensions are the columns, which are reduced, the others number
the rows, whatever the strides. A program is written once, for `width` values at a time, and runs as

- along: a vector holds neighbouring columns of one row. One thread on the CPU; a warp or a block on a GPU, whose
  threads keep `hold` vectors each in registers if the row fits.
- across: a vector holds one column of neighbouring rows, for columns that are not next to each other in memory.
"""

from std.math import align_down, align_up, ceildiv, exp
from std.memory import Pointer, unsafe_stack_allocation
from std.sys import CompilationTarget, is_gpu, simd_width_of, size_of
from std.utils.index import IndexList
from std.utils.numerics import isnan, neg_inf
from std.utils.static_tuple import StaticTuple

from extensibility import ManagedTensorSlice
from max.algorithm.functional import sync_parallelize
from max.gpu import MAX_THREADS_PER_BLOCK_METADATA, block_dim, block_idx, thread_idx
from max.gpu.host import DeviceContext
from max.gpu.host.device_context import DeviceContextBase
from max.gpu.primitives import warp
from max.gpu.sync import barrier
from max.runtime.asyncrt import parallelism_level

comptime ALONE = 0
comptime WARP = 1
comptime BLOCK = 2

comptime SUM = 0
comptime MAX = 1

comptime HOLD = 4
comptime THREADS = 512  # at most, in a block: leaves each 128 registers
comptime WARPS = 4  # in a block of which each warp has a row of its own
comptime GRAIN = 16384  # elements that are worth another CPU thread

comptime accum_of[dtype: DType] = DType.float64 if dtype == .float64 else DType.float32

comptime Program = ImplicitlyCopyable & RegisterPassable & def[
    width: Int, across: Bool, team: Int, hold: Int
](Int) -> None


@fieldwise_init
struct Rows[dtype: DType, rank: Int](ImplicitlyCopyable, RegisterPassable):
    """A tensor as rows x columns: dimensions `first` to `end` are the columns."""

    var data: Pointer[Scalar[Self.dtype], MutUntrackedOrigin]
    var sizes: IndexList[Self.rank]
    var strides: IndexList[Self.rank]
    var first: Int
    var end: Int
    var step: Int  # from column to column, -1 if it is not always the same
    var pitch: Int  # from row to row, likewise

    @always_inline
    def start(self, row: Int) -> Int:
        """Returns where a row begins."""
        if self.pitch >= 0:
            return row * self.pitch
        var rest = row
        var offset = 0
        comptime for i in range(Self.rank):
            comptime d = Self.rank - 1 - i
            if d < self.first or d >= self.end:
                var above = rest // self.sizes[d]
                offset += (rest - above * self.sizes[d]) * self.strides[d]
                rest = above
        return offset

    @always_inline
    def offset(self, column: Int) -> Int:
        """Returns how far a column is from the beginning of its row."""
        if self.step >= 0:
            return column * self.step
        var rest = column
        var offset = 0
        comptime for i in range(Self.rank):
            comptime d = Self.rank - 1 - i
            if d >= self.first and d < self.end:
                var above = rest // self.sizes[d]
                offset += (rest - above * self.sizes[d]) * self.strides[d]
                rest = above
        return offset

    @always_inline
    def load[
        width: Int
    ](self, start: Int, column: Int, lanes: Int = width, fill: Scalar[Self.dtype] = 0) -> SIMD[
        Self.dtype, width
    ]:
        """Returns `lanes` values from a place on, the rest is `fill`."""
        return load[width](self.data, start + self.offset(column), lanes, fill)

    @always_inline
    def store[
        width: Int
    ](self, start: Int, column: Int, value: SIMD[Self.dtype, width], lanes: Int = width):
        """Writes the first `lanes` values from a place on."""
        store(self.data, start + self.offset(column), value, lanes)

    def packed(self) -> Bool:
        """Tells whether the columns of a row lie side by side."""
        return self.step == 1

    def aligned(self, width: Int) -> Bool:
        """Tells whether every row begins at a multiple of `width` elements, and of 16 bytes."""
        if Int(self.data) % 16 != 0:
            return False
        for d in range(Self.rank):
            var row = d < self.first or d >= self.end
            if row and self.sizes[d] != 1 and self.strides[d] % width != 0:
                return False
        return True

    def columns(self) -> Int:
        var count = 1
        for d in range(self.first, self.end):
            count *= self.sizes[d]
        return count

    def count(self) -> Int:
        """Returns the number of rows."""
        var count = 1
        for d in range(Self.rank):
            if d < self.first or d >= self.end:
                count *= self.sizes[d]
        return count

    def run(self) -> Int:
        """Returns how many neighbouring rows lie side by side, 0 if none do."""
        if self.end == Self.rank or self.strides[Self.rank - 1] != 1:
            return 0
        var length = self.sizes[Self.rank - 1]
        var d = Self.rank - 2
        while d >= self.end and self.strides[d] == length:
            length *= self.sizes[d]
            d -= 1
        return length


@always_inline
def load[
    dtype: DType, //, width: Int
](
    data: Pointer[Scalar[dtype], MutUntrackedOrigin],
    at: Int,
    lanes: Int = width,
    fill: Scalar[dtype] = 0,
) -> SIMD[dtype, width]:
    """Returns `lanes` neighbouring values, the rest is `fill`."""
    comptime natural = min(16, width * size_of[dtype]()) if is_gpu() else 1
    if lanes >= width:
        return data.unsafe_load[width=width, alignment=natural](at)
    var found = SIMD[dtype, width](fill)
    for lane in range(lanes):
        found[lane] = data[unsafe_offset=at + lane]
    return found


@always_inline
def store[
    dtype: DType, width: Int, //
](
    data: Pointer[Scalar[dtype], MutUntrackedOrigin],
    at: Int,
    value: SIMD[dtype, width],
    lanes: Int = width,
):
    """Writes the first `lanes` values side by side."""
    comptime natural = min(16, width * size_of[dtype]()) if is_gpu() else 1
    if lanes >= width:
        data.unsafe_store[alignment=natural](at, value)
        return
    for lane in range(lanes):
        data[unsafe_offset=at + lane] = value[lane]


def single_step[
    rank: Int
](sizes: IndexList[rank], strides: IndexList[rank], first: Int, end: Int, inside: Bool) -> Int:
    """Returns the step through the dimensions inside (or outside) of first to end, -1 if there is no single one."""
    var step = 1
    var expected = -1
    for i in range(rank):
        var d = rank - 1 - i
        if (d >= first and d < end) != inside or sizes[d] == 1:
            continue
        if expected < 0:
            step = strides[d]
        elif strides[d] != expected:
            return -1
        expected = strides[d] * sizes[d]
    return step


def rows_of(x: ManagedTensorSlice, first: Int, end: Int) -> Rows[x.dtype, x.rank]:
    """Returns a tensor as rows, with dimensions `first` to `end` as the columns."""
    var sizes = IndexList[x.rank]()
    var strides = IndexList[x.rank]()
    comptime for d in range(x.rank):
        sizes[d] = x.dim_size(d)
        strides[d] = x.stride_length(d)
    return {
        pointer_of(x),
        sizes,
        strides,
        first,
        end,
        single_step(sizes, strides, first, end, True),
        single_step(sizes, strides, first, end, False),
    }


@always_inline
def pointer_of(x: ManagedTensorSlice) -> Pointer[Scalar[x.dtype], MutUntrackedOrigin]:
    """Returns where a tensor begins."""
    return {unsafe_from_address = Int(x.unsafe_ptr())}


# What programs are made of.


@always_inline
def line[width: Int, across: Bool](group: Int, run: Int) -> Tuple[Int, Int]:
    """Returns the first row of a group, and how many rows it has (along: how many columns a vector has)."""
    comptime if across and width > 1:
        var blocks = ceildiv(run, width)
        var above = group // blocks
        var begin = (group - above * blocks) * width
        return above * run + begin, min(width, run - begin)
    return group, width


@always_inline
def each[
    F: def(Int, Int, Int) -> None, //, width: Int, across: Bool, team: Int, hold: Int
](columns: Int, lanes: Int, f: F):
    """Calls f(k, column, lanes) for this thread's columns of a row; k numbers the vectors that are held."""
    comptime if across:
        for column in range(columns):
            f(0, column, lanes)
    elif team == ALONE:
        # apart from the rest, so that whole vectors never pass through memory
        var whole = align_down(columns, width)
        for column in range(0, whole, width):
            f(0, column, width)
        comptime if width > 1:
            if whole < columns:
                f(0, whole, columns - whole)
    elif hold > 0:
        var threads = 32 if team == WARP else Int(block_dim.x)
        comptime for k in range(hold):
            var column = (k * threads + Int(thread_idx.x)) * width
            if column < columns:
                f(k, column, width)
    else:
        var threads = 32 if team == WARP else Int(block_dim.x)
        for column in range(Int(thread_idx.x) * width, columns, threads * width):
            f(0, column, width)


@always_inline
def combined[op: Int](a: SIMD, b: type_of(a)) -> type_of(a):
    comptime if op == SUM:
        return a + b
    return max(a, b)


@always_inline
def of_team[op: Int, team: Int, dtype: DType](value: Scalar[dtype]) -> Scalar[dtype]:
    """Reduces over the threads that share a row; all of them get the result, always the same."""
    comptime if team == ALONE:
        return value
    var found = value
    comptime for i in range(5):
        found = combined[op](found, warp.shuffle_xor(found, UInt32(16 >> i)))
    comptime if team == BLOCK:
        var warps = Int(block_dim.x) // 32
        var own = Int(thread_idx.x) // 32
        var lane = Int(thread_idx.x) % 32
        var shared = unsafe_stack_allocation[32, Scalar[dtype], address_space=.SHARED]()
        if lane == 0:
            shared[unsafe_offset=own] = found
        barrier()
        found = 0
        comptime if op == MAX:
            found = neg_inf[dtype]()
        if lane < warps:
            found = shared[unsafe_offset=lane]
        comptime for i in range(5):
            found = combined[op](found, warp.shuffle_xor(found, UInt32(16 >> i)))
        barrier()
    return found


@always_inline
def reduced[
    dtype: DType, width: Int, //, op: Int, across: Bool, team: Int
](value: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Reduces over the columns of each row: a vector's lanes are columns (along) or rows (across)."""
    comptime if across:
        return value
    comptime if op == SUM:
        return SIMD[dtype, width](of_team[op, team](value.reduce_add()))
    return SIMD[dtype, width](of_team[op, team](value.reduce_max()))


@always_inline
def exp_of[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width] where dtype.is_floating_point():
    """Returns e^x; the library's function has a number for nan."""
    return isnan(x).select(x, exp(x))


# How programs run.


@fieldwise_init
struct OnGpu[F: Program, //, width: Int, across: Bool, team: Int, hold: Int](
    ImplicitlyCopyable, RegisterPassable, def() -> None
):
    """The rows' program as a GPU kernel."""

    var program: Self.F
    var groups: Int

    @__llvm_metadata(
        MAX_THREADS_PER_BLOCK_METADATA=StaticTuple[Int32, 1](Int32(THREADS))
    )
    def __call__(self) capturing:
        var group = Int(block_idx.x)
        comptime if Self.team == WARP:
            group = group * WARPS + Int(thread_idx.y)
        elif Self.team == ALONE:
            group = group * Int(block_dim.x) + Int(thread_idx.x)
        if group < self.groups:
            self.program[Self.width, Self.across, Self.team, Self.hold](group)


@always_inline
def run_parallel[F: def(Int, Int) -> None, //](
    f: F, items: Int, elements: Int, ctx: DeviceContext
):
    """Calls f(begin, end) for parts of the items, on as many CPU threads as the elements are worth."""
    var tasks = min(items, min(parallelism_level(None), ceildiv(elements, GRAIN)))
    if tasks <= 1:
        f(0, items)
        return

    def task(i: Int) {imm}:
        f(i * items // tasks, (i + 1) * items // tasks)

    # DeviceContext is made for the accelerator, which is none of the CPU's
    ref own = rebind[DeviceContextBase[CompilationTarget()]](ctx)
    sync_parallelize(task, tasks, own)


def run_rows[
    F: Program, //, target: StaticString, dtype: DType, hold: Int = HOLD
](
    program: F,
    rows: Int,
    columns: Int,
    packed: Bool,
    aligned: Bool,
    run: Int,
    ctx: DeviceContext,
    work: Int = 1,
) raises:
    """Runs a program over all rows.

    Args:
        program: takes the number of a group of rows; `line` tells which rows those are.
        rows: how many there are; columns: in each.
        packed: whether all tensors have their columns side by side.
        aligned: whether all of them can be read 16 bytes at a time.
        run: how many rows lie side by side, in all tensors; 0 to go along the rows.
        ctx: where to run.
        work: how often the program goes through columns for each row.
    """
    if rows == 0:
        return
    comptime if target == "cpu":
        comptime native = 2 * simd_width_of[accum_of[dtype]]()

        @always_inline
        def go[width: Int, across: Bool](groups: Int) {imm}:
            def part(begin: Int, end: Int) {imm}:
                var own = program  # a local copy: what it captured can stay in registers
                for group in range(begin, end):
                    own[width, across, ALONE, 0](group)

            run_parallel(part, groups, rows * columns * work, ctx)

        if run > 1:
            go[native, True](rows // run * ceildiv(run, native))
        elif packed:
            go[native, False](rows)
        else:
            go[1, False](rows)
    else:
        comptime vector = 16 // size_of[dtype]()

        @always_inline
        def launch[width: Int, across: Bool, team: Int, held: Int](threads: Int) raises {imm}:
            var blocks = rows
            comptime if team == WARP:
                blocks = ceildiv(rows, WARPS)
            elif team == ALONE:
                blocks = ceildiv(rows, threads)
            ctx.enqueue_function(
                OnGpu[width, across, team, held](program, rows),
                grid_dim=blocks,
                block_dim=(threads, WARPS if team == WARP else 1),
            )

        if run > 1:
            launch[1, True, ALONE, 0](128)
        elif packed and aligned and columns % vector == 0:
            if columns <= 32 * vector * hold:
                launch[vector, False, WARP, hold](32)
            elif columns <= THREADS * vector * hold:
                launch[vector, False, BLOCK, hold](align_up(ceildiv(columns, vector * hold), 32))
            else:
                launch[vector, False, BLOCK, 0](THREADS)
        elif columns <= 256:
            launch[1, False, WARP, 0](32)
        else:
            launch[1, False, BLOCK, 0](min(align_up(ceildiv(columns, 4), 32), THREADS))
