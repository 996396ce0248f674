"""One operator by every route: opcheck, fake tensors, Inductor, export, dynamic shapes."""

import io
import subprocess
import sys
import textwrap
from pathlib import Path

import ops
import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's compiler warns of itself

LAYOUTS = {
    "contiguous": lambda: torch.randn(3, 4),
    "strided": lambda: torch.randn(3, 8)[:, ::2],
    "offset": lambda: torch.randn(13)[1:].view(3, 4),
    "expanded": lambda: torch.randn(1).expand(3, 4),
    "0-d": lambda: torch.tensor(2.0),
    "empty": lambda: torch.empty(0, 3),
}


def check(op: object, args: tuple[object, ...], **kwargs: object) -> None:
    found = torch.library.opcheck(op.overload, args, kwargs, test_utils="ALL")  # type: ignore[attr-defined]
    assert set(found.values()) == {"SUCCESS"}, found


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_opcheck_over_layouts(layout: str, grad: bool) -> None:
    x = LAYOUTS[layout]().detach().requires_grad_(grad)
    check(ops.mul, (x, x))


def test_opcheck_over_kinds() -> None:
    x = torch.randn(3)
    check(ops.two, (x,))
    check(ops.two, (x.clone().requires_grad_(),))
    check(ops.select, (x, torch.tensor(True)))
    check(ops.affine, (x, 0.5, 2, [1, 2], [0.25]), K=3, mode="sub", flip=True)
    check(ops.plus_one_, (x.clone(),))
    check(ops.plus_one_, (x.clone().requires_grad_(),))
    check(ops.add_into, (x, torch.zeros(3)))
    check(ops.add_into, (x,))
    check(ops.fill_value, (3, 2.5))
    check(ops.logical_not, (torch.tensor([True, False]),))


def test_opcheck_for_sizes_that_depend_on_data() -> None:
    utils = (
        "test_schema",
        "test_autograd_registration",
        "test_faketensor",
        "test_aot_dispatch_dynamic",
    )
    found = torch.library.opcheck(ops.positive.overload, (torch.randn(5),), test_utils=utils)
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("device", ["cpu", "cuda", "meta"])
def test_fake_tensors_build_nothing(device: str) -> None:
    before = list(ops.cast.specializations)
    with FakeTensorMode():
        x = torch.empty(5, 6, device=device).t()
        y = ops.cast(x, torch.int16)
    assert (y.device.type, y.dtype, y.shape, y.stride()) == (device, torch.int16, (6, 5), (1, 6))
    assert ops.cast.specializations == before


def test_strides_are_those_that_the_fake_promised() -> None:
    x = torch.rand(6, 5).t()
    with FakeTensorMode() as mode:
        fake = ops.double(mode.from_tensor(x))
    real = ops.double(x)
    compiled = torch.compile(ops.double, fullgraph=True)(x)
    assert fake.stride() == real.stride() == compiled.stride()
    assert torch.equal(compiled, 2 * x)
    w = torch.rand(5, 6)
    f = torch.compile(lambda a, b: ops.double((a @ b).t().contiguous()), fullgraph=True)
    torch.testing.assert_close(f(x, x.t()), 2 * (x @ x.t()).t())
    assert ops.double(w.t()).stride() == (1, 6)


def test_an_int_argument_is_compiled_twice_at_most() -> None:
    counter = CompileCounter()
    f = torch.compile(
        lambda x, k: ops.affine(x, 0.5, k, [1], [0.25]), backend=counter, fullgraph=True
    )
    x = torch.tensor([1.0, 2.0])
    ops.affine(x, 0.5, 2, [1], [0.25])  # the native functions are in place
    for k in (2, 3, 4, 5, 6):
        assert f(x, k).tolist() == [k + 1.75, 2 * k + 1.75]
    assert counter.frame_count <= 2


def test_a_size_1_dimension_s_stride_recompiles_nothing() -> None:
    counter = CompileCounter()
    f = torch.compile(lambda x: ops.double(x) + 1, backend=counter, fullgraph=True)
    data = torch.randn(77)
    for strides in ((77, 1), (1, 1), (1000, 1)):
        x = data.as_strided((1, 77), strides)
        assert torch.equal(f(x), 2 * x + 1)
    x = torch.randn(5, 3).as_strided((5, 1, 3), (3, 1000, 1))
    assert torch.equal(ops.double(x), 2 * x)


def test_inductor_forward_and_gradient() -> None:
    f = torch.compile(lambda a, b: ops.mul(a, b).sin() + 1, fullgraph=True)
    x, y = torch.randn(4, 6, requires_grad=True), torch.randn(4, 6)
    out = f(x, y)
    torch.testing.assert_close(out, (x * y).sin() + 1)
    out.sum().backward()
    torch.testing.assert_close(x.grad, (x * y).cos() * y)


def test_a_write_inside_a_compiled_function() -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = x.clone()
        ops.plus_one_(x)
        return before, x * 1

    x = torch.zeros(3)
    before, after = torch.compile(f, fullgraph=True)(x)
    assert (before.tolist(), after.tolist(), x.tolist()) == ([0.0] * 3, [1.0] * 3, [1.0] * 3)


def test_export_and_a_fresh_process(tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return ops.mul(a, b) + 1

    x, y = torch.arange(6.0).view(2, 3), torch.full((2, 3), 0.5)
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(Model(), (x, y), dynamic_shapes=({0: rows}, {0: rows}))
    file = tmp_path / "model.pt2"
    torch.export.save(program, file)
    buffer = io.BytesIO(file.read_bytes())
    assert torch.equal(torch.export.load(buffer).module()(x, y), x * y + 1)
    text = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import torch, ops
        model = torch.export.load({str(file)!r}).module()
        x = torch.arange(12.0).view(4, 3)
        print(model(x, torch.full((4, 3), 0.5)).tolist() == (x * 0.5 + 1).tolist())
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, check=False
    )
    assert result.stdout == "True\n", result.stderr


@pytest.mark.slow
def test_the_max_backend_runs_the_same_kernel() -> None:
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    f = torch.compile(lambda a, b: ops.mul(a + 1, b) * 2, backend="max", fullgraph=True)
    torch.testing.assert_close(f(x, y), (x + 1) * y * 2)
    x, y = torch.randn(7, 6), torch.randn(7, 6)
    torch.testing.assert_close(f(x, y), (x + 1) * y * 2)
