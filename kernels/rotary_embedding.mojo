"""Rotary position embedding: pairs (i, i + half) of the last dimension are turned by an angle."""

import extensibility
from extensibility import InputTensor, OutputTensor, elementwise
from layout import Coord, coord_to_index_list
from max.gpu.host import DeviceContext, get_gpu_target
from std.memory import Pointer
from std.sys import simd_width_of
from std.utils.index import IndexList


@always_inline
def lanes[
    dtype: DType, width: Int
](base: Pointer[Scalar[dtype], _], at: Int, step: Int) -> SIMD[dtype, width]:
    """Returns `width` elements, `step` apart."""
    if step == 1:
        return base.unsafe_load[width=width](at)
    var found = SIMD[dtype, width]()
    comptime for lane in range(width):
        found[lane] = base[unsafe_offset=at + lane * step]
    return found


@always_inline
def row_of(x: InputTensor, at: IndexList) -> Int:
    """Returns where the row of x begins that belongs to a place of the output; dimensions of 1 repeat."""
    var offset = 0
    comptime for d in range(x.rank - 1):
        if x.dim_size(d) != 1:
            offset += at[at.size - x.rank + d] * x.stride_length(d)
    return offset


@extensibility.register("rotary_embedding")
struct RotaryEmbedding[transposed: Bool]:
    """Computes x * cos + rotate_half(x) * sin, or its transpose, which carries gradients back to x."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        cos: InputTensor,
        sin: InputTensor[dtype=cos.dtype, rank=cos.rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime last = output.rank - 1
        comptime wide = DType.float64 if output.dtype == .float64 else DType.float32
        comptime native = simd_width_of[output.dtype]() if target == "cpu" else simd_width_of[
            output.dtype, target=get_gpu_target()
        ]()
        var half = x.dim_size(last) // 2
        var second = half if cos.dim_size(cos.rank - 1) > half else 0  # in cos and sin
        var steps = IndexList[4](
            output.stride_length(last),
            x.stride_length(last),
            cos.stride_length(cos.rank - 1),
            sin.stride_length(sin.rank - 1),
        )
        var shape = x.shape()
        shape[last] = half

        @always_inline
        def turn[
            width: Int, alignment: Int = 1
        ](place: Coord) {var output, var x, var cos, var sin, var half, var second, var steps}:
            var at = coord_to_index_list(place)
            var i = at[last]
            var from_x = row_of(x, at)
            var from_cos = row_of(cos, at)
            var from_sin = row_of(sin, at)
            var to = 0
            comptime for d in range(last):
                to += at[d] * output.stride_length(d)

            @always_inline
            def read[
                dtype: DType
            ](p: Pointer[Scalar[dtype], _], start: Int, i: Int, step: Int) {} -> SIMD[wide, width]:
                return lanes[dtype, width](p, start + i * step, step).cast[wide]()

            var a = read(x.unsafe_ptr(), from_x, i, steps[1])
            var b = read(x.unsafe_ptr(), from_x, i + half, steps[1])
            var cos_a = read(cos.unsafe_ptr(), from_cos, i, steps[2])
            var cos_b = read(cos.unsafe_ptr(), from_cos, i + second, steps[2])
            var sin_a = read(sin.unsafe_ptr(), from_sin, i, steps[3])
            var sin_b = read(sin.unsafe_ptr(), from_sin, i + second, steps[3])
            var first: SIMD[wide, width]
            var other: SIMD[wide, width]
            comptime if Self.transposed:
                first = a * cos_a + b * sin_b
                other = b * cos_b - a * sin_a
            else:
                first = a * cos_a - b * sin_a
                other = b * cos_b + a * sin_b

            @always_inline
            def write(i: Int, value: SIMD[output.dtype, width]) {var}:
                var p = output.unsafe_ptr()
                if steps[0] == 1:
                    p.unsafe_store(to + i, value)
                else:
                    comptime for lane in range(width):
                        p[unsafe_offset=to + (i + lane) * steps[0]] = value[lane]

            write(i, first.cast[output.dtype]())
            write(i + half, other.cast[output.dtype]())

        elementwise[native, target=target](turn, Coord(shape), ctx)
