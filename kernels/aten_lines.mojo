"""Tensors as outer x axis x inner, and walks through them: what the kernels along one dimension share.

The dimensions before the axis are counted together, and so are those after it, whatever the strides.
"""

from std.math import ceildiv
from std.memory import Pointer
from std.os import abort
from std.sys import is_gpu
from std.utils.index import IndexList

from extensibility import ManagedTensorSlice
from max.gpu import block_dim, block_idx, thread_idx
from max.gpu.host import DeviceBuffer, DeviceContext

from rows import pointer_of, run_parallel, single_step

comptime THREADS = 256  # in a block
comptime BLOCK = 64  # inner places that a CPU thread takes at a time

comptime NO_FAULT = Int64.MIN
comptime Fault = Pointer[Int64, MutUntrackedOrigin]


@fieldwise_init
struct Lines[dtype: DType, rank: Int](ImplicitlyCopyable, RegisterPassable):
    """A tensor as outer x axis x inner. The sizes are those of the walk, which may be smaller than the tensor's."""

    var data: Pointer[Scalar[Self.dtype], MutUntrackedOrigin]
    var sizes: IndexList[Self.rank]
    var strides: IndexList[Self.rank]
    var axis: Int
    var step: Int  # along the axis
    var outer_step: Int  # -1 if it is not always the same
    var inner_step: Int  # likewise

    @always_inline
    def outer(self, number: Int) -> Int:
        """Returns where an outer place begins."""
        if self.outer_step >= 0:
            return number * self.outer_step
        return self._place(number, 0, self.axis)

    @always_inline
    def inner(self, number: Int) -> Int:
        """Returns how far an inner place is from its first."""
        if self.inner_step >= 0:
            return number * self.inner_step
        return self._place(number, self.axis + 1, Self.rank)

    @always_inline
    def _place(self, number: Int, first: Int, end: Int) -> Int:
        var rest = number
        var place = 0
        comptime for i in range(Self.rank):
            comptime d = Self.rank - 1 - i
            if d >= first and d < end:
                var above = rest // self.sizes[d]
                place += (rest - above * self.sizes[d]) * self.strides[d]
                rest = above
        return place

    @always_inline
    def at(self, outer: Int, along: Int, inner: Int) -> Int:
        """Returns where an element is."""
        return self.outer(outer) + along * self.step + self.inner(inner)

    def with_data[other: DType](
        self, data: Pointer[Scalar[other], MutUntrackedOrigin]
    ) -> Lines[other, Self.rank]:
        """Returns lines that lie in other memory in the same way."""
        return {
            data, self.sizes, self.strides, self.axis, self.step, self.outer_step, self.inner_step
        }


@fieldwise_init
struct Extent(ImplicitlyCopyable, RegisterPassable):
    """The sizes of a walk."""

    var outer: Int
    var along: Int
    var inner: Int

    def elements(self) -> Int:
        return self.outer * self.along * self.inner


def axis_of(dim: Int64, rank: Int) -> Int:
    """Returns a dimension counted from the first; a negative one counts from the end."""
    return Int(dim) + rank if dim < 0 else Int(dim)


def sizes_of(x: ManagedTensorSlice) -> IndexList[x.rank]:
    var sizes = IndexList[x.rank]()
    comptime for d in range(x.rank):
        sizes[d] = x.dim_size(d)
    return sizes


def extent_of[rank: Int](sizes: IndexList[rank], axis: Int) -> Extent:
    """Returns the sizes of a walk through a shape."""
    var found = Extent(1, sizes[axis], 1)
    for d in range(rank):
        if d < axis:
            found.outer *= sizes[d]
        elif d > axis:
            found.inner *= sizes[d]
    return found


def fits[rank: Int](small: IndexList[rank], large: IndexList[rank], apart_from: Int) -> Bool:
    """Tells whether a shape is nowhere larger than another, apart from one dimension."""
    for d in range(rank):
        if d != apart_from and small[d] > large[d]:
            return False
    return True


def same[rank: Int](a: IndexList[rank], b: IndexList[rank], apart_from: Int) -> Bool:
    """Tells whether two shapes are the same, apart from one dimension."""
    return fits(a, b, apart_from) and fits(b, a, apart_from)


def text_of[rank: Int](sizes: IndexList[rank]) -> String:
    """Returns a shape as torch writes it."""
    var text = String("[")
    for d in range(rank):
        text += String(", " if d > 0 else "", sizes[d])
    return text + "]"


def lines_of(
    x: ManagedTensorSlice, axis: Int, walk: IndexList[x.rank]
) -> Lines[x.dtype, x.rank]:
    """Returns a tensor as lines for a walk through a shape; the size along the axis does not count."""
    var strides = IndexList[x.rank]()
    comptime for d in range(x.rank):
        strides[d] = x.stride_length(d)
    return {
        pointer_of(x),
        walk,
        strides,
        axis,
        strides[axis],
        single_step(walk, strides, 0, axis, True),
        single_step(walk, strides, axis + 1, x.rank, True),
    }


def lines_of(x: ManagedTensorSlice, axis: Int) -> Lines[x.dtype, x.rank]:
    """Returns a tensor as lines."""
    return lines_of(x, axis, sizes_of(x))


def repeated[
    rank: Int
](x: ManagedTensorSlice, axis: Int, walk: IndexList[rank]) -> Lines[x.dtype, rank]:
    """Returns one element as lines that are nothing else."""
    return {pointer_of(x), walk, IndexList[rank](0), axis, 0, 0, 0}


comptime Step = ImplicitlyCopyable & RegisterPassable & def(Int, Int, Int, Int) -> None


@fieldwise_init
struct OnGpu[F: Step, //, in_order: Bool](ImplicitlyCopyable, RegisterPassable, def() -> None):
    """One thread for each element, or for each line."""

    var f: Self.F
    var extent: Extent

    def __call__(self) capturing:
        var at = Int(block_idx.x) * Int(block_dim.x) + Int(thread_idx.x)
        var above = at // self.extent.inner
        var i = at - above * self.extent.inner
        comptime if Self.in_order:
            if above < self.extent.outer:
                for k in range(self.extent.along):
                    self.f(above, k, i, i + 1)
        else:
            var o = above // self.extent.along
            if o < self.extent.outer:
                self.f(o, above - o * self.extent.along, i, i + 1)


def walk[
    F: Step, //, target: StaticString, in_order: Bool = False
](f: F, extent: Extent, ctx: DeviceContext) raises:
    """Calls f(outer, along, inner begin, inner end) until every element has had its turn once.

    Parameters:
        F: The function's type.
        target: Where it runs.
        in_order: Whether the elements along the axis come one after the other, for each line.

    Args:
        f: What is done.
        extent: The sizes.
        ctx: Where to run.
    """
    var work = extent.elements()
    if work == 0:
        return
    comptime if target == "cpu":
        comptime if in_order:
            var blocks = ceildiv(extent.inner, BLOCK)

            def lines(begin: Int, end: Int) {imm}:
                var own = f
                for item in range(begin, end):
                    var o = item // blocks
                    var first = (item - o * blocks) * BLOCK
                    var last = min(first + BLOCK, extent.inner)
                    for k in range(extent.along):
                        own(o, k, first, last)

            run_parallel(lines, extent.outer * blocks, work, ctx)
        else:

            def part(begin: Int, end: Int) {imm}:
                var own = f
                var above = begin // extent.inner
                var first = begin - above * extent.inner
                var o = above // extent.along
                var k = above - o * extent.along
                var left = end - begin
                while left > 0:
                    var last = min(extent.inner, first + left)
                    own(o, k, first, last)
                    left -= last - first
                    first = 0
                    k += 1
                    if k == extent.along:
                        k = 0
                        o += 1

            run_parallel(part, work, work, ctx)
    else:
        var threads = extent.outer * extent.inner if in_order else work
        ctx.enqueue_function(
            OnGpu[in_order](f, extent), grid_dim=ceildiv(threads, THREADS), block_dim=THREADS
        )


@always_inline
def copy[
    dtype: DType, to_rank: Int, rank: Int, //
](
    to: Lines[dtype, to_rank],
    to_begin: Int,
    source: Lines[dtype, rank],
    begin: Int,
    first: Int,
    end: Int,
):
    """Copies the inner places from `first` to `end`."""
    if to.inner_step == 1 and source.inner_step == 1:
        for i in range(first, end):
            to.data[unsafe_offset=to_begin + i] = source.data[unsafe_offset=begin + i]
    else:
        for i in range(first, end):
            to.data[unsafe_offset=to_begin + to.inner(i)] = source.data[
                unsafe_offset=begin + source.inner(i)
            ]


@always_inline
def place_of(index: Int, size: Int, wrap: Bool, fault: Fault) -> Int:
    """Returns an index that lies in [0, size), or -1 after reporting it; on a GPU it stops the kernel."""
    var place = index
    if wrap and place < 0:
        place += size
    if place < 0 or place >= size:
        comptime if is_gpu():
            abort()
        else:
            fault[] = Int64(index)
            return -1
    return place


def fault_of(mut word: Int64) -> Fault:
    """Returns the address of the word that faults are reported in; the word has to outlive the walk."""
    return Fault(unsafe_from_address=Int(Pointer(to=word)))


def refuse(how: StaticString, index: Int64, dim: Int, size: Int) raises:
    """Raises torch's error for an index that is out of range."""
    if how == "embedding" or how == "index_select":
        raise Error("index out of range in self")
    if how == "take":
        raise Error(
            "out of range: tried to access index ", index, " on a tensor of ", size, " elements."
        )
    var start = "index_copy_(): " if how == "index_copy" else ""
    raise Error(
        start, "index ", index, " is out of bounds for dimension ", dim, " with size ", size
    )


struct Scratch[target: StaticString, dtype: DType]:
    """Memory for as long as a kernel runs."""

    var on_host: List[Scalar[Self.dtype]]
    var on_device: Optional[DeviceBuffer[Self.dtype]]

    def __init__(out self, count: Int, ctx: DeviceContext) raises:
        self.on_host = List[Scalar[Self.dtype]]()
        self.on_device = None
        comptime if Self.target == "cpu":
            self.on_host = List[Scalar[Self.dtype]](unsafe_uninit_length=count)
        else:
            self.on_device = ctx.enqueue_create_buffer[Self.dtype](max(count, 1))

    def data(mut self) -> Pointer[Scalar[Self.dtype], MutUntrackedOrigin]:
        """Returns where it begins; it has to be kept alive by hand."""
        comptime if Self.target == "cpu":
            return {unsafe_from_address = Int(self.on_host.unsafe_ptr())}
        else:
            return {unsafe_from_address = Int(self.on_device.value().unsafe_ptr())}
