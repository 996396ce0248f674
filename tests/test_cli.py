"""`python -m torch_mojo`."""

import importlib.metadata
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import torch_mojo
from torch_mojo import cli, machine_report
from torch_mojo.jit import toolchain
from torch_mojo.jit.cache import Cache, cache

OPS = '''
import torch
import torch_mojo
SOURCE = """
import extensibility
from extensibility import InputTensor, OutputTensor

@extensibility.register("copy_it")
struct CopyIt:
    @staticmethod
    def execute(
        output: OutputTensor[dtype=DType.float32, rank=1, ...],
        x: InputTensor[dtype=DType.float32, rank=1, ...],
    ) raises:
        for i in range(x.dim_size(0)):
            output[i] = x[i]
"""

@torch_mojo.mojo_op("{namespace}::copy_it", source=SOURCE)
def copy_it(x: torch.Tensor) -> torch.Tensor:
    """Copy a float32 vector.

    And no more.
    """
    return torch.empty_like(x)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a kernel cache of its own."""
    monkeypatch.setenv("TORCH_MOJO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def three(folder: Path) -> Cache:
    """Fill the cache with three kernels of 100 KiB; the first is the least recently used."""
    del folder
    for i, key in enumerate("abc"):

        def build(work: Path, key: str = key) -> dict[str, object]:
            (work / "lib.so").write_bytes(key.encode() * 100 * 1024)
            return {"what": f"kernel {key}"}

        entry = cache().find_or_build(key * 40, build)
        os.utime(entry.folder, (1_600_000_000 + i * 86400,) * 2)
    return cache()


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch_mojo", *args],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )


def table(text: str) -> dict[str, str]:
    """Read the two columns of `info`."""
    rows = (line.partition("  ") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in rows}


# info


def test_info(
    three: Cache, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_MOJO_CACHE_SIZE", "7")
    monkeypatch.setenv("TORCH_MOJO_FLAGS", "-O1 -g0")
    monkeypatch.delenv("TORCH_MOJO_DEBUG", raising=False)
    monkeypatch.delenv("TORCH_MOJO_FALLBACK", raising=False)
    assert cli.main(["info"]) == 0
    found = table(capsys.readouterr().out)
    assert found["torch_mojo"].startswith(
        f"{torch_mojo.__version__}, for Mojo {toolchain.MOJO_VERSION}"
    )
    assert found["torch"] == torch.__version__
    assert found["max"] == importlib.metadata.version("max")
    assert found["mojo-compiler"] == importlib.metadata.version("mojo-compiler")
    assert found["compiler"] == str(toolchain.toolchain().mojo)
    assert found["compiler version"].startswith(f"Mojo {toolchain.MOJO_VERSION}")
    assert found["CPU target"].startswith(toolchain.host())
    assert found["kernel cache"] == str(three.root)
    assert found["kernels in it"].startswith("3, 0.3 MiB")
    assert found['backend "max"'] == "torch_mojo.compiler.backend:max_backend"
    assert found["TORCH_MOJO_CACHE_SIZE"] == "7.0 MiB"
    assert found["TORCH_MOJO_CACHE_DIR"] == str(three.root)
    assert found["TORCH_MOJO_FLAGS"] == "-O1 -g0"
    assert found["TORCH_MOJO_DEBUG"] == "off"
    assert found["TORCH_MOJO_FALLBACK"] == "eager"


def test_info_names_every_variable_of_config() -> None:
    for name, reader in machine_report.variables().items():
        assert name in (reader.__doc__ or ""), f"{reader.__name__} documents another variable"
    assert len(machine_report.variables()) <= 8


@pytest.fixture
def fresh_toolchain() -> Iterator[None]:
    toolchain.toolchain.cache_clear()
    yield
    toolchain.toolchain.cache_clear()


@pytest.mark.usefixtures("folder", "fresh_toolchain")
def test_info_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", nothing)
    assert cli.main(["info"]) == 0
    found = table(capsys.readouterr().out)
    assert found["mojo-compiler"] == "not installed"
    assert "not installed" in found["compiler"]
    assert f"pip install 'mojo-compiler=={toolchain.MOJO_VERSION}.*'" in found["compiler"]
    assert "compiler version" not in found


@pytest.mark.usefixtures("folder", "fresh_toolchain")
def test_info_with_wrong_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_MOJO_COMPILER", "/nowhere/mojo")
    monkeypatch.setenv("TORCH_MOJO_CACHE_SIZE", "big")
    assert cli.main(["info"]) == 0
    found = table(capsys.readouterr().out)
    assert found["compiler"].startswith("There is no compiler at /nowhere/mojo.")
    assert found["TORCH_MOJO_CACHE_SIZE"] == "TORCH_MOJO_CACHE_SIZE='big' is not a number of MiB."


# ops


def test_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ops"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("mojo_demo::sharpen(Tensor x, float amount=1.0) -> Tensor")
    assert lines[at + 1].strip().startswith("Return x + amount * (x - blur(x))")
    assert lines[at + 2].strip() == str(toolchain.kernels() / "demo.mojo")


def test_ops_of_one_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ops", "mojo_demo::histogram"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mojo_demo::histogram(Tensor x, SymInt bins=64) -> Tensor"
    assert any("x: InputTensor[dtype=DType.float32, rank=2, ...]" in line for line in lines)
    file = toolchain.kernels() / "demo.mojo"
    text = file.read_text().splitlines()
    kernel = next(line for line in lines if line.startswith("  kernel  Histogram[bins: Int], "))
    place, number = kernel.split(", ")[1].rsplit(":", 1)
    assert place == str(file)
    assert "execute" in text[int(number) - 1]


def test_ops_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OPS.replace("{namespace}", "cli_file"))
    done = run("ops", str(file))
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first == "cli_file::copy_it(Tensor x) -> Tensor"
    assert second == "    Copy a float32 vector."
    assert third.strip().startswith(str(file))


def test_ops_of_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cli_module.py").write_text(OPS.replace("{namespace}", "cli_module"))
    monkeypatch.syspath_prepend(str(tmp_path))
    for _ in range(2):  # the second time it is imported already
        assert cli.main(["ops", "cli_module"]) == 0
        assert capsys.readouterr().out.startswith("cli_module::copy_it(Tensor x) -> Tensor\n")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("no_such_module", "There is no module no_such_module."),
        ("./no_such_file.py", "There is no file ./no_such_file.py."),
        ("mojo_demo::nothing", "There is no operator mojo_demo::nothing; there are "),
        ("json", "json declares no operator."),
    ],
)
def test_ops_of_nothing(what: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ops", what]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"torch_mojo: {message}")
    assert shown.err.count("\n") == 1


def test_ops_of_a_broken_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cli_broken.py").write_text("import no_such_package\n")
    assert cli.main(["ops", str(tmp_path / "cli_broken.py")]) == 1
    assert (
        "cli_broken.py cannot be imported: No module named 'no_such_package'"
        in capsys.readouterr().err
    )
    (tmp_path / "cli_broken.py").write_text("1 / 0\n")
    assert cli.main(["ops", str(tmp_path / "cli_broken.py")]) == 1
    assert "cli_broken.py cannot be imported: ZeroDivisionError" in capsys.readouterr().err


# cache


def test_cache_list(three: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == f"{three.root}: 3 kernels, 0.3 MiB"
    assert [row.split("  ")[0] for row in rows] == ["c" * 12, "b" * 12, "a" * 12]
    day = time.strftime("%Y-%m-%d", time.localtime(1_600_000_000))
    assert rows[2].split()[1:4] == ["0.1", "MiB", day]
    assert rows[2].endswith("kernel a")


def test_cache_path(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache", "path"]) == 0
    assert capsys.readouterr().out == f"{folder}\n"


def test_cache_prune(three: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache", "prune", "--size", "0.15"]) == 0
    assert capsys.readouterr().out.startswith(
        "Removed 2 kernels; 1 are left, 0.1 MiB of at most 0.1"
    )
    assert [e.key for e in three.entries()] == ["c" * 40]


def test_cache_prune_obeys_the_variable(three: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(["cache", "prune"]) == 0
    assert len(three.entries()) == 3
    monkeypatch.setenv("TORCH_MOJO_CACHE_SIZE", "0.25")
    assert cli.main(["cache", "prune"]) == 0
    assert [e.key for e in three.entries()] == ["b" * 40, "c" * 40]


def test_cache_clear(three: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"Removed 3 kernels from {three.root}.\n"
    assert three.entries() == []


def test_cache_size_of_no_number(
    three: Cache, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_MOJO_CACHE_SIZE", "big")
    assert cli.main(["cache", "prune"]) == 1
    assert (
        capsys.readouterr().err
        == "torch_mojo: TORCH_MOJO_CACHE_SIZE='big' is not a number of MiB.\n"
    )
    assert len(three.entries()) == 3


# the command line itself


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["cache", "prune", "--size", "-1"], "-1 is not a size in MiB"),
        (
            ["demo", "--backends", "eager,triton"],
            "'eager,triton' is not a list of eager, inductor, max",
        ),
    ],
)
def test_wrong_arguments(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(args)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_user_errors_have_no_traceback() -> None:
    done = run("ops", "no_such_module")
    assert done.returncode == 1
    assert done.stderr.startswith("torch_mojo: There is no module no_such_module.")
    assert "Traceback" not in done.stderr
