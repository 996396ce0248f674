"""The example, built into a wheel, installed where there is torch and nothing of ours, used there and from C++."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import environments
import pytest
import torch

from torch_mojo import cli, project
from torch_mojo.jit import elf

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ship_an_op"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the example's wheel from a copy of it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = shutil.copytree(EXAMPLE, folder / "source")
    command = [sys.executable, "-m", "pip", "wheel", str(source), "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--no-deps", "--no-index", "-q", "-w", str(folder)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(source)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with torch, pytest and the wheel."""
    python = environments.make(tmp_path_factory.mktemp("env"), "torch", "numpy", "pytest")
    environments.install(python, wheel)
    return python


@pytest.fixture(scope="module")
def package(python: Path) -> Path:
    (found,) = python.parents[1].glob("lib/*/site-packages/ship_an_op")
    return found


def test_the_example_is_what_new_writes(tmp_path: Path) -> None:
    written = project.write("ship_an_op", tmp_path)
    files = sorted(p.relative_to(written) for p in written.rglob("*") if p.is_file())
    assert files
    for file in files:
        assert (written / file).read_text() == (EXAMPLE / file).read_text(), file


def test_its_tests_pass_where_there_is_torch_alone(python: Path, tmp_path: Path) -> None:
    names = "('torch_mojo', 'max', 'mojo', 'modular')"
    code = f"import importlib.util as u; print([n for n in {names} if u.find_spec(n)])"
    assert environments.run(python, "-c", code, cwd=tmp_path).strip() == "[]"
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    shown = environments.run(
        python, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "tests", cwd=tmp_path
    )
    assert "8 passed" in shown


def test_nothing_is_built_or_kept(python: Path, tmp_path: Path) -> None:
    code = (
        "import torch; from ship_an_op import scale_add; x = torch.ones(3)\n"
        "assert torch.equal(scale_add(x, x, 2.0), 3 * x)\n"
        "assert not torch.nn.Linear(2, 2).weight.is_cuda"
    )
    env = environments.clean() | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "c")}
    done = subprocess.run([str(python), "-c", code], env=env, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_compiled_and_exported(python: Path, tmp_path: Path) -> None:
    code = (
        "import torch; from ship_an_op import scale_add\n"
        "f = torch.compile(lambda x, y: scale_add(x.sin(), y, 2.0), backend='aot_eager', fullgraph=True)\n"
        "x, y = torch.randn(4, 5), torch.randn(4, 5)\n"
        "torch.testing.assert_close(f(x, y), x.sin() + 2 * y)\n"
        "assert torch.Tag.pt2_compliant_tag in torch.ops.ship_an_op.scale_add.default.tags\n"
        "m = torch.nn.Module(); m.forward = lambda x, y: scale_add(x, y)\n"
        "print(torch.export.export(m, (x, y)).graph)"
    )
    assert "torch.ops.ship_an_op.scale_add.default" in environments.run(
        python, "-c", code, cwd=tmp_path
    )


def test_size_and_what_it_needs(
    wheel: Path, package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = package / "libops_mojo.so"
    asked = elf.symbols(library, defined=False)
    assert not [n for n in asked if n.startswith(("KGEN", "AsyncRT", "__real", "__wrap"))]
    assert b"site-packages" not in library.read_bytes()
    assert wheel.stat().st_size < 120 * 1024
    assert cli.main(["info", str(wheel)]) == 0
    shown = dict(
        (name.strip(), text.strip())
        for name, _, text in (
            x.strip().partition("  ") for x in capsys.readouterr().out.splitlines()
        )
    )
    assert shown["wheel"].startswith(wheel.name)
    assert shown["depends on"] == "torch>=2.10"
    assert shown["library"].startswith("ship_an_op/libops_mojo.so, ")
    assert shown["operator"].endswith("scale_add(Tensor x, Tensor y, float alpha=1.0) -> Tensor")
    assert shown["x86-64-v3"].startswith("x: float32[0], y: float32[0]; x: float32[1]")
    assert shown["needs Mojo runtime"] == "no"
    assert shown["needs torch"] == "2.10 or newer"
    assert "Apache-2.0" in shown["licence"]
    assert shown["runs here"] == "yes"
    assert shown["small loader"].endswith("KiB")
    with zipfile.ZipFile(wheel) as archive:
        assert "ship_an_op/scale_add.mojo" in archive.namelist()
    assert "-cp310-abi3-linux_x86_64" in wheel.name


def test_by_load_library(package: Path, tmp_path: Path, python: Path) -> None:
    code = f"""
import torch
torch.ops.load_library({str(package / "libops_mojo.so")!r})
x, y = torch.randn(3, 4), torch.randn(3, 4)
op = torch.ops.ship_an_op.scale_add
torch.testing.assert_close(op(x, y, 2.0), x + 2 * y)
torch.testing.assert_close(op(x.t(), y.t()), (x + y).t())
try:
    op(x.double(), y.double())
except RuntimeError as e:
    print(e)
from ship_an_op import scale_add  # Python's part comes later
z = x.clone().requires_grad_()
scale_add(z, y, 2.0).sum().backward()
assert torch.equal(z.grad, torch.ones(3, 4))
"""
    shown = environments.run(python, "-c", code, cwd=tmp_path)
    first, second, third = shown.splitlines()
    assert first == "[ship_an_op::scale_add] was not built for x: float64[2], y: float64[2]."
    assert second == "It was built for:"
    assert third.startswith("  x86-64-v3: x: float32[0], y: float32[0]; ")


WITH_TORCH_MOJO = """
import sys
sys.path.insert(0, SITE)
import torch, torch_mojo
from ship_an_op import ops
x, y = torch.randn(3, 4), torch.randn(3, 4)
torch.testing.assert_close(ops.scale_add(x, y, 2.0), x + 2 * y)
torch.testing.assert_close(ops.scale_add(x.t(), y.t(), 2.0), (x + 2 * y).t())
torch.testing.assert_close(ops.scale_add(x.t(), y.t().contiguous(), 2.0), (x + 2 * y).t())
print(type(ops.scale_add).__name__)
if isinstance(ops.scale_add, torch_mojo.MojoOp):
    print({b.library.name for b in ops.scale_add.calls.built.values()})
try:
    torch.testing.assert_close(ops.scale_add(x.double(), y.double()), (x + y).double())
    print({b.library.name for b in ops.scale_add.calls.built.values()} - {"libops_mojo.so"})
except RuntimeError as e:
    print(e)
"""


@pytest.mark.parametrize("compiler", [True, False])
def test_where_torch_mojo_is_installed(package: Path, tmp_path: Path, compiler: bool) -> None:
    """What was built is used; what was not is built if there is a compiler, else refused."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    if not compiler:
        env["TORCH_MOJO_COMPILER"] = str(tmp_path / "nowhere")
    code = WITH_TORCH_MOJO.replace("SITE", repr(str(package.parent)))
    place = tmp_path / "site"  # without the links to torch
    place.mkdir()
    shutil.copytree(package, place / "ship_an_op")
    done = subprocess.run(
        [sys.executable, "-c", code.replace(str(package.parent), str(place))],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    if compiler:
        assert lines == ["MojoOp", "{'libops_mojo.so'}", "{'lib.so'}"]
    else:
        assert lines[0] == "ShippedOp"
        assert "was not built for x: float64[2], y: float64[2]." in lines[1]


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_a_cpp_program_and_aotinductor(python: Path, package: Path, tmp_path: Path) -> None:
    cpp = EXAMPLE / "cpp"
    program, model = tmp_path / "main", tmp_path / "model.pt2"
    done = subprocess.run(
        [str(cpp / "build.sh"), str(python), str(program)],
        env=environments.clean(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    environments.run(python, str(cpp / "export_model.py"), str(model), cwd=tmp_path)
    done = subprocess.run(
        [str(program), str(package / "libops_mojo.so"), str(model)],
        env=environments.clean(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [x for x in lines if x.endswith("right")] == [
        "operator: right",
        "strided: right",
        "model: right",
    ]
    assert "[ship_an_op::scale_add] was not built for x: float64[2], y: float64[2]." in lines


def test_torch_here_is_the_one_of_the_environment(python: Path, tmp_path: Path) -> None:
    code = "import torch; print(torch.__version__)"
    assert environments.run(python, "-c", code, cwd=tmp_path).strip() == torch.__version__
