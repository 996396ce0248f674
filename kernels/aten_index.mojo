"""Elements and rows at given places: gather, index_select, embedding, and the parts of index and take."""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu.host import DeviceContext

from aten_lines import (
    NO_FAULT,
    Extent,
    Fault,
    axis_of,
    copy,
    extent_of,
    fault_of,
    fits,
    lines_of,
    place_of,
    refuse,
    sizes_of,
    text_of,
    walk,
)
from rows import rows_of


@extensibility.register("aten_gather")
struct Gather:
    """The elements at the indices along one dimension."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        dim: Int64,
        index: InputTensor[rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        var axis = axis_of(dim, output.rank)
        var shape = sizes_of(index)
        if not fits(shape, sizes_of(input), axis):
            raise Error(
                "expected index ",
                text_of(shape),
                " to be no larger than self ",
                text_of(sizes_of(input)),
                " apart from dimension ",
                axis,
            )
        var to = lines_of(output, axis)
        var source = lines_of(input, axis, shape)
        var places = lines_of(index, axis)
        var size = input.dim_size(axis)
        var word = NO_FAULT
        var fault = fault_of(word)

        @always_inline
        def one(
            o: Int, k: Int, first: Int, end: Int
        ) {var to, var source, var places, var size, var fault}:
            for i in range(first, end):
                var found = Int(places.data[unsafe_offset=places.at(o, k, i)])
                var place = place_of(found, size, False, fault)
                if place >= 0:
                    to.data[unsafe_offset=to.at(o, k, i)] = source.data[
                        unsafe_offset=source.at(o, place, i)
                    ]

        walk[target](one, extent_of(shape, axis), ctx)
        if word != NO_FAULT:
            refuse("gather", word, axis, size)


@extensibility.register("aten_index_select")
struct IndexSelect:
    """The slices at the indices along one dimension."""

    @staticmethod
    def execute[
        target: StaticString, how: StaticString
    ](
        output: OutputTensor,
        input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        dim: Int64,
        index: InputTensor[rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        var axis = axis_of(dim, output.rank)
        var to = lines_of(output, axis)
        var source = lines_of(input, axis)
        var places = lines_of(index, 0)
        var size = input.dim_size(axis)
        var word = NO_FAULT
        var fault = fault_of(word)

        @always_inline
        def one(
            o: Int, k: Int, first: Int, end: Int
        ) {var to, var source, var places, var size, var fault}:
            var place = Int(places.data[unsafe_offset=k * places.step])
            comptime if how != "take_rows":
                place = place_of(place, size, False, fault)
                if place < 0:
                    return
            copy(to, to.at(o, k, 0), source, source.at(o, place, 0), first, end)

        walk[target](one, extent_of(sizes_of(output), axis), ctx)
        if word != NO_FAULT:
            refuse(how, word, axis, size)


@extensibility.register("aten_embedding")
struct Embedding:
    """The rows of a table at indices of any shape."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        weight: InputTensor[dtype=output.dtype, rank=2, ...],
        indices: InputTensor,
        ctx: DeviceContext,
    ) raises:
        var to = rows_of(output, output.rank - 1, output.rank)
        var source = lines_of(weight, 0)
        var places = rows_of(indices, 0, indices.rank)
        var size = weight.dim_size(0)
        var word = NO_FAULT
        var fault = fault_of(word)

        @always_inline
        def one(
            o: Int, k: Int, first: Int, end: Int
        ) {var to, var source, var places, var size, var fault}:
            var found = Int(places.data[unsafe_offset=places.offset(k)])
            var place = place_of(found, size, False, fault)
            if place < 0:
                return
            var begin = place * source.step
            var to_begin = to.start(k)
            for i in range(first, end):
                to.data[unsafe_offset=to_begin + i] = source.data[
                    unsafe_offset=begin + source.inner(i)
                ]

        walk[target](one, Extent(1, places.columns(), weight.dim_size(1)), ctx)
        if word != NO_FAULT:
            refuse("embedding", word, 0, size)


@extensibility.register("aten_checked_index")
struct CheckedIndex:
    """Indices in range, as numbers of places: `base` counts those in the dimensions before."""

    @staticmethod
    def execute[
        target: StaticString, how: StaticString, wrap: Bool, has_base: Bool
    ](
        output: OutputTensor[dtype=DType.int64, ...],
        index: InputTensor[rank=output.rank, ...],
        of: InputTensor,
        dim: Int64,
        named: Int64,
        base: InputTensor[dtype=DType.int64, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime last = output.rank - 1
        var to = lines_of(output, last)
        var places = lines_of(index, last)
        var before = lines_of(base, last)
        var size = of.dim_size(axis_of(dim, of.rank))
        comptime if how == "take":
            size = 1
            comptime for d in range(of.rank):
                size *= of.dim_size(d)
        var word = NO_FAULT
        var fault = fault_of(word)

        @always_inline
        def one(
            o: Int, k: Int, first: Int, end: Int
        ) {var to, var places, var before, var size, var fault}:
            var found = Int(places.data[unsafe_offset=places.at(o, k, 0)])
            var place = place_of(found, size, wrap, fault)
            comptime if has_base:
                place += Int(before.data[unsafe_offset=before.at(o, k, 0)]) * size
            to.data[unsafe_offset=to.at(o, k, 0)] = Int64(place)

        walk[target](one, extent_of(sizes_of(output), last), ctx)
        if word != NO_FAULT:
            refuse(how, word, Int(named), size)
