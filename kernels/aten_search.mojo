"""Where numbers belong in sorted rows."""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu.host import DeviceContext

from aten_lines import Extent, lines_of, walk


@extensibility.register("aten_searchsorted")
struct SearchSorted:
    """For each number, how many of its row are less; `right`, how many are not greater. All are less than nan."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[rank=2, ...],
        sequence: InputTensor[rank=2, ...],
        values: InputTensor[dtype=sequence.dtype, rank=2, ...],
        right: Int64,
        ctx: DeviceContext,
    ) raises:
        var to = lines_of(output, 1)
        var rows = lines_of(sequence, 1)
        var given = lines_of(values, 1)
        var size = sequence.dim_size(1)

        @always_inline
        def one(
            o: Int, k: Int, first: Int, end: Int
        ) {var to, var rows, var given, var size, var right}:
            var begin = rows.outer(o)
            var value = given.data[unsafe_offset=given.at(o, k, 0)]
            var low = 0
            var high = size
            while low < high:
                var middle = (low + high) // 2
                var other = rows.data[unsafe_offset=begin + middle * rows.step]
                var before = not (other > value) if right != 0 else not (other >= value)
                if before:
                    low = middle + 1
                else:
                    high = middle
            to.data[unsafe_offset=to.at(o, k, 0)] = Scalar[to.dtype](low)

        walk[target](one, Extent(values.dim_size(0), values.dim_size(1), 1), ctx)
