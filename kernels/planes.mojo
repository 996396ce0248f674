"""Pictures as planes, and the windows that cover them evenly.

Window i of n over `size` pixels reaches from floor(i * size / n) to ceil((i + 1) * size / n).
"""

from extensibility import ManagedTensorSlice
from std.memory import Pointer
from std.utils.index import IndexList


@always_inline
def first_of(i: Int, size: Int, count: Int) -> Int:
    """Returns where window i begins; in 32 bits, where a GPU divides much faster."""
    return Int(UInt32(i) * UInt32(size) // UInt32(count))


@always_inline
def end_of(i: Int, size: Int, count: Int) -> Int:
    """Returns where window i ends."""
    return Int((UInt32(i + 1) * UInt32(size) + UInt32(count - 1)) // UInt32(count))


@fieldwise_init
struct Planes[dtype: DType](ImplicitlyCopyable, RegisterPassable):
    """A tensor (N, C, H, W) or (C, H, W): N * C planes."""

    var data: Pointer[Scalar[Self.dtype], MutUntrackedOrigin]
    var sizes: IndexList[4]
    var strides: IndexList[4]

    @always_inline
    def start(self, plane: Int) -> Int:
        var picture = plane // self.sizes[1]
        var channel = plane - picture * self.sizes[1]
        return picture * self.strides[0] + channel * self.strides[1]

    @always_inline
    def at(self, start: Int, row: Int, column: Int) -> Scalar[Self.dtype]:
        return self.data[unsafe_offset=start + row * self.strides[2] + column * self.strides[3]]

    def count(self) -> Int:
        return self.sizes[0] * self.sizes[1]

    def aligned(self, vector: Int) -> Bool:
        """Tells whether every row can be read `vector` elements at a time, to its end."""
        var found = Int(self.data) % 16 == 0 and self.sizes[3] % vector == 0
        for d in range(3):
            found = found and (self.sizes[d] == 1 or self.strides[d] % vector == 0)
        return found

    def elements(self) -> Int:
        return self.count() * self.sizes[2] * self.sizes[3]


def planes(x: ManagedTensorSlice) -> Planes[x.dtype]:
    """Returns a tensor of rank 3 or 4 as planes."""
    comptime assert x.rank == 3 or x.rank == 4
    var sizes = IndexList[4](1)
    var strides = IndexList[4](0)
    comptime for d in range(x.rank):
        sizes[4 - x.rank + d] = x.dim_size(d)
        strides[4 - x.rank + d] = x.stride_length(d)
    return {
        Pointer[Scalar[x.dtype], MutUntrackedOrigin](unsafe_from_address=Int(x.unsafe_ptr())),
        sizes,
        strides,
    }
