"""The cache: keys, damage, killed builds, many processes, odd folders."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from torch_mojo.dispatch.router import router
from torch_mojo.jit import sources
from torch_mojo.jit.build import Job
from torch_mojo.jit.cache import Cache, cache

PROGRAM = """
import sys, torch, torch_mojo
SOURCE = '''
import extensibility
from extensibility import InputTensor, OutputTensor

@extensibility.register("plus")
struct Plus:
    @staticmethod
    def execute(
        output: OutputTensor[dtype=DType.float32, rank=1, ...],
        x: InputTensor[dtype=DType.float32, rank=1, ...],
    ) raises:
        for i in range(x.dim_size(0)):
            output[i] = x[i] + 1
'''
@torch_mojo.mojo_op("tm_cache::plus", source=SOURCE)
def plus(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)
print(plus(torch.tensor([1.0, 2.0])).tolist())
"""
RIGHT = "[2.0, 3.0]"


def start(folder: Path | str, **changes: str | None) -> subprocess.Popen[str]:
    environment = {**os.environ, "TORCH_MOJO_CACHE_DIR": str(folder), "TORCH_MOJO_QUIET": "1"}
    for name, value in changes.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    return subprocess.Popen(
        [sys.executable, "-W", "always", "-c", textwrap.dedent(PROGRAM)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and out.strip() == RIGHT, out + err
    return err


@pytest.fixture
def seeded(tmp_path: Path) -> Path:
    """A cache that holds the router and the compiler's own cache, as after any first use."""
    import shutil

    router()
    folder = tmp_path / "cache"
    for entry in cache().entries():
        if entry.info["what"] == "the router":
            shutil.copytree(entry.folder, folder / entry.folder.relative_to(cache().root))
    return folder


def built(folder: Path) -> list[Path]:
    """Return the entries that are not the router's."""
    found = Cache(folder).entries()
    return [e.folder for e in found if e.info["what"] != "the router"]


def test_a_killed_build_costs_one_rebuild(seeded: Path) -> None:
    process = start(seeded)
    deadline = time.monotonic() + 120
    while not list((seeded / "tmp").glob("*/main.mojo")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    time.sleep(0.3)  # the compiler is at work
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not built(seeded)
    # two processes at once find the lock free, and build once
    both = [start(seeded), start(seeded)]
    for process in both:
        finish(process)
    (entry,) = built(seeded)
    # half a file is a missing one
    library = entry / "lib.so"
    whole = library.read_bytes()
    library.write_bytes(whole[: len(whole) // 2])
    finish(start(seeded))
    assert library.stat().st_size == len(whole)
    # a process that comes later builds nothing
    written = library.stat().st_mtime_ns
    finish(start(seeded))
    assert library.stat().st_mtime_ns == written and len(built(seeded)) == 1


def test_a_path_with_a_space_and_an_umlaut(seeded: Path) -> None:
    folder = seeded.with_name("ein Döschen")
    seeded.rename(folder)
    finish(start(folder))
    assert len(built(folder)) == 1


def test_a_folder_that_cannot_be_made(seeded: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    private = tmp_path / "private"
    private.mkdir()
    seeded.rename(private / f"torch_mojo-{os.getuid()}")
    (private / f"torch_mojo-{os.getuid()}").chmod(0o700)
    wished = tmp_path / "file" / "cache"
    message = finish(start(wished, TMPDIR=str(private)))
    assert str(wished) in message and "TORCH_MOJO_CACHE_DIR" in message
    assert built(private / f"torch_mojo-{os.getuid()}")


def test_without_a_home(seeded: Path) -> None:
    finish(start(seeded, HOME=None, XDG_CACHE_HOME=None))
    assert built(seeded)


def test_others_may_not_read_the_private_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_mojo.jit import cache as module

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(module.tempfile, "tempdir", None)
    folder = tmp_path / f"torch_mojo-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)  # anybody could have put files there
    assert module._private_folder() != folder
    folder.chmod(0o700)
    assert module._private_folder() == folder


def test_the_size_is_bounded(tmp_path: Path) -> None:
    store = Cache(tmp_path)

    def make(folder: Path) -> dict[str, object]:
        (folder / "lib.so").write_bytes(b"x" * 1000)
        return {"what": "a test"}

    for i in range(6):
        entry = store.find_or_build(f"{i:040d}", make)
        os.utime(entry.folder, (i, i))
    removed = store.prune(limit=3 * entry.size + 100)  # the recorded times differ in length
    assert [p.name for p in removed] == [f"{i:040d}" for i in range(3)], "the oldest go first"
    assert len(store.entries()) == 3


def test_packages_and_reports_count_too(tmp_path: Path) -> None:
    store = Cache(tmp_path)

    def make(folder: Path) -> dict[str, object]:
        (folder / "lib.so").write_bytes(b"x" * 1000)
        return {"what": "a test"}

    entry = store.find_or_build("a" * 40, make)
    folders = [tmp_path / n for n in ("packages/old", "packages/new", "debug/old/graph_0")]
    for i, folder in enumerate(folders):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"x" * 1000)
        os.utime(folder, (i, i))
    os.utime(tmp_path / "debug" / "old", (50, 50))
    os.utime(entry.folder, (100, 100))
    now = time.time()
    os.utime(tmp_path / "packages" / "new", (now, now))
    assert store.size == entry.size + 3000
    removed = store.prune(limit=entry.size + 1000)
    assert [str(p.relative_to(tmp_path)) for p in removed] == ["packages/old", "debug/old"]
    assert store.size == entry.size + 1000
    assert store.find("a" * 40) is not None


def test_what_was_just_used_stays_when_the_cache_prunes_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_MOJO_CACHE_SIZE", "0")
    store = Cache(tmp_path)
    for name in ("old", "new"):
        (tmp_path / "packages" / name).mkdir(parents=True)
        (tmp_path / "packages" / name / "file").write_bytes(b"x")
    os.utime(tmp_path / "packages" / "old", (1, 1))
    assert [p.name for p in store.prune()] == ["old"]
    assert [p.name for p in store.prune(limit=0)] == ["new"]


def test_a_failed_build_is_not_remembered(tmp_path: Path) -> None:
    store = Cache(tmp_path)

    def fail(folder: Path) -> dict[str, object]:
        raise ValueError("no")

    def make(folder: Path) -> dict[str, object]:
        (folder / "lib.so").write_bytes(b"x")
        return {"what": "a test"}

    with pytest.raises(ValueError, match="no"):
        store.find_or_build("0" * 40, fail)
    assert store.find_or_build("0" * 40, make).library.read_bytes() == b"x"
    assert not list((tmp_path / "tmp").iterdir())


def test_the_key_covers_what_can_change_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    other = tmp_path / "other"
    package.mkdir()
    other.mkdir()
    (package / "__init__.mojo").write_text("")
    (package / "kernel.mojo").write_text("from .inner import f\nfrom outer import g\n")
    (package / "inner.mojo").write_text("def f(): pass\n")
    (other / "outer.mojo").write_text("import deep\n")
    (other / "deep.mojo").write_text("def g(): pass\n")
    (other / "unused.mojo").write_text("def h(): pass\n")

    def key(text: str = "text", accelerator: str | None = None) -> str:
        source = sources.from_path(package, [other])
        return Job("a test", text, source, accelerator=accelerator).key

    seen = [key()]
    assert key() == seen[0]
    (other / "unused.mojo").write_text("def h(): return\n")
    assert key() == seen[0]
    for file in (
        "package/kernel.mojo",
        "package/inner.mojo",
        "other/outer.mojo",
        "other/deep.mojo",
    ):
        path = tmp_path / file
        path.write_text(path.read_text() + "# changed\n")
        seen.append(key())
    seen.append(key("another text"))
    seen.append(key(accelerator="sm_90"))
    monkeypatch.setenv("TORCH_MOJO_FLAGS", "-O1")
    seen.append(key())
    assert len(set(seen)) == len(seen)


def test_the_library_holds_no_path_of_its_environment() -> None:
    data = Path(router()._library._name).read_bytes()
    assert str(Path(torch.__file__).parent.parent).encode() not in data
    assert str(cache().root).encode() not in data
