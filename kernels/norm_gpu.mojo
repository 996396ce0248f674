"""The gradients of the norms on a GPU, for rows that the threads of a block can keep."""

from max.gpu import MAX_THREADS_PER_BLOCK_METADATA, block_dim, block_idx, thread_idx
from max.gpu.primitives import warp
from max.gpu.sync import barrier
from std.collections import Array
from std.math import sqrt
from std.memory import Pointer, unsafe_stack_allocation
from std.sys import size_of
from std.utils.static_tuple import StaticTuple

from rows import THREADS, Rows, accum_of, load

comptime SLICES = 8  # threads that add up the parts of one column


@always_inline
def over_block[
    dtype: DType, count: Int
](
    mut values: Array[Scalar[dtype], count],
    shared: Pointer[Scalar[dtype], MutUntrackedOrigin, address_space=.SHARED],
):
    """Adds up over the threads of a block, several values at once; all of them get the sums.

    There is one barrier: the next call has to have other memory, the one after may have the same.
    """
    var warps = Int(block_dim.x) // 32
    var own = Int(thread_idx.x) // 32
    var lane = Int(thread_idx.x) % 32
    comptime for v in range(count):
        comptime for i in range(5):
            values[v] += warp.shuffle_xor(values[v], UInt32(16 >> i))
        if lane == 0:
            shared[unsafe_offset=32 * v + own] = values[v]
    barrier()
    comptime for v in range(count):
        values[v] = shared[unsafe_offset=32 * v + lane] if lane < warps else Scalar[dtype](0)
        comptime for i in range(5):
            values[v] += warp.shuffle_xor(values[v], UInt32(16 >> i))


@fieldwise_init
struct PartOnGpu[
    dtype: DType,
    weight_dtype: DType,
    left_dtype: DType,
    rank: Int,
    weight_rank: Int,
    centered: Bool,
    has_more: Bool,
    has_weight: Bool,
    has_bias: Bool,
](ImplicitlyCopyable, RegisterPassable, def() -> None):
    """One part of `differentiate`, by a block whose threads keep a whole row, and read the next one meanwhile."""

    comptime hold = 2
    comptime vector = 16 // size_of[Self.dtype]()
    comptime accum = accum_of[Self.dtype]
    comptime Value = SIMD[Self.accum, Self.vector]
    comptime Held = Array[SIMD[Self.dtype, Self.vector], Self.hold]

    var grads: Rows[Self.dtype, Self.rank]
    var more: Rows[Self.dtype, Self.rank]
    var source: Rows[Self.dtype, Self.rank]
    var to: Rows[Self.dtype, Self.rank]
    var scale: Rows[Self.weight_dtype, Self.weight_rank]
    var left: Pointer[Scalar[Self.left_dtype], MutUntrackedOrigin]
    var columns: Int
    var rows: Int
    var parts: Int
    var epsilon: Scalar[Self.accum]

    @always_inline
    def column(self, k: Int) -> Int:
        return (k * Int(block_dim.x) + Int(thread_idx.x)) * Self.vector

    @always_inline
    def read(self, rows: Rows[Self.dtype, Self.rank], row: Int) -> Self.Held:
        """Returns what this thread has of a row, zeros beyond it."""
        var found = Self.Held(fill=0)
        var begin = rows.start(row)
        comptime for k in range(Self.hold):
            if self.column(k) < self.columns:
                found[k] = load[Self.vector](rows.data, begin + self.column(k))
        return found^

    @__llvm_metadata(MAX_THREADS_PER_BLOCK_METADATA=StaticTuple[Int32, 1](Int32(THREADS)))
    def __call__(self) capturing:
        comptime accum = Self.accum
        comptime kinds = Int(Self.has_weight) + Int(Self.has_bias)
        comptime Value = Self.Value
        var shared = unsafe_stack_allocation[8 * 32, Scalar[accum], address_space=.SHARED]()
        var part = Int(block_idx.x)
        var of_weight = Array[Value, Self.hold](fill=0)
        var of_bias = Array[Value, Self.hold](fill=0)
        var weights = Array[SIMD[Self.weight_dtype, Self.vector], Self.hold](fill=0)
        comptime if Self.has_weight:
            comptime for k in range(Self.hold):
                if self.column(k) < self.columns:
                    weights[k] = load[Self.vector](self.scale.data, self.column(k))
        var count = Scalar[accum](self.columns)
        var row = part * self.rows // self.parts
        var end = (part + 1) * self.rows // self.parts
        var values = Self.Held(fill=0)
        var grads = Self.Held(fill=0)
        if row < end:
            values = self.read(self.source, row)
            grads = self.read(self.grads, row)
        var odd = 0
        while row < end:
            var next_values = Self.Held(fill=0)
            var next_grads = Self.Held(fill=0)
            var more = Self.Held(fill=0)
            if row + 1 < end:
                next_values = self.read(self.source, row + 1)
                next_grads = self.read(self.grads, row + 1)
            comptime if Self.has_more:
                more = self.read(self.more, row)

            @always_inline
            def weighted(k: Int, g: Value) {imm} -> Value:
                comptime if Self.has_weight:
                    return g * weights[k].cast[accum]()
                return g

            var center = Scalar[accum](0)
            comptime if Self.centered:
                var total = Value(0)
                comptime for k in range(Self.hold):
                    total += values[k].cast[accum]()
                var mean = Array[Scalar[accum], 1](fill=total.reduce_add())
                over_block(mean, shared.unsafe_offset(6 * 32 + 32 * odd))
                center = mean[0] / count
            var squares = Value(0)
            var dots = Value(0)
            var all = Value(0)
            comptime for k in range(Self.hold):
                if self.column(k) < self.columns:
                    var d = values[k].cast[accum]() - center
                    var g = weighted(k, grads[k].cast[accum]())
                    squares += d * d
                    dots += g * d
                    comptime if Self.centered:
                        all += g
            comptime sums = 3 if Self.centered else 2
            var found = Array[Scalar[accum], sums](fill=0)
            found[0] = squares.reduce_add()
            found[1] = dots.reduce_add()
            comptime if Self.centered:
                found[2] = all.reduce_add()
            over_block(found, shared.unsafe_offset(3 * 32 * odd))
            odd = 1 - odd
            var rate = 1 / sqrt(found[0] / count + self.epsilon)
            var slope = found[1] / count * rate * rate
            var even = Scalar[accum](0)
            comptime if Self.centered:
                even = found[2] / count
            var to = self.to.start(row)
            comptime for k in range(Self.hold):
                var g = grads[k].cast[accum]()
                var d = values[k].cast[accum]() - center
                var result = (weighted(k, g) - even - d * slope) * rate
                comptime if Self.has_more:
                    result += more[k].cast[accum]()
                comptime if Self.has_weight:
                    of_weight[k] += g * d * rate
                comptime if Self.has_bias:
                    of_bias[k] += g
                if self.column(k) < self.columns:
                    self.to.data.unsafe_store[alignment=16](
                        to + self.column(k), result.cast[Self.dtype]()
                    )
            values = next_values^
            grads = next_grads^
            row += 1
        comptime for k in range(Self.hold):
            if self.column(k) < self.columns:
                var at = kinds * part * self.columns + self.column(k)
                comptime if Self.has_weight:
                    self.left.unsafe_store[alignment=16](at, of_weight[k].cast[Self.left_dtype]())
                comptime if Self.has_bias:
                    at += (kinds - 1) * self.columns
                    self.left.unsafe_store[alignment=16](at, of_bias[k].cast[Self.left_dtype]())


@fieldwise_init
struct SumOnGpu[dtype: DType, result: DType](ImplicitlyCopyable, RegisterPassable, def() -> None):
    """Adds up what the parts left for 32 columns: each thread some parts of one column, then across these."""

    var source: Pointer[Scalar[Self.dtype], MutUntrackedOrigin]
    var to: Pointer[Scalar[Self.result], MutUntrackedOrigin]
    var columns: Int
    var step: Int
    var parts: Int

    def __call__(self) capturing:
        comptime together = 8
        var shared = unsafe_stack_allocation[
            32 * SLICES, Scalar[Self.dtype], address_space=.SHARED
        ]()
        var lane = Int(thread_idx.x)
        var slice = Int(thread_idx.y)
        var column = Int(block_idx.x) * 32 + lane
        var total = Scalar[Self.dtype](0)
        if column < self.columns:
            for first in range(slice, self.parts, SLICES * together):
                var some = Array[Scalar[Self.dtype], together](fill=0)
                comptime for u in range(together):
                    if first + u * SLICES < self.parts:
                        some[u] = self.source[
                            unsafe_offset=(first + u * SLICES) * self.step + column
                        ]
                comptime for u in range(together):
                    total += some[u]
        shared[unsafe_offset=slice * 32 + lane] = total
        barrier()
        if slice == 0 and column < self.columns:
            comptime for s in range(1, SLICES):
                total += shared[unsafe_offset=s * 32 + lane]
            self.to[unsafe_offset=column] = total.cast[Self.result]()
