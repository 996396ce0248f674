"""Inline kernels built with the compiler's options, and for a GPU that this machine does not have."""

import pytest
import torch
from cross import cross_build

import torch_mojo
from torch_mojo.jit.build import runtime_calls

AT = "thread_position_in_grid.x"


def test_compiler_options() -> None:
    found = []
    for width in (4, 5):
        kernel = torch_mojo.kernel(
            "defined",
            header="from std.sys.defines import get_defined_int",
            source='y[0] = Int64(get_defined_int["WIDTH"]())',
            outputs={"y": "i64[1]"},
            grid=1,
            options=("-D", f"WIDTH={width}"),
        )
        found.append(kernel().item())
    assert found == [4, 5]


def test_a_gpu_build() -> None:
    """Barriers, shared memory, warps, atomics; and nothing that would need a fence."""
    kernel = torch_mojo.kernel(
        "blocks",
        source=f"""
            var shared = Shared[T, BLOCK]()
            var own = thread_position_in_threadgroup.x
            shared[own] = x[{AT}] + Scalar[T](thread_index_in_simdgroup)
            barrier()
            y[{AT}] = shared[BLOCK - 1 - own] + warp.sum(x[{AT}])
            _ = total.atomic_add(0, x[{AT}])
        """,
        inputs={"x": "T[n]"},
        outputs={"y": "T[n]", "total": "T[1]"},
        init={"total": 0},
        atomic="total",
        params={"BLOCK": 128},
        grid="n",
        threadgroup="BLOCK",
    )
    built = cross_build(kernel.op.overload, torch.ones(256))
    text = built.read_bytes()
    assert b".target sm_90" in text and b"bar.sync" in text and b"atom" in text
    assert not [n for n in runtime_calls(built) if "Buffer" in n or "synchronize" in n]


@pytest.mark.slow
def test_a_checked_gpu_build() -> None:
    kernel = torch_mojo.kernel(
        "checked",
        source=f"y[{AT}] = x[{AT} + 1]",
        inputs={"x": "T[n]"},
        outputs={"y": "T[n]"},
        grid="n",
        bounds_check=True,
    )
    built = cross_build(kernel.op.overload, torch.ones(256))
    assert b".target sm_90" in built.read_bytes()
    assert any("createBuffer" in n for n in runtime_calls(built))
