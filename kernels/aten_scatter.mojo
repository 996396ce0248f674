"""Elements and rows put at given places: scatter, its reductions, index_add, index_copy, index_fill, put_rows.

The output is first a copy of the input. On the CPU every line along the dimension is worked through in the order of its
indices, so that the last of several writers wins and sums are those of torch. On a GPU writers of one place race, and
sums are atomic, in no fixed order, for the dtypes that the device can add to; the other reductions go line by line.
"""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu.host import DeviceContext
from std.atomic import Atomic
from std.memory import Pointer
from std.sys import is_gpu, size_of
from std.utils.index import IndexList
from std.utils.numerics import isnan

from aten_lines import (
    NO_FAULT,
    Extent,
    Lines,
    Scratch,
    axis_of,
    extent_of,
    fault_of,
    fits,
    lines_of,
    place_of,
    refuse,
    repeated,
    same,
    sizes_of,
    text_of,
    walk,
)
from rows import pointer_of, rows_of

comptime SUM = 0
comptime PROD = 1
comptime AMAX = 2
comptime AMIN = 3

# what a reduction is made in: torch rounds half-precision ones once
comptime wide_of[dtype: DType] = DType.float32 if (
    dtype == .float16 or dtype == .bfloat16
) else dtype
comptime has_atomic_add[dtype: DType] = (
    dtype.is_floating_point() or dtype.is_integral()
) and size_of[dtype]() >= 4


@always_inline
def combined[dtype: DType, //, op: Int](a: Scalar[dtype], b: Scalar[dtype]) -> Scalar[dtype]:
    """Returns two elements as one; nan wins, and bools are added and multiplied as bits."""
    comptime if dtype == .bool:
        comptime if op == SUM or op == AMAX:
            return a | b
        return a & b
    else:
        comptime if op == SUM:
            return a + b
        comptime if op == PROD:
            return a * b
        comptime if dtype.is_floating_point():
            if isnan(a) or isnan(b):
                return a if isnan(a) else b
        comptime if op == AMAX:
            return b if a < b else a
        return b if b < a else a


@always_inline
def identity[op: Int, dtype: DType]() -> Scalar[dtype]:
    comptime if op == SUM:
        return Scalar[dtype](0)
    comptime if op == PROD:
        return Scalar[dtype](1)
    comptime if op == AMAX:
        return Scalar[dtype].MIN
    return Scalar[dtype].MAX


@always_inline
def reduce_into[
    dtype: DType, //, op: Int
](data: Pointer[Scalar[dtype], MutUntrackedOrigin], at: Int, value: Scalar[dtype]):
    """Combines a value with an element; a sum on a GPU may have several writers."""
    comptime if is_gpu() and op == SUM and has_atomic_add[dtype]:
        _ = Atomic.fetch_add(data.unsafe_offset(at), value)
    else:
        data[unsafe_offset=at] = combined[op](data[unsafe_offset=at], value)


def require_room[
    rank: Int, //
](index: IndexList[rank], input: IndexList[rank], src: IndexList[rank], axis: Int) raises:
    """Refuses an index that is larger than what it goes through."""
    if not fits(index, input, axis) or not fits(index, src, -1):
        raise Error(
            "expected index ",
            text_of(index),
            " to be no larger than self ",
            text_of(input),
            " apart from dimension ",
            axis,
            " and to be no larger than src ",
            text_of(src),
        )


def convert[
    to_dtype: DType, //, target: StaticString
](to: Pointer[Scalar[to_dtype], MutUntrackedOrigin], input: InputTensor, ctx: DeviceContext) raises:
    """Copies a tensor to memory in row-major order."""
    var source = rows_of(input, 0, input.rank)

    @always_inline
    def one(o: Int, k: Int, first: Int, end: Int) {var to, var source}:
        if source.packed():
            for i in range(first, end):
                to[unsafe_offset=i] = source.data[unsafe_offset=i].cast[to_dtype]()
        else:
            for i in range(first, end):
                to[unsafe_offset=i] = source.data[unsafe_offset=source.offset(i)].cast[to_dtype]()

    walk[target](one, Extent(1, 1, source.columns()), ctx)


def put_elements[
    dtype: DType, index_dtype: DType, rank: Int, //, target: StaticString
](
    to: Lines[dtype, rank],
    places: Lines[index_dtype, rank],
    source: Lines[dtype, rank],
    size: Int,
    extent: Extent,
    ctx: DeviceContext,
) raises:
    """Writes each element to its index."""
    var word = NO_FAULT
    var fault = fault_of(word)

    @always_inline
    def one(
        o: Int, k: Int, first: Int, end: Int
    ) {var to, var places, var source, var size, var fault}:
        for i in range(first, end):
            var found = Int(places.data[unsafe_offset=places.at(o, k, i)])
            var place = place_of(found, size, False, fault)
            if place >= 0:
                to.data[unsafe_offset=to.at(o, place, i)] = source.data[
                    unsafe_offset=source.at(o, k, i)
                ]

    walk[target, in_order=target == "cpu"](one, extent, ctx)
    if word != NO_FAULT:
        refuse("scatter", word, to.axis, size)


def scattered[
    target: StaticString
](
    output: OutputTensor,
    input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
    axis: Int,
    index: InputTensor[rank=output.rank, ...],
    source: Lines[output.dtype, output.rank],
    ctx: DeviceContext,
) raises:
    """Copies the input and writes the source's elements to the indices."""
    var shape = sizes_of(index)
    convert[target](pointer_of(output), input, ctx)
    put_elements[target](
        lines_of(output, axis, shape),
        lines_of(index, axis),
        source,
        output.dim_size(axis),
        extent_of(shape, axis),
        ctx,
    )


@extensibility.register("aten_scatter")
struct Scatter:
    """The input with the elements of `src` at the indices along one dimension."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        dim: Int64,
        index: InputTensor[rank=output.rank, ...],
        src: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        var axis = axis_of(dim, output.rank)
        require_room(sizes_of(index), sizes_of(input), sizes_of(src), axis)
        var source = lines_of(src, axis, sizes_of(index))
        scattered[target](output, input, axis, index, source, ctx)


@extensibility.register("aten_scatter_value")
struct ScatterValue:
    """The input with a single element at the indices along one dimension."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        dim: Int64,
        index: InputTensor[rank=output.rank, ...],
        src: InputTensor[dtype=output.dtype, ...],
        ctx: DeviceContext,
    ) raises:
        var axis = axis_of(dim, output.rank)
        require_room(sizes_of(index), sizes_of(input), sizes_of(index), axis)
        var source = repeated(src, axis, sizes_of(index))
        scattered[target](output, input, axis, index, source, ctx)


@extensibility.register("aten_scatter_reduce")
struct ScatterReduce:
    """The input reduced with the elements of `src` at the indices along one dimension."""

    @staticmethod
    def execute[
        target: StaticString, reduce: StaticString
    ](
        output: OutputTensor,
        input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        dim: Int64,
        index: InputTensor[rank=output.rank, ...],
        src: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        include_self: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime dtype = output.dtype
        comptime mean = reduce == "mean"
        comptime op = PROD if reduce == "prod" else (
            AMAX if reduce == "amax" else AMIN if reduce == "amin" else SUM
        )
        comptime wide = wide_of[dtype]
        var axis = axis_of(dim, output.rank)
        var size = output.dim_size(axis)
        var whole = extent_of(sizes_of(output), axis)
        var shape = sizes_of(index)
        require_room(shape, sizes_of(input), sizes_of(src), axis)
        var extent = extent_of(shape, axis)
        var to = lines_of(output, axis)
        comptime separate = wide != dtype
        var sums = Scratch[target, wide](whole.elements() if separate else 0, ctx)
        var counts = Scratch[target, DType.int32](whole.elements() if mean else 0, ctx)
        var totals = to.with_data(
            sums.data() if separate else rebind[type_of(sums.data())](to.data)
        )
        var numbers = to.with_data(counts.data())
        convert[target](totals.data, input, ctx)
        var own = Int32(include_self)
        comptime if mean:

            @always_inline
            def start(o: Int, k: Int, first: Int, end: Int) {var numbers, var own}:
                for i in range(first, end):
                    numbers.data[unsafe_offset=numbers.at(o, k, i)] = own

            walk[target](start, whole, ctx)
        # the same places, counted in the smaller shape of the indices
        var into = lines_of(output, axis, shape)
        var source = lines_of(src, axis, shape)
        var places = lines_of(index, axis)
        var into_totals = into.with_data(totals.data)
        var into_numbers = into.with_data(numbers.data)
        var word = NO_FAULT
        var fault = fault_of(word)
        if include_self == 0:

            @always_inline
            def clear(
                o: Int, k: Int, first: Int, end: Int
            ) {var into_totals, var places, var size, var fault}:
                for i in range(first, end):
                    var found = Int(places.data[unsafe_offset=places.at(o, k, i)])
                    var place = place_of(found, size, False, fault)
                    if place >= 0:
                        into_totals.data[unsafe_offset=into_totals.at(o, place, i)] = identity[
                            op, wide
                        ]()

            walk[target](clear, extent, ctx)

        @always_inline
        def one(
            o: Int, k: Int, first: Int, end: Int
        ) {var into_totals, var into_numbers, var places, var source, var size, var fault}:
            for i in range(first, end):
                var found = Int(places.data[unsafe_offset=places.at(o, k, i)])
                var place = place_of(found, size, False, fault)
                if place < 0:
                    continue
                var value = source.data[unsafe_offset=source.at(o, k, i)].cast[wide]()
                var at = into_totals.at(o, place, i)
                reduce_into[op](into_totals.data, at, value)
                comptime if mean:
                    reduce_into[SUM](into_numbers.data, at, Int32(1))

        comptime atomic = target != "cpu" and op == SUM and has_atomic_add[wide]
        walk[target, in_order=not atomic](one, extent, ctx)
        if word != NO_FAULT:
            refuse("scatter", word, axis, size)
        comptime if mean or separate:

            @always_inline
            def finish(o: Int, k: Int, first: Int, end: Int) {var to, var totals, var numbers}:
                for i in range(first, end):
                    var at = to.at(o, k, i)
                    var total = totals.data[unsafe_offset=at].cast[dtype]()
                    comptime if mean:
                        var count = numbers.data[unsafe_offset=at].cast[dtype]()
                        if count == 0:
                            count = 1
                        comptime if dtype.is_floating_point():
                            total = (total.cast[wide]() / count.cast[wide]()).cast[dtype]()
                        elif dtype.is_integral():
                            total = total // count
                    to.data[unsafe_offset=at] = total

            walk[target](finish, whole, ctx)
        _ = sums^
        _ = counts^


@extensibility.register("aten_put_rows")
struct PutRows:
    """The input with the slices of `source` copied or added to those at the indices."""

    @staticmethod
    def execute[
        target: StaticString, how: StaticString, accumulate: Bool
    ](
        output: OutputTensor,
        input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        dim: Int64,
        index: InputTensor[rank=1, ...],
        source: InputTensor[rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime dtype = output.dtype
        comptime wide = wide_of[dtype]
        comptime atomic = target != "cpu" and accumulate and has_atomic_add[dtype]
        var axis = axis_of(dim, output.rank)
        var size = output.dim_size(axis)
        var shape = sizes_of(source)
        if not same(shape, sizes_of(input), axis) or shape[axis] != index.dim_size(0):
            raise Error(
                "source tensor shape must match self tensor shape, excluding the specified dimension, and have ",
                index.dim_size(0),
                " of those. Got self.shape = ",
                text_of(sizes_of(input)),
                " source.shape = ",
                text_of(shape),
            )
        var to = lines_of(output, axis)
        convert[target](pointer_of(output), input, ctx)
        var values = lines_of(source, axis)
        var places = lines_of(index, 0)
        var word = NO_FAULT
        var fault = fault_of(word)

        @always_inline
        def one(
            o: Int, k: Int, first: Int, end: Int
        ) {var to, var values, var places, var size, var fault}:
            var place = Int(places.data[unsafe_offset=k * places.step])
            comptime if how != "put_rows":
                place = place_of(place, size, False, fault)
                if place < 0:
                    return
            var begin = values.at(o, k, 0)
            var to_begin = to.at(o, place, 0)
            for i in range(first, end):
                var at = to_begin + to.inner(i)
                var value = values.data[unsafe_offset=begin + values.inner(i)]
                comptime if atomic:
                    reduce_into[SUM](to.data, at, value.cast[dtype]())
                elif accumulate:
                    var sum = combined[SUM](
                        to.data[unsafe_offset=at].cast[wide](), value.cast[wide]()
                    )
                    to.data[unsafe_offset=at] = sum.cast[dtype]()
                else:
                    to.data[unsafe_offset=at] = value.cast[dtype]()

        comptime ordered = target == "cpu" or (accumulate and not atomic)
        walk[target, in_order=ordered](one, extent_of(sizes_of(source), axis), ctx)
        if word != NO_FAULT:
            refuse(how, word, axis, size)


@extensibility.register("aten_index_fill")
struct IndexFill:
    """The input with one value in the slices at the indices; negative ones count from the end."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        dim: Int64,
        index: InputTensor[rank=1, ...],
        value: InputTensor[dtype=output.dtype, ...],
        ctx: DeviceContext,
    ) raises:
        var axis = axis_of(dim, output.rank)
        var size = output.dim_size(axis)
        var to = lines_of(output, axis)
        var whole = extent_of(sizes_of(output), axis)
        convert[target](pointer_of(output), input, ctx)
        var single = pointer_of(value)
        var places = lines_of(index, 0)
        var word = NO_FAULT
        var fault = fault_of(word)

        @always_inline
        def one(
            o: Int, k: Int, first: Int, end: Int
        ) {var to, var single, var places, var size, var fault}:
            var found = Int(places.data[unsafe_offset=k * places.step])
            var place = place_of(found, size, True, fault)
            if place < 0:
                return
            var begin = to.at(o, place, 0)
            for i in range(first, end):
                to.data[unsafe_offset=begin + to.inner(i)] = single[]

        walk[target](one, Extent(whole.outer, index.dim_size(0), whole.inner), ctx)
        if word != NO_FAULT:
            refuse("index_fill", word, axis, size)
