"""What a generated specialization uses: tensors, scalars and lists out of the flat words, errors as C strings."""

from std.memory import Pointer
from std.utils.index import IndexList

from extensibility import IOSpec, ManagedTensorSlice, StaticTensorSpec
from extensibility.managed_tensor_slice import _IndexListToTileLayout

from torch.words import failure, load


def _unknown[rank: Int](last: Int) -> IndexList[rank]:
    var list = IndexList[rank](-1)
    comptime if rank > 0:
        list[rank - 1] = last
    return list


comptime ContiguousSpec[dtype: DType, rank: Int, alignment: Int] = StaticTensorSpec[
    dtype,
    rank,
    static_layout=_IndexListToTileLayout[_unknown[rank](-1), _unknown[rank](1)],
](alignment, .GENERIC)
"""Row-major with unknown sizes: the last stride is 1 at compile time."""

comptime StridedSpec[dtype: DType, rank: Int, alignment: Int] = StaticTensorSpec[
    dtype,
    rank,
    static_layout=_IndexListToTileLayout[_unknown[rank](-1), _unknown[rank](-1)],
](alignment, .GENERIC)
"""Any strides."""


@always_inline
def contiguous[
    dtype: DType, rank: Int, io: IOSpec, alignment: Int
](flat: Int, at: Int) -> ManagedTensorSlice[
    io_spec=io, static_spec=ContiguousSpec[dtype, rank, alignment]
]:
    """Returns the tensor at flat word `at`, known to be row-major."""
    var sizes = load(flat, at + 1)
    var shape = IndexList[rank]()
    var strides = IndexList[rank]()
    var stride = 1
    comptime for i in range(rank):
        comptime d = rank - 1 - i
        shape[d] = load(sizes, d)
        strides[d] = stride
        stride *= shape[d]
    return {_data[dtype](flat, at), shape, strides}


@always_inline
def strided[
    dtype: DType, rank: Int, io: IOSpec, alignment: Int
](flat: Int, at: Int) -> ManagedTensorSlice[
    io_spec=io, static_spec=StridedSpec[dtype, rank, alignment]
]:
    """Returns the tensor at flat word `at`, with the strides it has."""
    var sizes = load(flat, at + 1)
    var steps = load(flat, at + 2)
    var shape = IndexList[rank]()
    var strides = IndexList[rank]()
    comptime for d in range(rank):
        shape[d] = load(sizes, d)
        strides[d] = load(steps, d)
    return {_data[dtype](flat, at), shape, strides}


@always_inline
def rank_of(flat: Int, position: Int) -> Int:
    """Returns the rank of the tensor at a position among the call's tensors; the router puts four bits for each."""
    return (load(flat, -3) >> (4 * position)) & 15


def expanded[
    dtype: DType, rank: Int, io: IOSpec, alignment: Int
](flat: Int, at: Int, own_rank: Int, like: Int, like_rank: Int) -> ManagedTensorSlice[
    io_spec=io, static_spec=StridedSpec[dtype, rank, alignment]
]:
    """Returns the tensor at flat word `at` expanded to the shape of the one at `like`, with ones before it."""
    var shape = IndexList[rank](1)
    var strides = IndexList[rank](0)
    for d in range(like_rank):
        var to = rank - like_rank + d
        var own = own_rank - like_rank + d
        shape[to] = load(load(flat, like + 1), d)
        if own >= 0 and load(load(flat, at + 1), own) == shape[to]:
            strides[to] = load(load(flat, at + 2), own)
    return {_data[dtype](flat, at), shape, strides}


def elements(flat: Int, at: Int, rank: Int) -> Int:
    """Returns how many elements the tensor at flat word `at` has."""
    var count = 1
    for d in range(rank):
        count *= load(load(flat, at + 1), d)
    return count


def is_dense(flat: Int, at: Int, rank: Int) -> Bool:
    """Tells whether a tensor without overlaps, which a fresh output is, fills its memory."""
    var extent = 1
    for d in range(rank):
        extent += (load(load(flat, at + 1), d) - 1) * load(load(flat, at + 2), d)
    return extent == elements(flat, at, rank)


def same_places(flat: Int, at: Int, rank: Int, like: Int, like_rank: Int) -> Bool:
    """Tells whether two tensors have the same sizes and strides; the stride of a single element does not count."""
    if rank != like_rank:
        return False
    for d in range(rank):
        var size = load(load(flat, at + 1), d)
        if size != load(load(flat, like + 1), d):
            return False
        if size != 1 and load(load(flat, at + 2), d) != load(load(flat, like + 2), d):
            return False
    return True


@always_inline
def flattened[
    dtype: DType, io: IOSpec, alignment: Int
](flat: Int, at: Int, rank: Int) -> ManagedTensorSlice[
    io_spec=io, static_spec=ContiguousSpec[dtype, 1, alignment]
]:
    """Returns the dense tensor at flat word `at` as one dimension, in the order of its memory."""
    return {_data[dtype](flat, at), IndexList[1](elements(flat, at, rank)), IndexList[1](1)}


@always_inline
def single[
    dtype: DType, io: IOSpec, alignment: Int
](flat: Int, at: Int) -> ManagedTensorSlice[
    io_spec=io, static_spec=ContiguousSpec[dtype, 1, alignment]
]:
    """Returns the 0-d tensor at flat word `at` as one element in one dimension."""
    return {_data[dtype](flat, at), IndexList[1](1), IndexList[1](1)}


@always_inline
def absent[
    dtype: DType, rank: Int, io: IOSpec
]() -> ManagedTensorSlice[io_spec=io, static_spec=StridedSpec[dtype, rank, 1]]:
    """Returns the empty tensor that stands for an optional argument that was left out."""
    return {
        Pointer[Scalar[dtype], MutAnyOrigin](unsafe_from_address=align_of_nothing()),
        IndexList[rank](0),
        IndexList[rank](0),
    }


@always_inline
def align_of_nothing() -> Int:
    """Returns a non-null, aligned address that nobody reads."""
    return 64


@always_inline
def _data[dtype: DType](flat: Int, at: Int) -> Pointer[Scalar[dtype], MutAnyOrigin]:
    var address = load(flat, at)
    return Pointer[Scalar[dtype], MutAnyOrigin](
        unsafe_from_address=address if address != 0 else align_of_nothing()
    )


@always_inline
def float_value(flat: Int, at: Int) -> Float64:
    """Returns the float argument at flat word `at`."""
    var word = load(flat, at)
    return Pointer(to=word).unsafe_bitcast[Float64]()[]


@always_inline
def bool_value(flat: Int, at: Int) -> Bool:
    """Returns the bool argument at flat word `at`; only its lowest byte counts."""
    return load(flat, at) & 255 != 0


def int_value[dtype: DType](flat: Int, at: Int, name: StaticString) raises -> Scalar[dtype]:
    """Returns the int argument at flat word `at`; refuses one that `dtype` cannot hold."""
    var word = load(flat, at)
    var value = Scalar[dtype](word)
    comptime if dtype.is_integral():
        if Int(value) != word or (dtype.is_unsigned() and word < 0):
            raise Error(name, "=", word, " does not fit the kernel's ", String(dtype))
    return value


def int_list(flat: Int, at: Int) -> List[Int]:
    """Returns a copy of the list of ints at flat word `at`."""
    var list = List[Int]()
    for i in range(load(flat, at + 1)):
        list.append(load(load(flat, at), i))
    return list^


def index_list[size: Int](flat: Int, at: Int) -> IndexList[size]:
    """Returns the list of `size` ints at flat word `at`."""
    var list = IndexList[size]()
    comptime for i in range(size):
        list[i] = load(load(flat, at), i)
    return list


def float_list[dtype: DType](flat: Int, at: Int) -> List[Scalar[dtype]]:
    """Returns the list of floats at flat word `at`, which are stored as float64."""
    var list = List[Scalar[dtype]]()
    for i in range(load(flat, at + 1)):
        list.append(float_value(load(flat, at), i).cast[dtype]())
    return list^


def word_list[dtype: DType](flat: Int, at: Int) -> List[Scalar[dtype]]:
    """Returns the list of ints or bools at flat word `at`."""
    var list = List[Scalar[dtype]]()
    for i in range(load(flat, at + 1)):
        comptime if dtype == .bool:
            list.append(Scalar[dtype](bool_value(load(flat, at), i)))
        else:
            list.append(Scalar[dtype](load(load(flat, at), i)))
    return list^


def string_value(flat: Int, at: Int) -> String:
    """Returns a copy of the string at flat word `at`."""
    var length = load(flat, at + 1)
    var bytes = List[UInt8](capacity=length)
    for i in range(length):
        bytes.append(
            Pointer[UInt8, MutAnyOrigin](unsafe_from_address=load(flat, at))[unsafe_offset=i]
        )
    return String(from_utf8_lossy=bytes)
