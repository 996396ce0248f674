"""Tensors (N, C, D, H, W), for the kernels that walk through the volumes of each channel."""

from extensibility import ManagedTensorSlice
from std.memory import Pointer
from std.utils.index import IndexList

from aten_lines import Extent
from rows import pointer_of

comptime Three = IndexList[3]


@fieldwise_init
struct Volumes[dtype: DType](ImplicitlyCopyable, RegisterPassable):
    """A tensor (N, C, D, H, W)."""

    var data: Pointer[Scalar[Self.dtype], MutUntrackedOrigin]
    var sizes: IndexList[5]
    var strides: IndexList[5]

    @always_inline
    def plane(self, number: Int) -> Int:
        """Returns where the volume of a channel begins."""
        var batch = number // self.sizes[1]
        return batch * self.strides[0] + (number - batch * self.sizes[1]) * self.strides[1]

    @always_inline
    def at(self, begin: Int, d: Int, h: Int, w: Int) -> Int:
        return begin + d * self.strides[2] + h * self.strides[3] + w * self.strides[4]

    def space(self) -> Three:
        return {self.sizes[2], self.sizes[3], self.sizes[4]}

    def with_index(self) -> Volumes[DType.int64]:
        """Returns indices that nobody reads."""
        return {{unsafe_from_address = Int(self.data)}, self.sizes, self.strides}

    def extent(self) -> Extent:
        """Returns the walk through all places: volumes, then the rows of each, then the places of a row."""
        return {self.sizes[0] * self.sizes[1], self.sizes[2] * self.sizes[3], self.sizes[4]}


def volumes(x: ManagedTensorSlice) -> Volumes[x.dtype]:
    comptime assert x.rank == 5
    var sizes = IndexList[5]()
    var strides = IndexList[5]()
    comptime for d in range(5):
        sizes[d] = x.dim_size(d)
        strides[d] = x.stride_length(d)
    return {pointer_of(x), sizes, strides}
