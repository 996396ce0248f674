"""The operators of the suite, one of each kind. Nothing is built before a test calls one."""

from __future__ import annotations

import torch

import torch_mojo

HEAD = """
import extensibility
from extensibility import InputTensor, OutputTensor, foreach
from extensibility import _MutableInputTensor as MutableInputTensor
from max.gpu.host import DeviceContext
from layout import Coord
from std.utils.index import IndexList
"""

POINTWISE = (
    HEAD
    + """
@extensibility.register("double")
struct Double:
    @staticmethod
    def execute[target: StaticString](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](idx: Coord) {var x} -> SIMD[output.dtype, width]:
            var v = x.load[width](idx)
            return v + v
        foreach[target=target](f, output, ctx)


@extensibility.register("mul")
struct Mul:
    @staticmethod
    def execute[target: StaticString](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        y: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](idx: Coord) {var x, var y} -> SIMD[output.dtype, width]:
            return x.load[width](idx) * y.load[width](idx)
        foreach[target=target](f, output, ctx)


@extensibility.register("scale_add")
struct ScaleAdd:
    @staticmethod
    def execute[target: StaticString](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        y: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        alpha: Float32,
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](idx: Coord) {var x, var y, var alpha} -> SIMD[output.dtype, width]:
            return x.load[width](idx) + y.load[width](idx) * alpha.cast[output.dtype]()
        foreach[target=target](f, output, ctx)


@extensibility.register("logical_not")
struct LogicalNot:
    @staticmethod
    def execute[target: StaticString](
        output: OutputTensor[dtype=DType.bool, ...],
        x: InputTensor[dtype=DType.bool, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](idx: Coord) {var x} -> SIMD[output.dtype, width]:
            return rebind[SIMD[output.dtype, width]](~x.load[width](idx))
        foreach[target=target](f, output, ctx)


@extensibility.register("cast")
struct Cast:
    @staticmethod
    def execute[target: StaticString](
        output: OutputTensor,
        x: InputTensor[rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](idx: Coord) {var x} -> SIMD[output.dtype, width]:
            return x.load[width](idx).cast[output.dtype]()
        foreach[target=target](f, output, ctx)


@extensibility.register("only_float32")
struct OnlyFloat32:
    @staticmethod
    def execute[target: StaticString](
        output: OutputTensor[dtype=DType.float32, rank=1, ...],
        x: InputTensor[dtype=DType.float32, rank=1, ...],
    ) raises:
        for i in range(x.dim_size(0)):
            if x[i] < 0:
                raise Error("negative size: ", x[i])
            output[i] = x[i]
"""
)


@torch_mojo.mojo_op("tm_test::double", source=POINTWISE)
def double(x: torch.Tensor) -> torch.Tensor:
    """2 * x."""
    return torch.empty_like(x)


@torch_mojo.mojo_op("tm_test::mul", source=POINTWISE)
def mul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x * y."""
    return torch.empty_like(x)


@mul.register_vmap
def _(info, in_dims, x, y):
    x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x.expand(info.batch_size, *x.shape)
    y = y.movedim(in_dims[1], 0) if in_dims[1] is not None else y.expand(info.batch_size, *y.shape)
    return mul(x, y), 0


mul.register_autograd(
    lambda ctx, grad: (mul(grad, ctx.saved_tensors[1]), mul(grad, ctx.saved_tensors[0])),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@torch_mojo.mojo_op("tm_test::scale_add", source=POINTWISE)
def scale_add(x: torch.Tensor, y: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    """x + alpha * y."""
    return torch.empty_like(x)


@torch_mojo.mojo_op("tm_test::logical_not", source=POINTWISE)
def logical_not(x: torch.Tensor) -> torch.Tensor:
    """not x."""
    return torch.empty_like(x)


@torch_mojo.mojo_op("tm_test::cast", source=POINTWISE)
def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """x in another dtype."""
    return torch.empty_like(x, dtype=dtype)


@torch_mojo.mojo_op("tm_test::only_float32", source=POINTWISE)
def only_float32(x: torch.Tensor) -> torch.Tensor:
    """A copy of one float32 dimension; a negative number is an error of the kernel's."""
    return torch.empty_like(x)


LOOPS = (
    HEAD
    + """
@extensibility.register("row_sum")
struct RowSum:
    @staticmethod
    def execute(
        output: OutputTensor[dtype=DType.float32, rank=1, ...],
        x: InputTensor[dtype=DType.float32, rank=2, ...],
    ) raises:
        for i in range(x.dim_size(0)):
            var total = Float32(0)
            for j in range(x.dim_size(1)):
                total += x[i, j]
            output[i] = total


@extensibility.register("plus_one_")
struct PlusOne:
    @staticmethod
    def execute[target: StaticString](
        x: MutableInputTensor,
    ) raises:
        comptime if x.rank == 1:
            for i in range(x.dim_size(0)):
                x.store(IndexList[x.rank](i), x.load[1](IndexList[x.rank](i)) + 1)
        else:
            for i in range(x.dim_size(0)):
                for j in range(x.dim_size(1)):
                    x.store(IndexList[x.rank](i, j), x.load[1](IndexList[x.rank](i, j)) + 1)


@extensibility.register("add_into")
struct AddInto:
    @staticmethod
    def execute[has_dst: Bool](
        a: InputTensor[dtype=DType.float32, rank=1, ...],
        dst: MutableInputTensor[dtype=DType.float32, rank=1, ...],
    ) raises:
        comptime if has_dst:
            for i in range(a.dim_size(0)):
                dst[i] = a[i] + 1


@extensibility.register("select")
struct Select:
    @staticmethod
    def execute(
        output: OutputTensor[dtype=DType.float32, rank=1, ...],
        x: InputTensor[dtype=DType.float32, rank=1, ...],
        flag: InputTensor[dtype=DType.bool, rank=0, ...],
    ) raises:
        var sign = Float32(1) if flag[IndexList[0]()] else Float32(-1)
        for i in range(x.dim_size(0)):
            output[i] = sign * x[i]


@extensibility.register("two")
struct Two:
    @staticmethod
    def execute(
        first: OutputTensor[dtype=DType.float32, rank=1, ...],
        index: OutputTensor[dtype=DType.int64, rank=1, ...],
        x: InputTensor[dtype=DType.float32, rank=1, ...],
    ) raises:
        for i in range(x.dim_size(0)):
            first[i] = 2 * x[i]
            index[i] = Int64(i)


@extensibility.register("affine")
struct Affine[K: Int = 1]:
    @staticmethod
    def execute[dtype: DType, //, mode: StaticString = "add", flip: Bool = False](
        output: OutputTensor[dtype=dtype, rank=1, ...],
        x: InputTensor[dtype=dtype, rank=1, ...],
        bias: Scalar[dtype],
        times: Int64,
        shift: List[Int],
        weights: List[Float64],
    ) raises:
        for i in range(x.dim_size(0)):
            var v = x[i] * Scalar[dtype](times) * Scalar[dtype](Self.K)
            comptime if mode == "add":
                v += bias
            else:
                v -= bias
            for s in shift:
                v += Scalar[dtype](s)
            for w in weights:
                v += w.cast[dtype]()
            output[i] = -v if flip else v


@extensibility.register("positive")
struct Positive:
    @staticmethod
    def execute(
        output: OutputTensor[dtype=DType.float32, rank=1, ...],
        x: InputTensor[dtype=DType.float32, rank=1, ...],
    ) raises:
        var n = 0
        for i in range(x.dim_size(0)):
            if x[i] > 0:
                output[n] = x[i]
                n += 1


@extensibility.register("fill_value")
struct FillValue:
    @staticmethod
    def execute[dtype: DType](
        output: OutputTensor[dtype=dtype, rank=1, ...],
        value: Float64,
    ) raises:
        for i in range(output.dim_size(0)):
            output[i] = value.cast[dtype]()
"""
)


@torch_mojo.mojo_op("tm_test::row_sum", source=LOOPS)
def row_sum(x: torch.Tensor) -> torch.Tensor:
    """The sum of each row."""
    return x.new_empty(x.shape[0])


@torch_mojo.mojo_op("tm_test::plus_one_", source=LOOPS, mutates_args=("x",))
def plus_one_(x: torch.Tensor) -> None:
    """x += 1."""


@torch_mojo.mojo_op("tm_test::add_into", source=LOOPS, mutates_args=("dst",))
def add_into(a: torch.Tensor, dst: torch.Tensor | None = None) -> None:
    """out = a + 1, if there is an out."""


@torch_mojo.mojo_op("tm_test::select", source=LOOPS)
def select(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    """x if flag else -x."""
    return torch.empty_like(x)


@torch_mojo.mojo_op("tm_test::two", source=LOOPS)
def two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """2 * x, and the index of each element."""
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.int64)


two.register_autograd(lambda ctx, first, index: double(first))


@torch_mojo.mojo_op("tm_test::affine", source=LOOPS)
def affine(
    x: torch.Tensor,
    bias: float,
    times: int,
    shift: list[int],
    weights: list[float],
    *,
    K: int = 1,
    mode: str = "add",
    flip: bool = False,
) -> torch.Tensor:
    """Every kind of number, list and parameter."""
    return torch.empty_like(x)


@torch_mojo.mojo_op("tm_test::positive", source=LOOPS)
def positive(x: torch.Tensor) -> torch.Tensor:
    """The positive elements."""
    return x.new_empty(int((x > 0).sum()))


@positive.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch_mojo.mojo_op("tm_test::fill_value", source=LOOPS)
def fill_value(
    n: int, value: float, dtype: torch.dtype = torch.float32, device: torch.device | None = None
) -> torch.Tensor:
    """A new tensor of n equal numbers."""
    return torch.empty(n, dtype=dtype, device=device)


TAKE = """
import extensibility
from extensibility import InputTensor, OutputTensor

@extensibility.register("take")
struct Take:
    @staticmethod
    def execute(
        output: OutputTensor[rank=1, ...],
        x: InputTensor[dtype=output.dtype, rank=1, ...],
        index: InputTensor[dtype=DType.int64, rank=1, ...],
    ) raises:
        for i in range(index.dim_size(0)):
            output[i] = x[Int(index[i])]
"""


@torch_mojo.mojo_op("tm_test::take", source=TAKE)
def take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """x[index]; bfloat16 under autocast."""
    return x.new_empty(index.shape)


take.register_autocast("cpu", torch.bfloat16)
