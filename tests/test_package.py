"""Mojo packages as MAX's graphs load them."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from torch_mojo.errors import MojoCompileError
from torch_mojo.jit import package
from torch_mojo.jit.cache import Cache
from torch_mojo.jit.package import precompiled


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the compiler's runs."""
    seen = []
    real = subprocess.run

    def run(command: Any, **kwargs: Any) -> Any:
        if "precompile" in command:
            seen.append(command)
        return real(command, **kwargs)

    monkeypatch.setattr(package.subprocess, "run", run)
    return seen


def test_one_content_is_compiled_once(tmp_path: Path, runs: list[Any]) -> None:
    folder = tmp_path / "some_kernels"
    folder.mkdir()
    (folder / "__init__.mojo").write_text("from .more import two\n")
    (folder / "more.mojo").write_text("def two() -> Int:\n    return 2\n")
    cache = Cache(tmp_path / "cache")
    first = precompiled(folder, cache)
    assert first.suffix == ".mojoc" and first.stat().st_size and len(runs) == 1
    assert precompiled(folder, cache) == first and len(runs) == 1
    copied = tmp_path / "elsewhere" / "some_kernels"
    folder.rename(copied.parent.mkdir() or copied)
    assert precompiled(copied, cache) == first and len(runs) == 1
    (copied / "more.mojo").write_text("def two() -> Int:\n    return 3\n")
    assert precompiled(copied, cache) not in (first, None) and len(runs) == 2
    cache.clear()
    assert not first.exists()


def test_a_mistake_is_told_and_not_kept(tmp_path: Path, runs: list[Any]) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "__init__.mojo").write_text("def two() -> Int:\n    return nothing_of_this_name\n")
    cache = Cache(tmp_path / "cache")
    for _ in range(2):
        with pytest.raises(MojoCompileError, match="nothing_of_this_name"):
            precompiled(folder, cache)
    assert len(runs) == 2
    assert not [p for p in (tmp_path / "cache" / "tmp").glob("*")]


def test_a_compiled_package_is_kept_by_content(tmp_path: Path, runs: list[Any]) -> None:
    file = tmp_path / "ready.mojoc"
    cache = Cache(tmp_path / "cache")
    file.write_bytes(b"one")
    first = precompiled(file, cache)
    file.write_bytes(b"two")
    second = precompiled(file, cache)
    assert (first.read_bytes(), second.read_bytes()) == (b"one", b"two")
    assert first.name == second.name == "ready.mojoc" and not runs
