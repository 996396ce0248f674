"""Inline kernels in the MLX way: each row of what metal_kernel takes, and the faults that its users met."""

import inspect
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_mojo
from torch_mojo.errors import KernelError, SignatureError

EXP = """
    var i = thread_position_in_grid.x
    out[i] = exp(inp[i].cast[T]()).cast[U]()
"""
ATTRIBUTES = (
    "thread_position_in_grid",
    "threads_per_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_threadgroup",
    "threadgroups_per_grid",
)


def make(source: str, **how: Any) -> Any:
    return torch_mojo.kernel("probe", ["inp"], ["out"], source, **how)


def run(kernel: Any, *inputs: Any, n: int | None = None, **how: Any) -> torch.Tensor:
    shape = (n,) if n is not None else tuple(inputs[0].shape)
    count = n if n is not None else inputs[0].numel()
    call = {
        "inputs": list(inputs),
        "grid": (count, 1, 1),
        "threadgroup": (256, 1, 1),
        "output_shapes": [shape],
        "output_dtypes": [inputs[0].dtype if inputs else torch.float32],
    }
    (out,) = kernel(**(call | how))
    return out


def test_it_takes_what_metal_kernel_takes() -> None:
    build = list(inspect.signature(torch_mojo.kernel).parameters)
    assert build[:7] == [
        "name",
        "input_names",
        "output_names",
        "source",
        "header",
        "ensure_row_contiguous",
        "atomic_outputs",
    ]
    kernel = make(EXP)
    call = inspect.signature(kernel.__call__).parameters
    taken = (
        "inputs template grid threadgroup output_shapes output_dtypes init_value verbose".split()
    )
    assert all(call[n].kind is inspect.Parameter.KEYWORD_ONLY for n in taken)


def test_template_header_and_layouts(device: str) -> None:
    kernel = make(EXP, header="from std.math import exp")
    whole = torch.randn(8, 16)
    for x in (whole, whole[::2], whole.t(), whole[1:, 3:], whole[:, :1].expand(8, 5), whole[3, 4]):
        found = run(kernel, x, template=[("T", torch.float64), ("U", x.dtype)])
        torch.testing.assert_close(found, x.exp())
    assert run(kernel, whole[:0], template=[("T", torch.float32), ("U", whole.dtype)]).shape == (
        0,
        16,
    )


def test_places_in_memory(device: str) -> None:
    kernel = make(
        "out[thread_position_in_grid.x] = 2 * inp[elem_to_loc("
        "thread_position_in_grid.x, inp_shape, inp_strides, inp_ndim)]",
        ensure_row_contiguous=False,
    )
    whole = torch.randn(6, 8)
    for x in (whole, whole[::2, 1:], whole.t(), whole[:, 2]):
        torch.testing.assert_close(run(kernel, x), 2 * x)


def test_attributes_in_three_dimensions(device: str) -> None:
    lines = ["var k = thread_position_in_grid"]
    lines += ["var at = (k.z * threads_per_grid.y + k.y) * threads_per_grid.x + k.x"]
    for i, name in enumerate(ATTRIBUTES):
        for j, axis in enumerate("xyz"):
            lines.append(f"out[at, {3 * i + j}] = Int64({name}.{axis})")
    lines.append(f"out[at, {3 * len(ATTRIBUTES)}] = Int64(thread_index_in_threadgroup)")
    kernel = torch_mojo.kernel("attributes", [], ["out"], "\n".join(lines))
    grid, group = (5, 3, 2), (2, 2, 4)
    clamped = [min(a, b) for a, b in zip(grid, group, strict=True)]
    (out,) = kernel(
        inputs=[],
        grid=grid,
        threadgroup=group,
        output_shapes=[(30, 19)],
        output_dtypes=[torch.int64],
        device=device,
    )
    wanted = []
    for z in range(2):
        for y in range(3):
            for x in range(5):
                at = (x, y, z)
                inside = [a % g for a, g in zip(at, clamped, strict=True)]
                row = [*at, *grid, *inside]
                row += [a // g for a, g in zip(at, clamped, strict=True)]
                row += clamped
                row += [-(-a // g) for a, g in zip(grid, clamped, strict=True)]
                wanted.append([*row, (inside[2] * clamped[1] + inside[1]) * clamped[0] + inside[0]])
    assert out.tolist() == wanted


def test_template_values_are_told_apart(device: str) -> None:
    """U64: 1, 2, 3 and 1 again; True is not 1; a dtype decides the result."""
    kernel = make("out[thread_position_in_grid.x] = inp[thread_position_in_grid.x] + Scalar[T](K)")
    x = torch.tensor([10.0])
    found = [run(kernel, x, template=[("K", k), ("T", x.dtype)]).item() for k in (1, 2, 3, 1)]
    assert found == [11, 12, 13, 11]
    which = make(
        "out[thread_position_in_grid.x] = 5 if size_of[type_of(K)]() == 1 else inp[0]",
        header="from std.sys import size_of",
    )
    found = [run(which, x, template=[("K", k)]).item() for k in (1, True, 1)]
    assert found == [10, 5, 10]
    double = run(kernel, x.double(), template=[("K", 1), ("T", torch.float64)])
    assert double.dtype == torch.float64 and double.item() == 11


def test_a_name_decides_nothing(device: str) -> None:
    """U58: one name, two bodies, two headers."""
    x = torch.arange(64.0)
    twice = make("out[thread_position_in_grid.x] = 2 * inp[thread_position_in_grid.x]")
    more = make("out[thread_position_in_grid.x] = 100 + inp[thread_position_in_grid.x]")
    first, second = run(twice, x), run(more, x)
    assert torch.equal(first, 2 * x) and torch.equal(second, x + 100)
    assert torch.equal(run(more, x), x + 100) and torch.equal(run(twice, x), 2 * x)
    body = (
        "out[thread_position_in_grid.x] = inp[thread_position_in_grid.x] + Scalar[DType.float32](A)"
    )
    for value in (3, 4):
        assert torch.equal(run(make(body, header=f"comptime A = {value}"), x), x + value)


@pytest.mark.parametrize("n", [24, 256, 257, 1000])
def test_the_grid_counts_threads(n: int, device: str) -> None:
    """U60: exactly n threads run."""
    kernel = torch_mojo.kernel("ones", [], ["out"], "out[thread_position_in_grid.x] = 1")
    found = run(kernel, n=n + 3, grid=(n, 1, 1), init_value=7, device=device)
    assert found.tolist() == [1.0] * n + [7.0] * 3


def test_sizes_that_no_device_takes(device: str) -> None:
    """U60: no thread, too big a threadgroup, a grid of the wrong length."""
    kernel = torch_mojo.kernel("ones", [], ["out"], "out[thread_position_in_grid.x] = 1")
    assert run(kernel, n=3, grid=(0, 1, 1), init_value=7, device=device).tolist() == [7.0] * 3
    with pytest.raises(
        KernelError, match=r"\[ones\] the threadgroup \(2048, 1, 1\) has 2048 threads; .*1024"
    ):
        run(kernel, n=3, threadgroup=(2048, 1, 1), init_value=7, device=device)
    with pytest.raises(KernelError, match="deeper than 64"):
        run(kernel, n=3, threadgroup=(1, 1, 65), init_value=7, device=device)
    with pytest.raises(KernelError, match="has a size below 1"):
        run(kernel, n=3, threadgroup=(0, 1, 1), init_value=7, device=device)
    with pytest.raises(SignatureError, match=r"the grid is \(-1, 1, 1\); no size may be negative"):
        run(kernel, n=3, grid=(-1, 1, 1), init_value=7, device=device)
    with pytest.raises(SignatureError, match=r"\[ones\] the grid is \(3, 1\); it takes three ints"):
        run(kernel, n=3, grid=(3, 1), init_value=7, device=device)
    with pytest.raises(SignatureError, match="the threadgroup is"):
        run(kernel, n=3, threadgroup=(3,), init_value=7, device=device)
    assert run(kernel, n=3, init_value=7, device=device).tolist() == [1.0] * 3  # it still works


@pytest.mark.parametrize(
    ("dtype", "scalar", "wanted"),
    [
        (torch.float32, 5.0, [5.0, 10.0]),
        (torch.float32, 3, [3.0, 6.0]),
        (torch.float32, True, [1.0, 2.0]),
        (torch.float64, 0.1, [0.1, 0.2]),
        (torch.int64, 2**40, [2**40, 2**41]),
    ],
)
def test_numbers(dtype: torch.dtype, scalar: Any, wanted: list[float], device: str) -> None:
    """U61: a number arrives with its value."""
    kernel = torch_mojo.kernel(
        "scaled",
        ["a", "s"],
        ["out"],
        "out[thread_position_in_grid.x] = a[thread_position_in_grid.x] * s",
    )
    assert run(kernel, torch.tensor([1, 2], dtype=dtype), scalar).tolist() == wanted


def test_a_number_that_does_not_fit(device: str) -> None:
    kernel = torch_mojo.kernel(
        "scaled",
        ["a", "s"],
        ["out"],
        "out[thread_position_in_grid.x] = a[thread_position_in_grid.x] * s",
    )
    with pytest.raises(KernelError, match="s=1099511627776 does not fit"):
        run(kernel, torch.tensor([1, 2], dtype=torch.int32), 2**40)
    assert run(kernel, torch.tensor([1, 2], dtype=torch.int32), 4).tolist() == [4, 8]


def test_several_outputs_and_atomics(device: str) -> None:
    kernel = torch_mojo.kernel(
        "sums",
        ["x"],
        ["total", "count"],
        """
        var v = x[thread_position_in_grid.x]
        _ = total.atomic_add(0, v)
        if v > 0:
            _ = count.atomic_add(0, 1)
        """,
        atomic_outputs=True,
    )
    x = torch.arange(-1000, 1000).double()
    total, count = kernel(
        inputs=[x],
        grid=(2000, 1, 1),
        threadgroup=(128, 1, 1),
        output_shapes=[(1,), ()],
        output_dtypes=[torch.float64, torch.int32],
        init_value=0,
    )
    assert total.tolist() == [-1000] and count.shape == () and count.item() == 999


def test_what_is_built_again(capsys: pytest.CaptureFixture[str]) -> None:
    """Not for a shape, a grid, a threadgroup, an initial value; for a rank, a dtype, a layout, a template value."""
    kernel = make("out[thread_position_in_grid.x] = inp[thread_position_in_grid.x] + Scalar[T](K)")

    def call(x: torch.Tensor, k: int = 0, **how: Any) -> bool:
        run(kernel, x, template=[("K", k), ("T", x.dtype)], init_value=1, verbose=True, **how)
        return "@extensibility.register" in capsys.readouterr().out

    assert call(torch.ones(5))
    assert not call(torch.ones(7))
    assert not call(torch.ones(0))
    assert not call(torch.ones(7), threadgroup=(3, 1, 1))
    assert not call(torch.ones(7), grid=(2, 3, 1))
    assert call(torch.ones(2, 3))
    assert not call(torch.ones(30, 1))
    assert call(torch.ones(5), k=1)


def test_what_is_said_before_anything_runs() -> None:
    with pytest.raises(SignatureError, match=r"\[probe\] the input spare is not used in the body"):
        torch_mojo.kernel("probe", ["inp", "spare"], ["out"], "out[0] = inp[0] # spare")
    with pytest.raises(SignatureError, match="the output out is not used"):
        torch_mojo.kernel("probe", ["inp"], ["out"], "_ = inp[0]")
    with pytest.raises(SignatureError, match="'1x' is no name"):
        torch_mojo.kernel("probe", ["1x"], ["out"], "out[0] = 1")
    with pytest.raises(SignatureError, match="thread_position_in_grid' already means something"):
        torch_mojo.kernel("probe", ["thread_position_in_grid"], ["out"], "out[0] = 1")
    with pytest.raises(SignatureError, match="mixes the two ways"):
        torch_mojo.kernel("probe", ["inp"], ["out"], "out[0] = inp[0]", grid="n")  # type: ignore[call-overload]
    kernel = make("out[0] = inp[0] + Scalar[T](K)")
    x = torch.ones(1)
    with pytest.raises(SignatureError, match=r"inputs has 2 item\(s\) for 1 name\(s\): inp"):
        run(kernel, x, x)
    with pytest.raises(SignatureError, match="the input inp is 'text'"):
        run(kernel, x, inputs=["text"])
    with pytest.raises(SignatureError, match=r"the template value K is 1\.5"):
        run(kernel, x, template=[("K", 1.5)])
    with pytest.raises(SignatureError, match="the dtype of out is 'float32'"):
        run(kernel, x, output_dtypes=["float32"])
    with pytest.raises(SignatureError, match="init_value is 'zero'"):
        run(kernel, x, init_value="zero")


def test_a_compile_error_shows_the_line_of_the_body() -> None:
    kernel = make(
        """
        var i = thread_position_in_grid.x
        out[i] = inp[i] + nowhere[i]
        """
    )
    with pytest.raises(torch_mojo.errors.MojoCompileError) as caught:
        run(kernel, torch.ones(1))
    lines = Path(__file__).read_text().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if "nowhere[i]" in text)
    assert f"{__file__}:{line}: error: use of unknown declaration 'nowhere'" in str(caught.value)
    assert "execute" not in str(caught.value)


def test_a_second_process_builds_nothing() -> None:
    """U64: the warm cache of another process serves the right value."""
    program = textwrap.dedent("""
        import torch, torch_mojo
        kernel = torch_mojo.kernel("probe", ["inp"], ["out"],
            "out[thread_position_in_grid.x] = inp[thread_position_in_grid.x] + Scalar[T](K)")
        for k in KS:
            (y,) = kernel(inputs=[torch.tensor([10.0])], template=[("K", k), ("T", torch.float32)],
                grid=(1, 1, 1), threadgroup=(1, 1, 1), output_shapes=[(1,)], output_dtypes=[torch.float32])
            print(y.item())
    """)
    found = []
    for values in ((2,), (2, 3)):
        done = subprocess.run(
            [sys.executable, "-c", program.replace("KS", str(values))],
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(done.stdout.split())
    assert found == [["12.0"], ["12.0", "13.0"]]
