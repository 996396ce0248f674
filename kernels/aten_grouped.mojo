"""Products of rows with the matrix of their group, as in a mixture of experts.

A group's rows lie side by side: offsets say where each group ends. Rows behind the last are zero.
"""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu.host import DeviceContext
from std.collections import Array
from std.math import ceildiv
from std.sys import simd_width_of

from aten_lines import Extent, walk
from rows import pointer_of

comptime ROWS = 6  # that are computed together
comptime wide_of[dtype: DType] = DType.float64 if dtype == .float64 else DType.float32


@extensibility.register("aten_grouped_mm")
struct GroupedMatmul:
    """Each row of (rows, inner) times the matrix of its group, of (groups, inner, columns)."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[rank=2, ...],
        input: InputTensor[dtype=output.dtype, rank=2, ...],
        weight: InputTensor[dtype=output.dtype, rank=3, ...],
        offsets: InputTensor[rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime wide = wide_of[output.dtype]
        comptime WIDTH = 2 * simd_width_of[wide]() if target == "cpu" else 1  # columns of a panel
        var rows = output.dim_size(0)
        var columns = output.dim_size(1)
        var inner = input.dim_size(1)
        var groups = weight.dim_size(0)
        var to = pointer_of(output)
        var source = pointer_of(input)
        var matrices = pointer_of(weight)
        var ends = pointer_of(offsets)

        @always_inline
        def tile[
            count: Int, width: Int
        ](row: Int, column: Int, group: Int) {
            var to, var source, var matrices, var inner, var columns
        }:
            """Computes `width` columns of `count` rows of one group."""
            var sums = Array[SIMD[wide, width], count](fill=0)
            for k in range(inner):
                var place = (group * inner + k) * columns + column
                var factor = matrices.unsafe_offset(place).unsafe_load[width]().cast[wide]()
                comptime for j in range(count):
                    var x = source[unsafe_offset=(row + j) * inner + k].cast[wide]()
                    sums[j] = factor.fma(SIMD[wide, width](x), sums[j])
            comptime for j in range(count):
                var place = (row + j) * columns + column
                to.unsafe_offset(place).unsafe_store(sums[j].cast[output.dtype]())

        @always_inline
        def one(
            o: Int, panel: Int, first: Int, last: Int
        ) {var tile, var to, var ends, var columns, var groups}:
            """Computes rows first to last of a panel: what it reads of a matrix stays near for all of them."""
            var column = panel * WIDTH
            var whole = column + WIDTH <= columns
            var group = 0
            var row = first
            while row < last:
                while group < groups and Int(ends[unsafe_offset=group]) <= row:
                    group += 1
                if group == groups:
                    for c in range(column, min(column + WIDTH, columns)):
                        to[unsafe_offset=row * columns + c] = 0
                    row += 1
                elif whole and row + ROWS <= min(last, Int(ends[unsafe_offset=group])):
                    tile[ROWS, WIDTH](row, column, group)
                    row += ROWS
                else:
                    if whole:
                        tile[1, WIDTH](row, column, group)
                    else:
                        for c in range(column, columns):
                            tile[1, 1](row, c, group)
                    row += 1

        walk[target](one, Extent(1, ceildiv(columns, WIDTH), rows), ctx)
