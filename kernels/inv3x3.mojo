"""The inverse of 3x3 matrices by the adjugate, and its gradient."""

import extensibility
from extensibility import InputTensor, ManagedTensorSlice, OutputTensor, elementwise
from layout import Coord, coord_to_index_list
from max.gpu import block_idx, thread_idx
from max.gpu.host import DeviceContext
from max.gpu.sync import barrier
from std.collections import Array
from std.math import ceildiv
from std.memory import Pointer, unsafe_stack_allocation
from std.utils.index import IndexList

comptime BLOCK = 128  # matrices, one for each thread
comptime accum_of[dtype: DType] = DType.float64 if dtype == .float64 else DType.float32
comptime Matrix[dtype: DType] = Array[Scalar[dtype], 9]
comptime Data[dtype: DType] = Pointer[Scalar[dtype], MutUntrackedOrigin]


@always_inline
def inverse[dtype: DType](a: Matrix[dtype]) -> Matrix[dtype]:
    """Returns the inverse; inf and nan for a singular matrix."""
    var largest = Scalar[dtype](0)
    comptime for i in range(9):
        largest = max(largest, abs(a[i]))
    var scale = 1 / largest  # or the determinant would leave the range long before the inverse does
    var m = Matrix[dtype](fill=0)
    comptime for i in range(9):
        m[i] = a[i] * scale
    var adjugate = Matrix[dtype](fill=0)
    comptime for row in range(3):
        comptime for column in range(3):
            comptime p = (column + 1) % 3 * 3
            comptime q = (column + 2) % 3 * 3
            comptime r = (row + 1) % 3
            comptime s = (row + 2) % 3
            adjugate[3 * row + column] = m[p + r] * m[q + s] - m[p + s] * m[q + r]
    var determinant = m[0] * adjugate[0] + m[1] * adjugate[3] + m[2] * adjugate[6]
    var factor = scale / determinant
    comptime for i in range(9):
        adjugate[i] *= factor
    return adjugate^


@always_inline
def turned_product[dtype: DType](a: Matrix[dtype], b: Matrix[dtype], first: Bool) -> Matrix[dtype]:
    """Returns a^T b if `first`, else a b^T."""
    var product = Matrix[dtype](fill=0)
    comptime for row in range(3):
        comptime for column in range(3):
            var total = Scalar[dtype](0)
            comptime for k in range(3):
                if first:
                    total += a[3 * k + row] * b[3 * k + column]
                else:
                    total += a[3 * row + k] * b[3 * column + k]
            product[3 * row + column] = total
    return product^


@always_inline
def gradient[dtype: DType](grad: Matrix[dtype], inverse: Matrix[dtype]) -> Matrix[dtype]:
    """Returns -B^T G B^T for an inverse B."""
    var found = turned_product(turned_product(inverse, grad, True), inverse, False)
    comptime for i in range(9):
        found[i] = -found[i]
    return found^


@fieldwise_init
struct Matrices[dtype: DType, rank: Int](ImplicitlyCopyable, RegisterPassable):
    """A tensor of 3x3 matrices of any strides."""

    var data: Data[Self.dtype]
    var sizes: IndexList[Self.rank]
    var strides: IndexList[Self.rank]
    var packed: Bool

    @always_inline
    def load[accum: DType](self, index: Int) -> Matrix[accum]:
        var offset = 9 * index
        if not self.packed:
            offset = 0
            var rest = index
            comptime for i in range(Self.rank - 2):
                comptime d = Self.rank - 3 - i
                var above = rest // self.sizes[d]
                offset += (rest - above * self.sizes[d]) * self.strides[d]
                rest = above
        var found = Matrix[accum](fill=0)
        comptime for row in range(3):
            comptime for column in range(3):
                var at = offset + row * self.strides[Self.rank - 2]
                at += column * self.strides[Self.rank - 1]
                found[3 * row + column] = self.data[unsafe_offset=at].cast[accum]()
        return found^

    def count(self) -> Int:
        var count = 1
        comptime for d in range(Self.rank - 2):
            count *= self.sizes[d]
        return count


def matrices(x: ManagedTensorSlice) -> Matrices[x.dtype, x.rank]:
    """Returns a tensor as a batch of matrices."""
    var sizes = IndexList[x.rank]()
    var strides = IndexList[x.rank]()
    var packed = True
    var expected = 1
    comptime for i in range(x.rank):
        comptime d = x.rank - 1 - i
        sizes[d] = x.dim_size(d)
        strides[d] = x.stride_length(d)
        if sizes[d] != 1 and strides[d] != expected:
            packed = False
        expected *= sizes[d]
    return {Data[x.dtype](unsafe_from_address=Int(x.unsafe_ptr())), sizes, strides, packed}


def staged[
    dtype: DType, backward: Bool
](output: Data[dtype], first: Data[dtype], second: Data[dtype], count: Int64):
    """Goes through packed matrices on a GPU, whose threads read and write side by side."""
    comptime accum = accum_of[dtype]
    comptime room = BLOCK * 9
    var begin = Int(block_idx.x) * room
    var own = Int(thread_idx.x)
    var end = min(room, Int(count) * 9 - begin)
    var one = unsafe_stack_allocation[room, Scalar[dtype], address_space=.SHARED]()
    var two = unsafe_stack_allocation[
        room if backward else 1, Scalar[dtype], address_space=.SHARED
    ]()
    comptime for i in range(9):
        var at = own + i * BLOCK
        if at < end:
            one[unsafe_offset=at] = first[unsafe_offset=begin + at]
            comptime if backward:
                two[unsafe_offset=at] = second[unsafe_offset=begin + at]
    barrier()
    if own * 9 < end:
        var a = Matrix[accum](fill=0)
        var b = Matrix[accum](fill=0)
        comptime for i in range(9):
            a[i] = one[unsafe_offset=own * 9 + i].cast[accum]()
            comptime if backward:
                b[i] = two[unsafe_offset=own * 9 + i].cast[accum]()
        var found = gradient(a, b) if backward else inverse(a)
        comptime for i in range(9):
            one[unsafe_offset=own * 9 + i] = found[i].cast[dtype]()
    barrier()
    comptime for i in range(9):
        var at = own + i * BLOCK
        if at < end:
            output[unsafe_offset=begin + at] = one[unsafe_offset=at]


def run[
    dtype: DType, rank: Int, //, target: StaticString, backward: Bool
](
    output: Matrices[dtype, rank],
    first: Matrices[dtype, rank],
    second: Matrices[dtype, rank],
    ctx: DeviceContext,
) raises:
    """Writes the inverses of `first`, or the gradients: `first` comes in, `second` are inverses."""
    comptime accum = accum_of[dtype]
    var count = output.count()
    if count == 0:
        return
    comptime if target == "gpu":
        if first.packed and second.packed:
            ctx.enqueue_function[staged[dtype, backward]](
                output.data,
                first.data,
                second.data,
                Int64(count),
                grid_dim=ceildiv(count, BLOCK),
                block_dim=BLOCK,
            )
            return

    @always_inline
    def one[width: Int, alignment: Int = 1](at: Coord) {var output, var first, var second}:
        var index = Int(coord_to_index_list(at)[0])
        var a = first.load[accum](index)
        var found: Matrix[accum]
        comptime if backward:
            found = gradient(a, second.load[accum](index))
        else:
            found = inverse(a)
        comptime for i in range(9):
            output.data[unsafe_offset=9 * index + i] = found[i].cast[dtype]()

    elementwise[1, target=target](one, Coord(IndexList[1](count)), ctx)


@extensibility.register("inv3x3")
struct Inv3x3:
    """The inverses."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        var source = matrices(input)
        run[target, False](matrices(output), source, source, ctx)


@extensibility.register("inv3x3_backward")
struct Inv3x3Backward:
    """The gradients."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        grad_input: OutputTensor,
        grad_output: InputTensor[dtype=grad_input.dtype, rank=grad_input.rank, ...],
        output: InputTensor[dtype=grad_input.dtype, rank=grad_input.rank, ...],
        ctx: DeviceContext,
    ) raises:
        run[target, True](matrices(grad_input), matrices(grad_output), matrices(output), ctx)
