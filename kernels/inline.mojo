"""What the text of an inline kernel stands on: operands, the grid of threads, its attributes, checked indices."""

from std.atomic import Atomic
from std.math import ceildiv
from std.memory import Pointer, unsafe_stack_allocation
from std.sys import CompilationTarget, is_gpu
from std.utils.index import IndexList
from std.utils.static_tuple import StaticTuple

from extensibility import ManagedTensorSlice
from max.algorithm.functional import sync_parallelize
from max.gpu import MAX_THREADS_PER_BLOCK_METADATA, WARP_SIZE, block_idx, thread_idx
from max.gpu.host import DeviceBuffer, DeviceContext
from max.gpu.host.device_context import DeviceContextBase
from max.runtime.asyncrt import parallelism_level

comptime GRAIN = 16384  # elements that are worth another CPU thread
comptime MOST_THREADS = 1024  # of a threadgroup, on every device
comptime MOST_DEEP = 64  # in its third dimension
comptime MOST_GROUPS = 65535  # in the grid's second and third dimension, on a GPU

comptime INDEX_BITS = 48
comptime Fault = Pointer[Int64, MutUntrackedOrigin]
comptime NO_FAULT = -1
comptime LINEAR = 255  # in place of a dimension: one index, of all elements


struct Three(ImplicitlyCopyable, RegisterPassable):
    """A position or a size in three dimensions."""

    var x: Int
    var y: Int
    var z: Int

    @always_inline
    def __init__(out self, x: Int, y: Int = 1, z: Int = 1):
        self.x = x
        self.y = y
        self.z = z

    @always_inline
    def product(self) -> Int:
        return self.x * self.y * self.z

    def text(self) -> String:
        return String("(", self.x, ", ", self.y, ", ", self.z, ")")


@always_inline
def elem_to_loc[
    rank: Int
](elem: Int, shape: IndexList[rank], strides: IndexList[rank], ndim: Int = rank) -> Int:
    """Returns where the element is that has this number in row-major order."""
    var rest = elem
    var place = 0
    comptime for i in range(rank):
        comptime d = rank - 1 - i
        comptime if d == 0:
            place += rest * strides[d]
        else:
            var above = rest // shape[d]
            place += (rest - above * shape[d]) * strides[d]
            rest = above
    return place


struct Operand[
    dtype: DType,
    rank: Int,
    *,
    id: Int = 0,
    row_major: Bool = True,
    storage: Bool = False,
    writable: Bool = False,
    atomic: Bool = False,
    checked: Bool = False,
](ImplicitlyCopyable, RegisterPassable):
    """A tensor as the body of an inline kernel sees it.

    One index counts elements in row-major order (with `storage`: places in memory); `rank` indices name an element.

    Parameters:
        dtype: Of the elements.
        rank: The number of dimensions.
        id: Its place among the kernel's operands.
        row_major: Whether it lies in memory in row-major order, without gaps.
        storage: Whether one index counts places in memory.
        writable: Whether the body may write it.
        atomic: Whether it is written by atomic operations.
        checked: Whether every index is checked.
    """

    var data: Pointer[Scalar[Self.dtype], MutUntrackedOrigin]
    var shape: IndexList[Self.rank]
    var strides: IndexList[Self.rank]
    var fault: Fault

    @always_inline
    def __init__(out self, tensor: ManagedTensorSlice, fault: Fault):
        self.data = Pointer[Scalar[Self.dtype], MutUntrackedOrigin](
            unsafe_from_address=Int(tensor.unsafe_ptr())
        )
        self.shape = IndexList[Self.rank]()
        self.strides = IndexList[Self.rank]()
        self.fault = fault
        comptime for d in range(Self.rank):
            self.shape[d] = Int(tensor.dim_size(d))
            self.strides[d] = Int(tensor.stride_length(d))

    @always_inline
    def size(self) -> Int:
        """Returns the number of elements."""
        var count = 1
        comptime for d in range(Self.rank):
            count *= self.shape[d]
        return count

    @always_inline
    def elements_strides(self) -> IndexList[Self.rank]:
        """Returns the strides with which one index counts."""
        comptime if Self.storage:
            return self.strides
        var found = IndexList[Self.rank]()
        var step = 1
        comptime for i in range(Self.rank):
            comptime d = Self.rank - 1 - i
            found[d] = step
            step *= self.shape[d]
        return found

    @always_inline
    def _report(self, dimension: Int, index: Int):
        var word = (Self.id << 8 | dimension) << INDEX_BITS | (index & ((1 << INDEX_BITS) - 1))
        self.fault[] = Int64(word)

    @always_inline
    def _extent(self) -> Int:
        comptime if Self.storage:
            var last = 0
            comptime for d in range(Self.rank):
                last += (self.shape[d] - 1) * self.strides[d]
            return last + 1 if self.size() > 0 else 0
        return self.size()

    @always_inline
    def _at(self, index: Int) -> Int:
        """Returns the place that one index means, or -1."""
        comptime if Self.checked:
            if index < 0 or index >= self._extent():
                self._report(LINEAR, index)
                return -1
        comptime if Self.row_major or Self.storage:
            return index
        return elem_to_loc(index, self.shape, self.strides)

    @always_inline
    def _at[count: Int](self, index: IndexList[count]) -> Int:
        """Returns the place of the element with these indices, or -1."""
        comptime assert count == Self.rank, (
            "the operand has another number of dimensions than it is indexed with"
        )
        var place = 0
        comptime for d in range(count):
            comptime if Self.checked:
                if index[d] < 0 or index[d] >= self.shape[d]:
                    self._report(d, index[d])
                    return -1
            comptime if Self.row_major and d == count - 1:
                place += index[d]
            else:
                place += index[d] * self.strides[d]
        return place

    @always_inline
    def _load(self, place: Int) -> Scalar[Self.dtype]:
        comptime if Self.checked:
            if place < 0:
                return 0
        return self.data[unsafe_offset=place]

    @always_inline
    def _store(self, place: Int, value: Scalar[Self.dtype]):
        comptime assert Self.writable, "an input is not written: declare it with mutates="
        comptime if Self.checked:
            if place < 0:
                return
        self.data[unsafe_offset=place] = value

    @always_inline
    def __getitem__(self) -> Scalar[Self.dtype]:
        return self._load(self._at(0))

    @always_inline
    def __getitem__[I: Intable](self, i: I) -> Scalar[Self.dtype]:
        return self._load(self._at(Int(i)))

    @always_inline
    def __getitem__[I: Intable, J: Intable](self, i: I, j: J) -> Scalar[Self.dtype]:
        return self._load(self._at(IndexList[2](Int(i), Int(j))))

    @always_inline
    def __getitem__[
        I: Intable, J: Intable, K: Intable
    ](self, i: I, j: J, k: K) -> Scalar[Self.dtype]:
        return self._load(self._at(IndexList[3](Int(i), Int(j), Int(k))))

    @always_inline
    def __getitem__[
        I: Intable, J: Intable, K: Intable, L: Intable
    ](self, i: I, j: J, k: K, l: L) -> Scalar[Self.dtype]:
        return self._load(self._at(IndexList[4](Int(i), Int(j), Int(k), Int(l))))

    @always_inline
    def __getitem__[
        I: Intable, J: Intable, K: Intable, L: Intable, M: Intable
    ](self, i: I, j: J, k: K, l: L, m: M) -> Scalar[Self.dtype]:
        return self._load(self._at(IndexList[5](Int(i), Int(j), Int(k), Int(l), Int(m))))

    @always_inline
    def __getitem__[count: Int](self, index: IndexList[count]) -> Scalar[Self.dtype]:
        return self._load(self._at(index))

    @always_inline
    def __setitem__(self, value: Scalar[Self.dtype]):
        self._store(self._at(0), value)

    @always_inline
    def __setitem__[I: Intable](self, i: I, value: Scalar[Self.dtype]):
        self._store(self._at(Int(i)), value)

    @always_inline
    def __setitem__[I: Intable, J: Intable](self, i: I, j: J, value: Scalar[Self.dtype]):
        self._store(self._at(IndexList[2](Int(i), Int(j))), value)

    @always_inline
    def __setitem__[
        I: Intable, J: Intable, K: Intable
    ](self, i: I, j: J, k: K, value: Scalar[Self.dtype]):
        self._store(self._at(IndexList[3](Int(i), Int(j), Int(k))), value)

    @always_inline
    def __setitem__[
        I: Intable, J: Intable, K: Intable, L: Intable
    ](self, i: I, j: J, k: K, l: L, value: Scalar[Self.dtype]):
        self._store(self._at(IndexList[4](Int(i), Int(j), Int(k), Int(l))), value)

    @always_inline
    def __setitem__[
        I: Intable, J: Intable, K: Intable, L: Intable, M: Intable
    ](self, i: I, j: J, k: K, l: L, m: M, value: Scalar[Self.dtype]):
        self._store(self._at(IndexList[5](Int(i), Int(j), Int(k), Int(l), Int(m))), value)

    @always_inline
    def __setitem__[count: Int](self, index: IndexList[count], value: Scalar[Self.dtype]):
        self._store(self._at(index), value)

    # Atomic operations. Each takes what one index or several name, and returns what was there.

    @always_inline
    def _cell(self, place: Int) -> Pointer[Scalar[Self.dtype], MutUntrackedOrigin]:
        comptime assert Self.atomic, "the operand is not atomic: declare it with atomic="
        return self.data.unsafe_offset(place)

    @always_inline
    def _add(self, place: Int, value: Scalar[Self.dtype]) -> Scalar[Self.dtype]:
        comptime if Self.checked:
            if place < 0:
                return 0
        return Atomic.fetch_add(self._cell(place), value)

    @always_inline
    def atomic_add[I: Intable](self, i: I, value: Scalar[Self.dtype]) -> Scalar[Self.dtype]:
        """Adds to an element."""
        return self._add(self._at(Int(i)), value)

    @always_inline
    def atomic_add[
        count: Int
    ](self, index: IndexList[count], value: Scalar[Self.dtype]) -> Scalar[Self.dtype]:
        """Adds to an element."""
        return self._add(self._at(index), value)

    @always_inline
    def atomic_max[I: Intable](self, i: I, value: Scalar[Self.dtype]):
        """Raises an element to a value."""
        var place = self._at(Int(i))
        comptime if Self.checked:
            if place < 0:
                return
        Atomic.max(self._cell(place), value)

    @always_inline
    def atomic_min[I: Intable](self, i: I, value: Scalar[Self.dtype]):
        """Lowers an element to a value."""
        var place = self._at(Int(i))
        comptime if Self.checked:
            if place < 0:
                return
        Atomic.min(self._cell(place), value)


struct Shared[dtype: DType, count: Int](ImplicitlyCopyable, RegisterPassable):
    """Memory that the threads of a threadgroup share, on a GPU."""

    var data: Pointer[Scalar[Self.dtype], MutUntrackedOrigin, address_space=.SHARED]

    @always_inline
    def __init__(out self):
        self.data = unsafe_stack_allocation[
            Self.count, Scalar[Self.dtype], address_space=.SHARED
        ]().unsafe_origin_cast[MutUntrackedOrigin]()

    @always_inline
    def __getitem__[I: Intable](self, i: I) -> Scalar[Self.dtype]:
        return self.data[unsafe_offset=Int(i)]

    @always_inline
    def __setitem__[I: Intable](self, i: I, value: Scalar[Self.dtype]):
        self.data[unsafe_offset=Int(i)] = value


@fieldwise_init
struct Thread(ImplicitlyCopyable, RegisterPassable):
    """One thread: its position in the grid, the grid's size and the threadgroup's."""

    var at: Three
    var grid: Three
    var group: Three

    @always_inline
    def in_group(self) -> Three:
        comptime if is_gpu():
            return Three(Int(thread_idx.x), Int(thread_idx.y), Int(thread_idx.z))
        return Three(
            self.at.x % self.group.x, self.at.y % self.group.y, self.at.z % self.group.z
        )

    @always_inline
    def of_group(self) -> Three:
        comptime if is_gpu():
            return Three(Int(block_idx.x), Int(block_idx.y), Int(block_idx.z))
        return Three(
            self.at.x // self.group.x, self.at.y // self.group.y, self.at.z // self.group.z
        )

    @always_inline
    def groups(self) -> Three:
        return Three(
            ceildiv(self.grid.x, self.group.x),
            ceildiv(self.grid.y, self.group.y),
            ceildiv(self.grid.z, self.group.z),
        )

    @always_inline
    def number(self) -> Int:
        """Returns the thread's number in its threadgroup."""
        var own = self.in_group()
        return (own.z * self.group.y + own.y) * self.group.x + own.x


comptime Body = ImplicitlyCopyable & RegisterPassable & def(Thread) -> None


@fieldwise_init
struct OnGpu[F: Body, //, most: Int](ImplicitlyCopyable, RegisterPassable, def() -> None):
    """The grid's threads as a GPU kernel."""

    var body: Self.F
    var grid: Three
    var group: Three

    @__llvm_metadata(
        MAX_THREADS_PER_BLOCK_METADATA=StaticTuple[Int32, 1](Int32(Self.most))
    )
    def __call__(self) capturing:
        var at = Three(
            Int(block_idx.x) * self.group.x + Int(thread_idx.x),
            Int(block_idx.y) * self.group.y + Int(thread_idx.y),
            Int(block_idx.z) * self.group.z + Int(thread_idx.z),
        )
        if at.x < self.grid.x and at.y < self.grid.y and at.z < self.grid.z:
            self.body(Thread(at, self.grid, self.group))


def clamped(grid: Three, group: Three) raises -> Three:
    """Returns the threadgroup with no dimension above the grid's; refuses what no device takes."""
    if grid.x < 0 or grid.y < 0 or grid.z < 0:
        raise Error("the grid ", grid.text(), " has a negative size")
    if group.x < 1 or group.y < 1 or group.z < 1:
        raise Error("the threadgroup ", group.text(), " has a size below 1")
    if group.product() > MOST_THREADS:
        var threads = group.product()
        raise Error(
            "the threadgroup ", group.text(), " has ", threads, " threads; the limit is ", MOST_THREADS
        )
    if group.z > MOST_DEEP:
        raise Error(
            "the threadgroup ", group.text(), " is deeper than ", MOST_DEEP, " in its third dimension"
        )
    return Three(min(group.x, grid.x), min(group.y, grid.y), min(group.z, grid.z))


def run[
    F: Body, //, target: StaticString, most: Int = MOST_THREADS
](body: F, grid: Three, threadgroup: Three, work: Int, ctx: DeviceContext) raises:
    """Runs the body once for every thread of the grid.

    Args:
        body: What one thread does.
        grid: How many threads there are.
        threadgroup: How many of them form a group.
        work: About how many elements all of them touch.
        ctx: Where to run.
    """
    var group = clamped(grid, threadgroup)
    var threads = grid.product()
    if threads == 0:
        return
    comptime if target == "cpu":
        var tasks = min(
            threads, min(parallelism_level(None), ceildiv(max(work, threads), GRAIN))
        )

        def part(begin: Int, end: Int) {imm}:
            var own = body  # a local copy: what it captured can stay in registers
            var sizes = grid
            var groups = group
            var row = begin // sizes.x
            var first = begin - row * sizes.x
            var left = end - begin
            while left > 0:
                var last = min(sizes.x, first + left)
                var z = row // sizes.y
                var y = row - z * sizes.y
                for x in range(first, last):
                    own(Thread(Three(x, y, z), sizes, groups))
                left -= last - first
                first = 0
                row += 1

        if tasks <= 1:
            part(0, threads)
            return

        def task(i: Int) {imm}:
            part(i * threads // tasks, (i + 1) * threads // tasks)

        # DeviceContext is made for the accelerator, which is none of the CPU's
        ref own = rebind[DeviceContextBase[CompilationTarget()]](ctx)
        sync_parallelize(task, tasks, own)
    else:
        var blocks = Three(
            ceildiv(grid.x, group.x), ceildiv(grid.y, group.y), ceildiv(grid.z, group.z)
        )
        if blocks.y > MOST_GROUPS or blocks.z > MOST_GROUPS:
            raise Error(
                "the grid ",
                grid.text(),
                " makes ",
                blocks.text(),
                " threadgroups; the second and the third dimension take at most ",
                MOST_GROUPS,
            )
        ctx.enqueue_function(
            OnGpu[most](body, grid, group),
            grid_dim=(blocks.x, blocks.y, blocks.z),
            block_dim=(group.x, group.y, group.z),
        )


def fill[
    dtype: DType, rank: Int, //, target: StaticString
](operand: Operand[dtype, rank, ...], value: Scalar[dtype], ctx: DeviceContext) raises:
    """Fills an operand."""
    var to = operand

    @always_inline
    def one(thread: Thread) {var to, var value}:
        to[thread.at.x] = value

    run[target](one, Three(to.size()), Three(256), to.size(), ctx)


struct Faults[target: StaticString, checked: Bool]:
    """Where the threads report an index that is out of range: one word, on the device."""

    var on_host: Int64
    var on_device: Optional[DeviceBuffer[DType.int64]]

    def __init__(out self, ctx: DeviceContext) raises:
        self.on_host = NO_FAULT
        self.on_device = None
        comptime if Self.checked and Self.target != "cpu":
            var buffer = ctx.enqueue_create_buffer[DType.int64](1)
            buffer.enqueue_fill(NO_FAULT)
            self.on_device = buffer^

    def word(mut self) -> Fault:
        """Returns the address of the word."""
        comptime if Self.checked and Self.target != "cpu":
            return Fault(unsafe_from_address=Int(self.on_device.value().unsafe_ptr()))
        return Fault(unsafe_from_address=Int(Pointer(to=self.on_host)))

    def report(
        mut self, names: List[String], shapes: List[String]
    ) raises:
        """Raises an error if a thread reported an index; waits for the threads."""
        comptime if Self.target != "cpu":
            with self.on_device.value().map_to_host() as words:
                self.on_host = words[0]
        var word = self.on_host
        if word == NO_FAULT:
            return
        var id = Int(word >> (INDEX_BITS + 8)) & 255
        var dimension = Int(word >> INDEX_BITS) & 255
        var index = Int((word << (64 - INDEX_BITS)) >> (64 - INDEX_BITS))
        if dimension == LINEAR:
            raise Error(
                "index ", index, " of ", names[id], " is out of range; its shape is ", shapes[id]
            )
        raise Error(
            "index ",
            index,
            " of ",
            names[id],
            " is out of range in dimension ",
            dimension,
            "; its shape is ",
            shapes[id],
        )
