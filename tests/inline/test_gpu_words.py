"""What only a GPU has: barriers, shared memory, warps; and launches on torch's own stream."""

import pytest
import torch

import torch_mojo

AT = "thread_position_in_grid.x"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DOUBLE = torch_mojo.kernel(
    "gpu_double",
    source=f"y[{AT}] = 2 * x[{AT}]",
    inputs={"x": "T[...]"},
    outputs={"y": "T[...]"},
    grid="y.size",
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
def test_shared_memory_and_barriers(dtype: torch.dtype) -> None:
    turned = torch_mojo.kernel(
        "turned_blocks",
        source=f"""
            var shared = Shared[T, BLOCK]()
            var own = thread_position_in_threadgroup.x
            shared[own] = x[{AT}]
            barrier()
            y[{AT}] = shared[BLOCK - 1 - own]
        """,
        inputs={"x": "T[n]"},
        outputs={"y": "T[n]"},
        params={"BLOCK": 128},
        grid="n",
        threadgroup="BLOCK",
    )
    x = torch.arange(1024, device="cuda").to(dtype)
    for block in (128, 256, 64):
        assert torch.equal(turned(x, BLOCK=block), x.view(-1, block).flip(1).flatten())


def test_warps() -> None:
    sums = torch_mojo.kernel(
        "warp_sums",
        source=f"""
            var total = warp.sum(x[{AT}])
            if thread_index_in_simdgroup == 0:
                y[{AT} // 32] = total + Scalar[T](100 * simdgroup_index_in_threadgroup)
        """,
        inputs={"x": "T[n]"},
        outputs={"y": "T[n // 32]"},
        grid="n",
        threadgroup=128,
    )
    x = torch.arange(512.0, device="cuda")
    wanted = x.view(-1, 32).sum(1) + 100 * (torch.arange(16, device="cuda") % 4)
    assert torch.equal(sums(x), wanted)


def test_atomics_of_floats() -> None:
    total = torch_mojo.kernel(
        "float_sums",
        source=f"_ = y.atomic_add({AT} % 3, x[{AT}])",
        inputs={"x": "T[n]"},
        outputs={"y": "T[3]"},
        init={"y": 0},
        atomic="y",
        grid="n",
    )
    x = torch.ones(300_000, device="cuda")
    assert total(x).tolist() == [100_000.0] * 3


def test_streams_and_capture() -> None:
    """U47: a call waits for its own stream's work and is recorded with it."""
    x = torch.ones(1 << 20, device="cuda")
    assert DOUBLE(x)[0].item() == 2
    side = torch.cuda.Stream()
    for i in range(10):
        with torch.cuda.stream(side):
            a = torch.full((2048, 2048), 1e-3, device="cuda")
            y = torch.zeros(1 << 20, device="cuda")
            a @ a  # keeps the stream busy
            y.fill_(float(i))
            assert bool((DOUBLE(y) == 2 * i).all())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = DOUBLE(x)
    x.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((found == 6).all())


def test_no_call_waits_for_the_device() -> None:
    x = torch.ones(1000, device="cuda")
    DOUBLE(x)
    torch.cuda.set_sync_debug_mode("error")
    try:
        y = DOUBLE(x)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert bool((y == 2).all())
