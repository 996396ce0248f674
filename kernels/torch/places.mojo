"""Numbers in a row, and what is read and written at places; a library for all dtypes.

A call has words: addresses, counts, switches, the bits of numbers. Elements that are only moved are bytes.
"""

from std.ffi import external_call
from std.memory import Pointer
from std.sys import size_of

from torch.tasks import OnRange, at, share
from torch.words import WordPtr, pointer

comptime GRAIN = 16384  # bytes or elements that are worth a thread

# as in device/places.py
comptime DTYPES = [
    DType.float32,
    DType.float64,
    DType.float16,
    DType.bfloat16,
    DType.int8,
    DType.int16,
    DType.int32,
    DType.int64,
    DType.uint8,
    DType.bool,
]
comptime NUMBERS = 9  # of those, the ones that are no bool
comptime DTYPE = 0


@always_inline
def move(to: Int, source: Int, bytes: Int):
    """Copies bytes; an element without a call."""
    comptime for width in [4, 8, 2, 1]:
        if bytes == width:
            comptime T = [DType.uint8, DType.uint16, DType.uint32, DType.uint64][
                0 if width == 1 else 1 if width == 2 else 2 if width == 4 else 3
            ]
            Pointer[Scalar[T], MutAnyOrigin](unsafe_from_address=to)[] = Pointer[
                Scalar[T], MutAnyOrigin
            ](unsafe_from_address=source)[]
            return
    _ = external_call["memcpy", Int](pointer(to), pointer(source), bytes)


@always_inline
def clear(to: Int, bytes: Int):
    _ = external_call["memset", Int](pointer(to), Int32(0), bytes)


# numbers in a row: first + step * i of int64 or float64; with a last one, from both ends

comptime COUNT = 1
comptime TO = 2
comptime FLOATING = 3
comptime FIRST = 4
comptime STEP = 5
comptime FROM_BOTH_ENDS = 6
comptime LAST = 7


def numbers[T: DType](begin: Int64, end: Int64, work: WordPtr) abi("C"):
    var to = at[T](work, TO)
    if work[unsafe_offset=FLOATING] == 0:
        var first = work[unsafe_offset=FIRST]
        var step = work[unsafe_offset=STEP]
        for i in range(Int(begin), Int(end)):
            to.unsafe_offset(i)[] = Int64(first + step * i).cast[T]()
        return
    var bits = Pointer[Float64, MutAnyOrigin](unsafe_from_address=Int(work))
    var first = bits[unsafe_offset=FIRST]
    var step = bits[unsafe_offset=STEP]
    var count = work[unsafe_offset=COUNT]
    var half = count // 2 if work[unsafe_offset=FROM_BOTH_ENDS] != 0 else count
    for i in range(Int(begin), Int(end)):
        var value = first + step * Float64(i)
        if i >= half:
            value = bits[unsafe_offset=LAST] - step * Float64(count - i - 1)
        to.unsafe_offset(i)[] = value.cast[T]()


@export
def tm_numbers(work: WordPtr) abi("C"):
    comptime for k in range(NUMBERS):
        if work[unsafe_offset=DTYPE] == k:
            var f: OnRange = numbers[DTYPES[k]]
            share(f, work[unsafe_offset=COUNT], GRAIN, work)


# triangles of (matrices, rows, columns)

comptime BYTES = 0  # of an element
comptime MATRICES = 1
comptime ROWS = 2
comptime COLUMNS = 3
comptime DIAGONAL = 4
comptime UPPER = 5
comptime SOURCE = 6
comptime GOAL = 7


def triangles(begin: Int64, end: Int64, work: WordPtr) abi("C"):
    var columns = work[unsafe_offset=COLUMNS]
    var bytes = work[unsafe_offset=BYTES]
    for i in range(Int(begin), Int(end)):
        var border = i % work[unsafe_offset=ROWS] + work[unsafe_offset=DIAGONAL]
        var upper = work[unsafe_offset=UPPER] != 0
        border = max(0, min(columns, border if upper else border + 1))
        var first = border if upper else 0
        var last = columns if upper else border
        var source = work[unsafe_offset=SOURCE] + i * columns * bytes
        var to = work[unsafe_offset=GOAL] + i * columns * bytes
        clear(to, first * bytes)
        _ = external_call["memmove", Int](  # in place too
            pointer(to + first * bytes), pointer(source + first * bytes), (last - first) * bytes
        )
        clear(to + last * bytes, (columns - last) * bytes)


@export
def tm_triangles(work: WordPtr) abi("C"):
    var f: OnRange = triangles
    var row = max(work[unsafe_offset=COLUMNS] * work[unsafe_offset=BYTES], 1)
    share(f, work[unsafe_offset=MATRICES] * work[unsafe_offset=ROWS], GRAIN // row + 1, work)


# lines (outer, along, bytes) in another order: what stands at k comes from (first + step * k) mod along

comptime ALONG = 1
comptime INNER = 2  # bytes
comptime START = 3
comptime BY = 4
comptime TURNED = 5
comptime LINES = 6
comptime OUTER = 7


def turned(begin: Int64, end: Int64, work: WordPtr) abi("C"):
    var along = work[unsafe_offset=ALONG]
    var bytes = work[unsafe_offset=INNER]
    for i in range(Int(begin), Int(end)):
        var k = (work[unsafe_offset=START] + work[unsafe_offset=BY] * (i % along)) % along
        var source = work[unsafe_offset=LINES] + (i // along * along + k) * bytes
        move(work[unsafe_offset=TURNED] + i * bytes, source, bytes)


@export
def tm_turn(work: WordPtr) abi("C"):
    var f: OnRange = turned
    var count = work[unsafe_offset=OUTER] * work[unsafe_offset=ALONG]
    share(f, count, GRAIN // max(work[unsafe_offset=INNER], 1) + 1, work)


# masks: bytes 0 and 1

comptime MASK = 0
comptime ELEMENTS = 1


@export
def tm_count(work: WordPtr) abi("C") -> Int:
    """Returns how many are not 0."""
    var mask = at[DType.uint8](work, MASK)
    var found = 0
    for i in range(work[unsafe_offset=ELEMENTS]):
        found += Int(mask.unsafe_offset(i)[])
    return found


comptime RANK = 2
comptime SIZES = 3
comptime FOUND = 4
comptime PLACES = 5  # (rank, found) of int64


@export
def tm_nonzero(work: WordPtr) abi("C"):
    """Writes the places of what is not 0."""
    var mask = at[DType.uint8](work, MASK)
    var places = at[DType.int64](work, PLACES)
    var sizes = at[DType.int64](work, SIZES)
    var n = 0
    for i in range(work[unsafe_offset=ELEMENTS]):
        if mask.unsafe_offset(i)[] == 0:
            continue
        var rest = i
        for back in range(work[unsafe_offset=RANK]):
            var d = work[unsafe_offset=RANK] - 1 - back
            var size = Int(sizes.unsafe_offset(d)[])
            places.unsafe_offset(d * work[unsafe_offset=FOUND] + n)[] = Int64(rest % size)
            rest //= size
        n += 1


@export
def tm_select(work: WordPtr) abi("C"):
    """Moves the elements where a mask is not 0: mask, elements, bytes, source, goal."""
    var mask = at[DType.uint8](work, MASK)
    var bytes = work[unsafe_offset=2]
    var to = work[unsafe_offset=4]
    for i in range(work[unsafe_offset=ELEMENTS]):
        if mask.unsafe_offset(i)[] != 0:
            move(to, work[unsafe_offset=3] + i * bytes, bytes)
            to += bytes


# indices

comptime INDEX = 1
comptime HOW_MANY = 2
comptime SIZE = 3
comptime WRAP = 4
comptime INTO = 5  # int64: what was there, times the size, and the index


@export
def tm_places(work: WordPtr) abi("C") -> Int:
    """Adds an index of one more dimension to places; returns -1, or where an index is out of range."""
    var size = work[unsafe_offset=SIZE]
    var into = at[DType.int64](work, INTO)
    comptime for k in range(4, NUMBERS):
        if work[unsafe_offset=DTYPE] == k:
            var index = at[DTYPES[k]](work, INDEX)
            for i in range(work[unsafe_offset=HOW_MANY]):
                var found = Int(index.unsafe_offset(i)[])
                if found < 0 and work[unsafe_offset=WRAP] != 0:
                    found += size
                if found < 0 or found >= size:
                    return i
                into.unsafe_offset(i)[] = into.unsafe_offset(i)[] * Int64(size) + Int64(found)
    return -1


# rows of (before, rows, behind), behind in bytes, and those of (before, count, behind)

comptime BEFORE = 1
comptime ALL_ROWS = 2
comptime TAKEN = 3
comptime BEHIND = 4
comptime WHERE = 5
comptime TABLE = 6
comptime PIECES = 7
comptime SPLIT = 8  # pieces that a row is cut into when rows are written


def take(begin: Int64, end: Int64, work: WordPtr) abi("C"):
    var places = at[DType.int64](work, WHERE)
    var taken = work[unsafe_offset=TAKEN]
    var bytes = work[unsafe_offset=BEHIND]
    for i in range(Int(begin), Int(end)):
        var row = i // taken * work[unsafe_offset=ALL_ROWS]
        row += Int(places.unsafe_offset(i % taken)[])
        move(work[unsafe_offset=PIECES] + i * bytes, work[unsafe_offset=TABLE] + row * bytes, bytes)


@export
def tm_take(work: WordPtr) abi("C"):
    var f: OnRange = take
    var count = work[unsafe_offset=BEFORE] * work[unsafe_offset=TAKEN]
    share(f, count, GRAIN // max(work[unsafe_offset=BEHIND], 1) + 1, work)


@always_inline
def add[T: DType](to: Int, source: Int, bytes: Int):
    """Adds numbers; halves are rounded after each, as torch does."""
    var sum = Pointer[Scalar[T], MutAnyOrigin](unsafe_from_address=to)
    var more = Pointer[Scalar[T], MutAnyOrigin](unsafe_from_address=source)
    for i in range(bytes // size_of[T]()):
        comptime if T == DType.bool:
            sum.unsafe_offset(i)[] = sum.unsafe_offset(i)[] | more.unsafe_offset(i)[]
        else:
            sum.unsafe_offset(i)[] += more.unsafe_offset(i)[]


def put[k: Int](begin: Int64, end: Int64, work: WordPtr) abi("C"):
    """Puts rows, or adds them if k is a dtype's; each thread a part of every row, so that their order is kept."""
    var places = at[DType.int64](work, WHERE)
    var taken = work[unsafe_offset=TAKEN]
    var bytes = work[unsafe_offset=BEHIND]
    var split = work[unsafe_offset=SPLIT]
    for piece in range(Int(begin), Int(end)):
        var before = piece // split
        var width = ((bytes + 7) // 8 + split - 1) // split * 8
        var first = piece % split * width
        width = min(width, bytes - first)
        if width <= 0:
            continue
        for i in range(taken):
            var row = before * work[unsafe_offset=ALL_ROWS] + Int(places.unsafe_offset(i)[])
            var to = work[unsafe_offset=TABLE] + row * bytes + first
            var source = work[unsafe_offset=PIECES] + (before * taken + i) * bytes + first
            comptime if k < 0:
                move(to, source, width)
            else:
                add[DTYPES[k]](to, source, width)


@export
def tm_put(work: WordPtr) abi("C"):
    var count = work[unsafe_offset=BEFORE] * work[unsafe_offset=SPLIT]
    var each = work[unsafe_offset=TAKEN] * work[unsafe_offset=BEHIND] // work[unsafe_offset=SPLIT]
    var grain = GRAIN // max(each, 1) + 1
    if work[unsafe_offset=DTYPE] < 0:
        var f: OnRange = put[-1]
        share(f, count, grain, work)
    comptime for k in range(len(DTYPES)):
        if work[unsafe_offset=DTYPE] == k:
            var f: OnRange = put[k]
            share(f, count, grain, work)
