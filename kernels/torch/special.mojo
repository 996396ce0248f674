"""Tensors for kernels that were written to fuse with their neighbours in a MAX graph: here nothing fuses.

`whole` says that vectors begin at multiples of their width. Elementwise functions ask for no alignment, and then a GPU
moves the halves of a vector one by one.
"""

from std.utils.index import IndexList

from extensibility import IOSpec, ManagedTensorSlice, StaticTensorSpec
from extensibility.managed_tensor_slice import InputFusion, OutputFusion

from torch.shim import ContiguousSpec, StridedSpec, contiguous, strided


struct PlainLoad[
    own_dtype: DType, own_rank: Int, spec: StaticTensorSpec[own_dtype, own_rank, ...], whole: Bool
](InputFusion):
    """Reads the tensor itself."""

    var tensor: ManagedTensorSlice[io_spec=IOSpec.Input, static_spec=Self.spec]

    def __init__(out self, tensor: ManagedTensorSlice[io_spec=IOSpec.Input, static_spec=Self.spec]):
        self.tensor = tensor

    @always_inline
    def load[
        dtype: DType, rank: Int, simd_width: Int, element_alignment: Int = 1
    ](self, idx: IndexList[rank]) -> SIMD[dtype, simd_width]:
        return rebind[SIMD[dtype, simd_width]](
            self.tensor.load[
                simd_width, element_alignment=simd_width if Self.whole else element_alignment
            ](rebind[IndexList[Self.own_rank]](idx))
        )


struct PlainStore[
    own_dtype: DType, own_rank: Int, spec: StaticTensorSpec[own_dtype, own_rank, ...], whole: Bool
](OutputFusion):
    """Writes the tensor itself."""

    var tensor: ManagedTensorSlice[io_spec=IOSpec.Output, static_spec=Self.spec]

    def __init__(
        out self, tensor: ManagedTensorSlice[io_spec=IOSpec.Output, static_spec=Self.spec]
    ):
        self.tensor = tensor

    @always_inline
    def store[
        dtype: DType, rank: Int, simd_width: SIMDLength, element_alignment: Int = 1
    ](self, idx: IndexList[rank], val: SIMD[dtype, simd_width]):
        self.tensor.store[
            simd_width,
            element_alignment=Int(simd_width) if Self.whole else element_alignment,
        ](rebind[IndexList[Self.own_rank]](idx), rebind[SIMD[Self.own_dtype, simd_width]](val))
