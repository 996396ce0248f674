"""The same operators on a CUDA device: values, streams, graphs, devices."""

from pathlib import Path

import ops
import pytest
import torch

import torch_mojo
from torch_mojo.errors import SignatureError

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

LAYOUTS = {
    "contiguous": lambda: torch.arange(6.0).view(2, 3),
    "transposed": lambda: torch.arange(6.0).view(3, 2).t(),
    "every second column": lambda: torch.arange(12.0).view(2, 6)[:, ::2],
    "offset": lambda: torch.arange(7.0)[1:].view(2, 3),
    "expanded": lambda: torch.tensor([[1.5], [2.5]]).expand(2, 3),
    "empty": lambda: torch.empty(0, 3),
    "large": lambda: torch.arange(3.0 * 100_003).view(3, 100_003),
}


def on_cuda(x: torch.Tensor) -> torch.Tensor:
    """Move a tensor with its strides."""
    storage = torch.empty(x.untyped_storage().size() // x.element_size(), dtype=x.dtype)
    storage.untyped_storage().copy_(x.untyped_storage())
    return storage.cuda().as_strided(x.shape, x.stride(), x.storage_offset())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    x = on_cuda(LAYOUTS[layout]())
    y = ops.double(x)
    assert y.device == x.device and torch.equal(y, 2 * x)
    assert y.stride() == torch.empty_like(x).stride()


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8]
)
def test_dtypes(dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, 2.5, -3.0], device="cuda").to(dtype)
    y = ops.double(x)
    assert y.dtype == dtype and torch.equal(y, x + x)


def test_bool_and_zero_dimensions() -> None:
    assert ops.logical_not(torch.tensor([True, False], device="cuda")).tolist() == [False, True]
    y = ops.double(torch.tensor(1.5, device="cuda"))
    assert y.shape == () and y.item() == 3.0


def test_float8() -> None:
    x = torch.tensor([0.5, 1.0, 2.0, 8.0], device="cuda")
    assert ops.cast(x.to(torch.float8_e4m3fn), torch.float32).tolist() == x.tolist()


def test_scalars() -> None:
    x = torch.arange(5.0, device="cuda")
    assert torch.equal(ops.scale_add(x, x, -0.5), 0.5 * x)


def test_autograd_and_broadcast_gradients() -> None:
    x = torch.tensor([1.0, 2.0, 3.0], device="cuda", requires_grad=True)
    ops.mul(x, x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0, 6.0]


def long_work() -> torch.Tensor:
    big = torch.full((4096, 4096), 1e-3, device="cuda")
    for _ in range(3):
        big = big @ big
    return big


@pytest.mark.parametrize("side", [False, True])
def test_the_current_stream_is_used(side: bool) -> None:
    stream = torch.cuda.Stream() if side else torch.cuda.default_stream()
    ops.double(torch.zeros(1 << 20, device="cuda"))
    torch.cuda.synchronize()
    for i in range(50):
        with torch.cuda.stream(stream):
            x = torch.zeros(1 << 20, device="cuda")
            keep = long_work()
            x.fill_(i + 1)
            y = ops.double(x)
            del x
            torch.full((1 << 20,), -7.0, device="cuda")
            right = (y == 2 * (i + 1)).all()
            assert bool(right.item()), i
            del keep


def test_backward_outside_the_stream_block() -> None:
    stream = torch.cuda.Stream()
    for _ in range(20):
        with torch.cuda.stream(stream):
            long_work()
            x = torch.full((1 << 18,), 3.0, device="cuda", requires_grad=True)
            loss = ops.mul(x, x).sum()
        torch.cuda.current_stream().wait_stream(stream)
        loss.backward()
        assert torch.equal(x.grad, torch.full_like(x, 6.0))


def test_graph_capture_and_replay() -> None:
    x = torch.zeros(1000, device="cuda")
    ops.double(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = ops.double(x)
    for value in (5.0, 7.0):
        x.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert y.tolist() == [2 * value] * 1000


def test_a_first_call_inside_capture_asks_for_a_warm_up() -> None:
    @torch_mojo.mojo_op("tm_cuda::cold", source=ops.POINTWISE, kernel="double")
    def cold(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    x = torch.full((8,), 2.0, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="call it once before the capture"):
        with torch.cuda.graph(graph):
            cold(x)
    torch.cuda.synchronize()
    assert cold(x).tolist() == [4.0] * 8


def test_tensors_on_two_devices_are_named() -> None:
    with pytest.raises(
        (SignatureError, RuntimeError), match=r"(x|y) is on (cpu|cuda:0).*(x|y) is on (cpu|cuda:0)"
    ):
        ops.mul(torch.ones(2), torch.ones(2, device="cuda"))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_the_tensors_own_device() -> None:
    x = torch.tensor([1.0, 2.0], device="cuda:1")
    assert torch.cuda.current_device() == 0
    y = ops.mul(x, x)
    assert y.device == x.device and y.tolist() == [1.0, 4.0]
    assert torch.cuda.current_device() == 0


def test_no_hidden_synchronization() -> None:
    x = torch.ones(1 << 16, device="cuda")
    ops.double(x)
    torch.cuda.set_sync_debug_mode("error")
    try:
        y = ops.double(x)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert float(y.sum()) == 2.0 * (1 << 16)


def test_memory_is_not_kept() -> None:
    x = torch.ones(1 << 20, device="cuda")
    ops.double(x)
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        ops.double(x)
    assert torch.cuda.memory_allocated() == before


@torch_mojo.mojo_op(
    "tm_cuda::direct_add",
    path=Path(__file__).parent.parent / "benchmarks" / "kernels_gpu",
)
def direct_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a + b, launched on torch's own stream."""
    return torch.empty_like(a)


def test_a_kernel_that_takes_the_stream_is_launched_on_it() -> None:
    stream = torch.cuda.Stream()
    a = torch.ones(1 << 16, device="cuda")
    direct_add(a, a)
    torch.cuda.synchronize()
    for i in range(20):
        with torch.cuda.stream(stream):
            x = torch.zeros(1 << 16, device="cuda")
            long_work()
            x.fill_(i)
            assert float(direct_add(x, a).sum()) == (i + 1.0) * (1 << 16)


SCRATCH = """
import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu import global_idx
from max.gpu.host import DeviceContext
from std.memory import Pointer

comptime Floats = Pointer[Float32, MutAnyOrigin]


def doubled(o: Floats, x: Floats, n: Int64):
    var i = global_idx.x
    if i < Int(n):
        o[unsafe_offset=i] = 2 * x[unsafe_offset=i]


@extensibility.register("quadruple")
struct Quadruple:
    @staticmethod
    def execute(
        output: OutputTensor[dtype=DType.float32, rank=1, ...],
        x: InputTensor[dtype=DType.float32, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        var n = x.dim_size(0)
        var between = ctx.enqueue_create_buffer[DType.float32](n)
        var f = ctx.compile_function[doubled]()
        var source = Floats(unsafe_from_address=Int(x.unsafe_ptr()))
        var middle = Floats(unsafe_from_address=Int(between.unsafe_ptr()))
        var result = Floats(unsafe_from_address=Int(output.unsafe_ptr()))
        var blocks = (n + 255) // 256
        ctx.enqueue_function(f, middle, source, Int64(n), grid_dim=blocks, block_dim=256)
        ctx.enqueue_function(f, result, middle, Int64(n), grid_dim=blocks, block_dim=256)
        _ = between^
"""


@torch_mojo.mojo_op("tm_cuda::quadruple", source=SCRATCH)
def quadruple(x: torch.Tensor) -> torch.Tensor:
    """4 * x, through memory of the context."""
    return torch.empty_like(x)


@pytest.mark.parametrize("side", [False, True])
def test_a_kernel_that_needs_its_context_is_fenced(side: bool) -> None:
    stream = torch.cuda.Stream() if side else torch.cuda.default_stream()
    quadruple(torch.zeros(1 << 18, device="cuda"))
    torch.cuda.synchronize()
    for i in range(30):
        with torch.cuda.stream(stream):
            x = torch.zeros(1 << 18, device="cuda")
            long_work()
            x.fill_(i)
            y = quadruple(x)
            x.fill_(-1.0)
            assert bool((y == 4.0 * i).all()), i


def test_only_kernels_that_need_it_are_fenced() -> None:
    quadruple(torch.zeros(4, device="cuda"))
    ops.double(torch.zeros(4, device="cuda"))
    fenced = {op: [b.fenced for b in op.calls.built.values()] for op in (quadruple, ops.double)}
    assert all(fenced[quadruple]) and not any(fenced[ops.double])
