"""The addition of direct_add.mojo by a kernel that must be fenced, because it may wait for its context."""

from std.math import ceildiv

import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu.host import DeviceContext

from direct_add import BLOCK, Floats, WIDTH, add_kernel


@extensibility.register("fenced_add")
struct FencedAdd:
    """Adds contiguous vectors that are aligned to 16 bytes."""

    @staticmethod
    def execute(
        output: OutputTensor[dtype=DType.float32, rank=1, ...],
        a: InputTensor[dtype=DType.float32, rank=1, ...],
        b: InputTensor[dtype=DType.float32, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        var n = a.dim_size(0)
        if n == 0:
            ctx.synchronize()
            return
        var f = ctx.compile_function[add_kernel]()
        ctx.enqueue_function(
            f,
            Floats(unsafe_from_address=Int(output.unsafe_ptr())),
            Floats(unsafe_from_address=Int(a.unsafe_ptr())),
            Floats(unsafe_from_address=Int(b.unsafe_ptr())),
            Int64(n),
            grid_dim=ceildiv(ceildiv(n, WIDTH), BLOCK),
            block_dim=BLOCK,
        )
