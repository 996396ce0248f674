"""Code for machines that are not here, several targets in one library, and this project's own kernels."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from torch_mojo import build, cli, own, own_check
from torch_mojo.ahead import cases
from torch_mojo.dispatch import load, router, shipped
from torch_mojo.errors import MojoError, ToolchainError
from torch_mojo.jit import build as jit
from torch_mojo.jit import elf, toolchain
from torch_mojo.jit.cache import cache

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def example() -> object:
    sys.path.insert(0, str(ROOT / "examples" / "ship_an_op"))
    from ship_an_op import ops

    sys.path.remove(str(ROOT / "examples" / "ship_an_op"))
    return ops


@pytest.fixture(scope="module")
def three(example: object, tmp_path_factory: pytest.TempPathFactory) -> build.Built:
    """Build one specialization for a GPU that is not here, and for two CPU levels."""
    del example
    return build.build_module(
        "ship_an_op.ops",
        tmp_path_factory.mktemp("three"),
        specializations=build.Grid(ranks=[1]),
        targets=["sm_90", "x86-64-v2", "x86-64-v3"],
    )


def test_a_gpu_that_is_not_here_and_two_cpu_levels(three: build.Built) -> None:
    content = three.path.read_bytes()
    assert b".target sm_90" in content
    assert three.manifest["targets"] == ["x86-64-v3", "x86-64-v2", "sm_90"]
    (operator,) = three.manifest["operators"]
    found = {b["target"]: b["function"] for b in operator["built"]}
    assert set(found) == {"x86-64-v3", "x86-64-v2", "sm_90"}
    have = elf.symbols(three.path, defined=True)
    assert set(found.values()) < have
    assert {"tm_register", "tm_cpu_level", "tm_kernel_0", "tm_gate_0"} < have
    assert three.runtime  # launching needs it
    asked = elf.symbols(three.path, defined=False)
    assert "AsyncRT_DeviceStream_enqueueFunctionDirect" in asked
    # it runs on this CPU, in a process that has the runtime
    code = f"""
import torch
from torch_mojo.jit.toolchain import load_runtime
load_runtime()
torch.ops.load_library({str(three.path)!r})
x = torch.randn(100, 100).flatten()
torch.testing.assert_close(torch.ops.ship_an_op.scale_add(x, x, 2.0), 3 * x)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


DRIVER = """
from std.ffi import external_call
from std.memory import Pointer


@export
def cuDeviceGetAttribute(
    value: Pointer[Int32, MutAnyOrigin], attribute: Int32, device: Int32
) abi("C") -> Int32:
    var text = external_call["getenv", Int](StaticString("GPU_THAT_IS_NOT_HERE\0").unsafe_ptr())
    var capability = external_call["atoi", Int32](text)
    value[] = capability // 10 if attribute == 75 else capability % 10
    return 0
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a library that passes for CUDA's driver, as far as a GPU's compute capability is asked for."""
    found = jit.build(jit.Job("a driver for a test", DRIVER, cpu="x86-64", linked=False), cache())
    file = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    jit.link("a driver for a test", [found.library], file, (), (), ["-soname=libcuda.so.1"])
    return file


@pytest.mark.parametrize(
    ("capability", "message"),
    [
        (
            75,
            "was built for sm_90; this GPU is sm_75 (x: float32[1] on cuda, y: float32[1] on cuda).",
        ),
        (0, "was built for sm_90; CUDA's driver does not say what this GPU is (x: float32[1] on "),
        (
            100,
            "[ship_an_op::scale_add] CUDA's driver or libtorch_cuda lacks a function that it needs",
        ),
    ],
)
def test_the_gpu_is_older(three: build.Built, driver: Path, capability: int, message: str) -> None:
    """The library asks the driver what the GPU is; code for an older one is taken, for a later one not."""
    code = (
        f"import ctypes; ctypes.CDLL({str(driver)!r}); import gpu_calls, pathlib\n"
        f"print(gpu_calls.answer(pathlib.Path({str(three.path)!r})))"
    )
    env = os.environ | {
        "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}",
        "GPU_THAT_IS_NOT_HERE": str(capability),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert message in done.stdout
    if capability < 90:
        assert "It was built for:\n  x86-64-v3: x: float32[1], y: float32[1]\n" in done.stdout
        assert "  sm_90: x: float32[1], y: float32[1]" in done.stdout


def test_code_for_an_older_gpu_is_taken_where_there_is_no_compiler(
    three: build.Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ship_an_op import ops

    shipped.add(three.path)
    (operator,) = three.manifest["operators"]
    functions = {b["target"]: b["function"] for b in operator["built"]}
    source = ops.scale_add.source
    (digest,) = {b["digest"] for b in operator["built"] if b["target"] == "sm_90"}
    monkeypatch.setattr(shipped, "digest_of", lambda text, fingerprint: digest)

    def found(accelerator: str, older: bool) -> int | None:
        answer = shipped.find("", source.fingerprint(), accelerator, older)
        return answer[1] if answer else None

    opened = shipped.open_library(three.path)
    sm_90 = ctypes.cast(getattr(opened, functions["sm_90"]), ctypes.c_void_p).value
    assert found("sm_90", False) == found("sm_90", True) == found("sm_100", True) == sm_90
    assert found("sm_100", False) is None
    assert found("sm_89", True) is None
    assert found("gfx942", True) is None


def test_no_code_for_this_gpu_and_no_compiler(
    three: build.Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With torch_mojo: what was built, and for which machine it would have been needed."""
    from ship_an_op import ops

    shipped.add(three.path)
    op = ops.scale_add
    x = torch.empty(4)
    values, keys, outs = op.calls.example((x, x), {})
    on_gpu = cases.Case(values, keys, outs, None).on(1)
    router.router()  # which a release has built
    monkeypatch.setattr(load, "_architecture", lambda device: "sm_75")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setenv("TORCH_MOJO_COMPILER", "/nowhere/mojo")
    toolchain.toolchain.cache_clear()
    try:
        with pytest.raises(ToolchainError) as caught:
            load.load(op.kernel_for, on_gpu.keys, values, on_gpu.outs)
    finally:
        monkeypatch.undo()
        toolchain.toolchain.cache_clear()
    first, *_, last = str(caught.value).splitlines()
    assert first.startswith(
        "ship_an_op::scale_add(x: float32[1], y: float32[1]) on cuda was not built for sm_75, and cannot be "
        "built here: "
    )
    assert "/nowhere/mojo" in str(caught.value)
    assert last == "  sm_90: x: float32[1], y: float32[1]"


def test_the_command_builds_beside_the_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["new", "ship_new", "--folder", str(tmp_path)]) == 0
    assert cli.main(["new", "ship_new", "--folder", str(tmp_path)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert cli.main(["new", "Ship-New", "--folder", str(tmp_path)]) == 1
    assert "'Ship-New' cannot be a package" in capsys.readouterr().err
    command = [sys.executable, "-m", "torch_mojo", "build", "ship_new.ops", "--rank", "1"]
    done = subprocess.run(
        [*command, "--dtype", "float32"],
        cwd=tmp_path / "ship_new",
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "x: float32[1], y: float32[1]" in done.stdout
    assert (tmp_path / "ship_new" / "ship_new" / "libops_mojo.so").exists()
    assert cli.main(["build"]) == 1
    assert "No module is named" in capsys.readouterr().err
    assert cli.main(["info", str(tmp_path / "none.whl")]) == 1
    assert "There is no file" in capsys.readouterr().err


def test_own_kernels_in_a_wheel(tmp_path: Path) -> None:
    """A subset of what a release builds: the wheel takes it along, and calls use it without a build."""
    tree = tmp_path / "tree"
    ignore = shutil.ignore_patterns("__pycache__", "built", "kernels")
    shutil.copytree(ROOT / "torch_mojo", tree / "torch_mojo", ignore=ignore)
    shutil.copytree(ROOT / "kernels", tree / "kernels", ignore=shutil.ignore_patterns("built"))
    for name in ("setup.py", "pyproject.toml", "README.md"):
        (tree / name).write_text((ROOT / name).read_text())
    own.build_own(
        tree / "kernels" / "built",
        targets=["x86-64-v3"],
        dtypes=[torch.float32],
        only=["mojo::ceil"],
    )
    assert not (tree / "kernels" / "built.part").exists()
    command = [
        sys.executable,
        "-m",
        "torch_mojo",
        "build",
        "--own",
        "--check",
        "--only",
        "mojo::ceil",
    ]
    done = subprocess.run(
        [*command, "--dtype", "float32", "--out", str(tree / "kernels" / "built")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert rows == ["functions 2, all found", "called here 2, by 2 calls, and right"]
    link = tree / "torch_mojo" / "kernels"  # as an editable installation has it
    link.symlink_to(tree / "kernels")
    code = """
import torch, torch_mojo
from torch_mojo import functional as F
from torch_mojo.dispatch.router import _library
assert torch_mojo.__file__.startswith(TREE), torch_mojo.__file__
x = torch.randn(3, 4)
assert torch.equal(F.ceil(x), x.ceil())
assert torch.equal(F.ceil(x.t()), x.t().ceil())
(built,) = {b.library.name for b in F.ceil.op.calls.built.values()}
print(built, _library().name)
"""
    cache = tmp_path / "cache"
    env = os.environ | {"PYTHONPATH": str(tree), "TORCH_MOJO_CACHE_DIR": str(cache)}
    for more in (
        {},
        {"TORCH_MOJO_COMPILER": str(tmp_path / "none")},
    ):  # with a compiler, and without
        done = subprocess.run(
            [sys.executable, "-c", code.replace("TREE", repr(str(tree)))],
            cwd=tmp_path,
            env=env | more,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["libkernels_mojo.so", "router.so"]
    assert not list(cache.glob("v1/*/*"))  # nothing was built
    # of other sources, or damaged, it is not used: then the router is built
    about = json.loads((tree / "kernels" / "built" / "router.json").read_text())
    assert set(about) == {"fingerprint", "mojo", "sha256"}
    link.unlink()
    command = [sys.executable, "-m", "pip", "wheel", str(tree), "--no-build-isolation", "-q"]
    done = subprocess.run(
        [*command, "--no-deps", "--no-index", "-w", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert "-cp310-abi3-linux_x86_64" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for name in ("libkernels_mojo.so", "router.so", "router.json"):
        assert f"torch_mojo/kernels/built/{name}" in names
    assert "torch_mojo/kernels/torch/ahead.mojo" in names
    for module in (ROOT / "torch_mojo").rglob("*.py"):
        if "kernels" not in module.parts:
            assert str(module.relative_to(ROOT)) in names


def test_a_release_with_a_wrong_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    monkeypatch.setitem(own_check._REFERENCES, torch.sin, torch.sin)
    own_check._compare(torch.sin, [x], {}, torch.float32)
    monkeypatch.setitem(own_check._REFERENCES, torch.sin, lambda x: x.sin() + 1e-3 * x)
    with pytest.raises(MojoError, match=r"sin of float32 \(3, 4\): result 0 is wrong"):
        own_check._compare(torch.sin, [x], {}, torch.float32)
    wrong_slope = torch.sin(x.detach().double())  # right values, no gradient
    monkeypatch.setitem(own_check._REFERENCES, torch.sin, lambda x: wrong_slope + 0 * x)
    with pytest.raises(MojoError, match=r"sin of float32 \(3, 4\): result 1 is wrong"):
        own_check._compare(torch.sin, [x], {}, torch.float32)


def test_a_build_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "built"
    folder.mkdir()
    (folder / "old").write_text("")

    def fails(*args: object) -> None:
        raise MojoError("no")

    monkeypatch.setattr(own, "build_library", fails)
    with pytest.raises(MojoError, match="no"):
        own.build_own(folder, dtypes=[torch.float32], only=["mojo::ceil"])
    assert [p.name for p in tmp_path.iterdir()] == ["built"]
    assert [p.name for p in folder.iterdir()] == ["old"]


def test_own_samples_reach_their_operators() -> None:
    found = {op.qualname: len(e) for op, e in own.wanted([torch.float32]).items()}
    for name in ("rms_norm", "rms_norm_backward", "attention_forward", "attention_backward"):
        assert found[f"mojo::{name}"]
    assert len(found) >= 25
    with pytest.raises(MojoError, match="No sample call uses mojo::nothing; they use mojo::"):
        own.wanted([torch.float32], only=["mojo::nothing"])
