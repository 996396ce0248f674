"""Every refusal of a library that was built ahead of time: before any of its code runs, with both sides named."""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import environments
import gpu_calls
import pytest
import torch

from torch_mojo import build, errors, loader
from torch_mojo.ahead import targets
from torch_mojo.dispatch import shipped
from torch_mojo.errors import MojoError, SignatureError, ToolchainError
from torch_mojo.jit import elf, manifest

ROOT = Path(__file__).parents[2]

MODULE = '''
import torch
import torch_mojo

SOURCE = """
import extensibility
from extensibility import InputTensor, OutputTensor

@extensibility.register("negated")
struct Negated:
    @staticmethod
    def execute(
        output: OutputTensor[dtype=DType.float32, rank=1, ...],
        x: InputTensor[dtype=DType.float32, rank=1, ...],
    ) raises:
        for i in range(x.dim_size(0)):
            output[i] = -x[i]
"""


@torch_mojo.mojo_op("NAME::negated", source=SOURCE)
def negated(x: torch.Tensor) -> torch.Tensor:
    """-x."""
    return torch.empty_like(x)
'''

WITH_BUFFER = '''
import torch
import torch_mojo

SOURCE = """
import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu.host import DeviceContext

@extensibility.register("through_buffer")
struct ThroughBuffer:
    @staticmethod
    def execute(
        output: OutputTensor[dtype=DType.float32, rank=1, ...],
        x: InputTensor[dtype=DType.float32, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        var n = x.dim_size(0)
        var buffer = ctx.enqueue_create_buffer[DType.float32](n)
        var at = buffer.unsafe_ptr()
        for i in range(n):
            at[unsafe_offset=i] = x[i] * 2
        for i in range(n):
            output[i] = at[unsafe_offset=i] + 1
"""


@torch_mojo.mojo_op("ship_buffer::through_buffer", source=SOURCE)
def through_buffer(x: torch.Tensor) -> torch.Tensor:
    """2x + 1, through memory of the device context."""
    return torch.empty_like(x)
'''


def write(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.py").write_text(text.replace("NAME", name))
    return name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("refusals")


@pytest.fixture(scope="module")
def library(folder: Path) -> Path:
    """Build a library for one specialization."""
    name = write(folder, "ship_negated", MODULE)
    grid = build.Grid(ranks=[1])
    return build.build_module(name, folder / "out", root=folder, specializations=grid).path


@pytest.fixture(scope="module")
def hosted(folder: Path) -> build.Built:
    """Build a library that needs Mojo's runtime, and bundle it."""
    name = write(folder, "ship_buffer", WITH_BUFFER)
    return build.build_module(
        name,
        folder / "hosted",
        root=folder,
        specializations=build.Grid(ranks=[1]),
        bundle_runtime=True,
    )


def changed(library: Path, **values: object) -> dict[str, object]:
    return {**manifest.read(library), **values}


# environments


def test_built_in_an_environment_that_is_gone(folder: Path, tmp_path: Path) -> None:
    name = write(tmp_path, "ship_gone", MODULE)
    first = environments.make(
        tmp_path / "first", "torch", "numpy", "setuptools", "max", "mojo-compiler", "filelock"
    )
    env = environments.clean() | {"PYTHONPATH": str(ROOT)}
    env |= {k: v for k, v in os.environ.items() if k == "TORCH_MOJO_CACHE_DIR"}
    command = [str(first), "-m", "torch_mojo", "build", name, "--rank", "1", "--jobs", "2"]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    content = (tmp_path / "libship_gone_mojo.so").read_bytes()
    assert str(tmp_path).encode() not in content
    shutil.rmtree(tmp_path / "first")
    second = environments.make(tmp_path / "second", "torch", "numpy")
    code = (
        "import torch; torch.ops.load_library('./libship_gone_mojo.so'); x = torch.randn(5)\n"
        "assert torch.equal(torch.ops.ship_gone.negated(x), -x); print('right')"
    )
    assert environments.run(second, "-c", code, cwd=tmp_path).strip() == "right"


# versions, machines


def test_torch_is_too_old(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(MojoError) as caught:
        shipped.check(library, manifest.read(library))
    assert str(caught.value) == (
        "libship_negated_mojo.so needs torch 2.10 or newer; torch 2.9.1+cpu is installed.\n"
        "Install it: pip install 'torch>=2.10'"
    )


def test_another_machine(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(MojoError, match="was built for Linux x86-64; this is linux on aarch64"):
        shipped.check(library, manifest.read(library))
    with pytest.raises(ToolchainError, match="built ahead of time on Linux x86-64"):
        targets.parse(["x86-64-v3"])


def test_the_cpu_lacks_instructions(folder: Path) -> None:
    """The library is built for a CPU that this one is not; nothing of it is executed."""
    missing = shipped.missing_flags(4)
    if not missing:
        pytest.skip("this CPU has every instruction set that there is a level for")
    name = write(folder, "ship_v4", MODULE)
    grid = build.Grid(ranks=[1])
    made = build.build_module(
        name, folder / "v4", root=folder, specializations=grid, targets=["x86-64-v4"]
    )
    with pytest.raises(MojoError) as caught:
        shipped.open_library(made.path)
    assert f"libship_v4_mojo.so was built for x86-64-v4; this CPU lacks {', '.join(missing)}, " in (
        str(caught.value)
    )
    # without Python's check: the call is refused, and no kernel runs
    code = f"""
        import torch
        torch.ops.load_library({str(made.path)!r})
        try:
            torch.ops.ship_v4.negated(torch.ones(3))
        except RuntimeError as e:
            print(e)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[ship_v4::negated] was built for x86-64-v4; this CPU is x86-64")


def test_there_is_no_code_for_a_gpu(library: Path) -> None:
    assert gpu_calls.answer(library, tensors=1) == (
        "[ship_negated::negated] has no code for a GPU (x: float32[1] on cuda).\n"
        "It was built for:\n  x86-64-v3: x: float32[1]"
    )


def test_the_library_and_python_agree_on_the_cpu(library: Path) -> None:
    level = shipped.open_library(library).tm_cpu_level()
    assert 2 <= level <= 4
    assert shipped.missing_flags(level) == []
    assert level == 4 or shipped.missing_flags(level + 1)


# Mojo's runtime


def test_the_runtime_is_bundled(hosted: build.Built, folder: Path, tmp_path: Path) -> None:
    """A kernel that needs the runtime runs where there is torch alone; another version is refused."""
    assert "libAsyncRTMojoBindings.so" in hosted.runtime
    python = environments.make(tmp_path / "env", "torch", "numpy")
    place = tmp_path / "place"
    place.mkdir()
    for item in (folder / "hosted").iterdir():
        (place / item.name).symlink_to(item)
    text = WITH_BUFFER.replace("import torch_mojo", "import _torch_mojo_ship_buffer as torch_mojo")
    (place / "ship_buffer.py").write_text(text)
    code = (
        "import torch; from ship_buffer import through_buffer; x = torch.randn(100)\n"
        "torch.testing.assert_close(through_buffer(x), 2 * x + 1); print('right')"
    )
    assert environments.run(python, "-c", code, cwd=place).strip() == "right"
    runtime = folder / "hosted" / "_torch_mojo_ship_buffer" / "runtime"
    assert (runtime / "LICENSE").exists()
    noted = runtime / "version.txt"
    version = noted.read_text()
    noted.write_text("1.1.0\n")
    shown = environments.run(python, "-c", code, cwd=place, check=False)
    noted.write_text(version)
    assert (
        f"libship_buffer_mojo.so was built for the Mojo runtime {version.strip()}; 1.1.0 is in "
        in shown
    )


def test_the_installed_runtime_has_another_version(
    hosted: build.Built, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shipped, "_loaded", lambda name: None)
    monkeypatch.setattr(shipped, "_installed", lambda: ("0.9.3", Path("/somewhere/lib")))
    with pytest.raises(ToolchainError) as caught:
        shipped.load_runtime(hosted.path, hosted.manifest["runtime"], tmp_path)
    wanted = hosted.manifest["runtime"]["version"]
    assert str(caught.value) == (
        f"libship_buffer_mojo.so was built for the Mojo runtime {wanted}; 0.9.3 is installed (/somewhere/lib).\n"
        f"Install the other one, pip install 'mojo-compiler=={wanted}', or build the wheel again."
    )
    monkeypatch.setattr(shipped, "_loaded", lambda name: Path("/elsewhere") / name)
    with pytest.raises(ToolchainError, match=r"; unknown is in use \(/elsewhere\)\.\nInstall the"):
        shipped.load_runtime(hosted.path, hosted.manifest["runtime"], tmp_path)
    monkeypatch.setattr(shipped, "_loaded", lambda name: None)
    monkeypatch.setattr(shipped, "_installed", lambda: None)
    with pytest.raises(ToolchainError, match=r"needs the Mojo runtime [\d.]+, and none is install"):
        shipped.load_runtime(hosted.path, hosted.manifest["runtime"], tmp_path)


# the file


def test_no_library_and_damaged_ones(library: Path, tmp_path: Path) -> None:
    other = tmp_path / "libother_mojo.so"
    other.write_bytes(b"\x7fELF and nothing more")
    with pytest.raises(MojoError, match=r"libother_mojo\.so is no library of torch_mojo"):
        manifest.read(other)
    content = library.read_bytes()
    start = content.index(b"torch_mojo" + b" manifest:") + 40
    damaged = tmp_path / "libdamaged_mojo.so"
    damaged.write_bytes(content[:start] + bytes(30) + content[start + 30 :])
    with pytest.raises(MojoError, match=r"libdamaged_mojo\.so is damaged: "):
        manifest.read(damaged)
    newer = tmp_path / "libnewer_mojo.so"
    newer.write_bytes(manifest.encode(changed(library, format=99)))
    with pytest.raises(MojoError, match="has format 99; this torch_mojo reads 1"):
        manifest.read(newer)
    half = tmp_path / "libhalf_mojo.so"
    half.write_bytes(content[: start - 200] + content[start - 200 : len(content) // 2])
    with pytest.raises(MojoError, match=r"(does not load|is no library|is damaged)"):
        shipped.open_library(half)


# declarations


def test_the_declaration_is_another(library: Path) -> None:
    from torch_mojo.dispatch import schema

    def negated(x: torch.Tensor, by: int) -> torch.Tensor:
        return x

    with pytest.raises(SignatureError) as caught:
        loader.declare(
            "ship_negated::negated", library, schema.infer("n::negated", negated, ()), negated
        )
    assert str(caught.value) == (
        "[ship_negated::negated] is declared as negated(Tensor x, SymInt by) -> Tensor; "
        "libship_negated_mojo.so was built from negated(Tensor x) -> Tensor.\nBuild the wheel again."
    )


def test_not_beside_the_file(library: Path, tmp_path: Path) -> None:
    text = MODULE.replace("import torch_mojo", "from torch_mojo import loader as torch_mojo")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import ship_none",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0  # there is no such file yet
    (tmp_path / "ship_none.py").write_text(text.replace("NAME", "ship_none"))
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import ship_none"

    def fails() -> str:
        command = [sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr

    assert "torch_mojo is not installed, and there is no libship_none_mojo.so in " in fails()
    (tmp_path / "libship_none_mojo.so").symlink_to(library)
    assert (
        "[ship_none::negated] was not built into libship_none_mojo.so; it has ship_negated::negated."
        in fails()
    )


def test_what_the_small_loader_lacks() -> None:
    with pytest.raises(
        AttributeError, match=r"torch_mojo\.functional is not part of the small load"
    ):
        loader.functional  # noqa: B018
    assert loader.errors is errors


@pytest.mark.parametrize(
    ("names", "message"),
    [(["riscv"], "'riscv' is no target"), ([], "No target is given"), (["sm90"], "'sm90' is no")],
)
def test_unknown_targets(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        targets.parse(names)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: build.Grid(torch.float32),
            r"dtypes is torch\.float32\.\nGive a list of torch dtypes",
        ),
        (lambda: build.Grid(["float32"]), r"dtypes is \['float32'\]"),
        (lambda: build.Grid(ranks=2), r"ranks is 2\.\nGive a list of numbers of dimensions"),
        (lambda: build.Grid(ranks=[-1]), r"ranks is \[-1\]"),
        (
            lambda: build.Grid(values={"K": 2}),
            r"values for K are 2\.\nGive a list for each argument",
        ),
        (lambda: build.Grid(values=["K"]), r"values for values are \['K'\]"),
        (lambda: build.MojoExtension("my-ops"), "'my-ops' is no module"),
        (lambda: build.MojoExtension("a", targets="sm_90"), r"Give a list: targets=\['sm_90'\]"),
        (lambda: build.MojoExtension("a", targets=["sm90"]), "'sm90' is no target"),
        (lambda: build.MojoExtension("a", targets=[90]), "90 is no target"),
        (
            lambda: build.MojoExtension("a", specializations=[torch.float32]),
            r"specializations has torch\.float32\.\nGive a Grid or an Example",
        ),
        (lambda: build.MojoExtension("a", specializations={"a::b": 1}), "specializations has 1"),
        (lambda: build.MojoExtension("a", jobs=0), "jobs is 0"),
    ],
)
def test_wrong_values_in_a_setup_py(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_what_the_library_asks_of_the_system(library: Path) -> None:
    """One elementwise specialization stays small, and asks for libtorch and libc alone."""
    assert library.stat().st_size <= 100 * 1024
    asked = elf.symbols(library, defined=False)
    known = ("aoti_torch", "torch_", "_ZN", "_Zd")
    process = ctypes.CDLL(None)
    others = [n for n in asked if not n.startswith(known) and not hasattr(process, n)]
    assert not others
