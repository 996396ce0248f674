"""Running results along one dimension: cumsum, cumprod, logcumsumexp, and cummax and cummin with their places.

A line is one thread's, from its first element to its last.
"""

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu.host import DeviceContext
from std.math import exp, log1p
from std.sys import size_of
from std.utils.numerics import isfinite, isnan, nan

from aten_lines import Scratch, axis_of, extent_of, lines_of, sizes_of, walk

# what torch keeps a running result in
comptime wide_of[dtype: DType] = DType.int64 if not dtype.is_floating_point() else (
    DType.float64 if size_of[dtype]() >= 4 else DType.float32
)


@always_inline
def log_add_exp[
    dtype: DType, //
](a: Scalar[dtype], b: Scalar[dtype]) -> Scalar[dtype] where dtype.is_floating_point():
    """Returns log(e^a + e^b)."""
    if isnan(a) or isnan(b):
        return a + b
    var low = min(a, b)
    var high = max(a, b)
    if low == high and not isfinite(low):
        return low
    return log1p(exp(low - high)) + high


@always_inline
def next[
    dtype: DType, //, how: StaticString
](before: Scalar[dtype], value: Scalar[dtype]) -> Scalar[dtype]:
    comptime if how == "cumsum":
        return before + value
    comptime if how == "logcumsumexp":
        comptime if dtype.is_floating_point():
            return log_add_exp(before, value)
    return before * value


@extensibility.register("aten_scan")
struct Scan:
    """The results of all elements up to each."""

    @staticmethod
    def execute[
        target: StaticString, how: StaticString
    ](
        output: OutputTensor,
        input: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        dim: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime wide = wide_of[output.dtype]
        var axis = axis_of(dim, output.rank)
        var extent = extent_of(sizes_of(input), axis)
        var to = lines_of(output, axis)
        var source = lines_of(input, axis)
        var scratch = Scratch[target, wide](extent.outer * extent.inner, ctx)
        var running = scratch.data()
        var inner = extent.inner

        @always_inline
        def one(o: Int, k: Int, first: Int, end: Int) {var to, var source, var running, var inner}:
            for i in range(first, end):
                var value = source.data[unsafe_offset=source.at(o, k, i)].cast[wide]()
                var at = o * inner + i
                if k > 0:
                    value = next[how](running[unsafe_offset=at], value)
                running[unsafe_offset=at] = value
                to.data[unsafe_offset=to.at(o, k, i)] = value.cast[output.dtype]()

        walk[target, in_order=True](one, extent, ctx)
        _ = scratch^


@extensibility.register("aten_running_extreme")
struct RunningExtreme:
    """The largest or smallest element up to each, and the last of its places; the first nan stays."""

    @staticmethod
    def execute[
        target: StaticString, largest: Bool
    ](
        values: OutputTensor,
        indices: OutputTensor[dtype=DType.int64, rank=values.rank, ...],
        input: InputTensor[dtype=values.dtype, rank=values.rank, ...],
        dim: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime dtype = values.dtype
        var axis = axis_of(dim, values.rank)
        var to = lines_of(values, axis)
        var places = lines_of(indices, axis)
        var source = lines_of(input, axis)

        @always_inline
        def one(o: Int, k: Int, first: Int, end: Int) {var to, var places, var source}:
            for i in range(first, end):
                var value = source.data[unsafe_offset=source.at(o, k, i)]
                var place = Int64(k)
                if k > 0:
                    var before = to.data[unsafe_offset=to.at(o, k - 1, i)]
                    var wins = value >= before if largest else value <= before
                    comptime if dtype.is_floating_point():
                        wins = isnan(value) or (wins and not isnan(before))
                    if not wins:
                        value = before
                        place = places.data[unsafe_offset=places.at(o, k - 1, i)]
                to.data[unsafe_offset=to.at(o, k, i)] = value
                places.data[unsafe_offset=places.at(o, k, i)] = place

        walk[target, in_order=True](one, extent_of(sizes_of(input), axis), ctx)


@extensibility.register("aten_from_sorted")
struct FromSorted:
    """The median, or the most frequent element, of rows that are sorted, and its place."""

    @staticmethod
    def execute[
        target: StaticString, how: StaticString
    ](
        value: OutputTensor,
        index: OutputTensor[dtype=DType.int64, rank=value.rank, ...],
        values: InputTensor[dtype=value.dtype, rank=value.rank, ...],
        indices: InputTensor[dtype=DType.int64, rank=value.rank, ...],
        dim: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime dtype = value.dtype
        var axis = axis_of(dim, value.rank)
        var extent = extent_of(sizes_of(values), axis)
        var n = extent.along
        extent.along = 1
        var to = lines_of(value, axis)
        var to_place = lines_of(index, axis)
        var source = lines_of(values, axis)
        var places = lines_of(indices, axis)

        @always_inline
        def one(
            o: Int, k: Int, first: Int, end: Int
        ) {var to, var to_place, var source, var places, var n}:
            for i in range(first, end):

                @always_inline
                def at(j: Int) {imm} -> Scalar[dtype]:
                    return source.data[unsafe_offset=source.at(o, j, i)]

                var chosen = 0
                comptime if how == "mode":
                    var most = 0
                    var begin = 0
                    for j in range(n):
                        if j + 1 == n or at(j + 1) != at(j):
                            if j + 1 - begin > most:
                                most = j + 1 - begin
                                chosen = j
                            begin = j + 1
                else:
                    var numbers = n  # nan stands at the end
                    comptime if dtype.is_floating_point():
                        while numbers > 0 and isnan(at(numbers - 1)):
                            numbers -= 1
                    chosen = max(numbers - 1, 0) // 2
                    comptime if how == "median":
                        if numbers < n:
                            chosen = numbers
                to.data[unsafe_offset=to.at(o, 0, i)] = at(chosen)
                to_place.data[unsafe_offset=to_place.at(o, 0, i)] = places.data[
                    unsafe_offset=places.at(o, chosen, i)
                ]

        @always_inline
        def none(o: Int, k: Int, first: Int, end: Int) {var to, var to_place}:
            for i in range(first, end):
                comptime if dtype.is_floating_point():
                    to.data[unsafe_offset=to.at(o, 0, i)] = nan[dtype]()
                else:
                    to.data[unsafe_offset=to.at(o, 0, i)] = 0
                to_place.data[unsafe_offset=to_place.at(o, 0, i)] = 0

        if n > 0:
            walk[target](one, extent, ctx)
        else:
            walk[target](none, extent, ctx)
