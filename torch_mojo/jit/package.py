"""A Mojo package as MAX's graphs load it: precompiled once, and kept under the hash of what is in it."""

import hashlib
import os
import shutil
import subprocess
import uuid
from pathlib import Path

from torch_mojo.errors import MojoCompileError
from torch_mojo.jit.cache import Cache
from torch_mojo.jit.toolchain import host, toolchain
from torch_mojo.progress import slow


def precompiled(path: Path, cache: Cache) -> Path:
    """Return the `.mojoc` of a package; its path tells its content.

    Given a folder itself, MAX would compile it anew for each graph, which takes seconds.

    Args:
        path: a folder with an `__init__.mojo`, or a `.mojoc`, which is copied.
        cache: where it is kept.

    Raises:
        MojoCompileError: if the compiler refuses the package.
    """
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256(f"{toolchain().version}\0{host()}".encode())
    for file in files:
        digest.update(f"\0{file.relative_to(path.parent)}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    # The compiler keeps the file's name in it, and one graph may load packages of equal names.
    name = f"{path.stem}_{digest.hexdigest()[:24]}.mojoc" if path.is_dir() else path.name
    final = cache.root / "packages" / digest.hexdigest()[:24] / name
    if final.exists():
        try:
            os.utime(final.parent)  # the least recently used is pruned first
        except OSError:
            pass  # another user's, or read-only
        return final
    with cache.lock(f"package_{digest.hexdigest()[:24]}"):
        if final.exists():
            return final
        work = cache.root / "tmp" / uuid.uuid4().hex
        work.mkdir(parents=True, mode=0o700)
        final.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            if path.is_dir():
                _precompile(path, work / name, cache)
            else:
                shutil.copyfile(path, work / name)
            (work / name).replace(final)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return final


def _precompile(path: Path, output: Path, cache: Cache) -> None:
    tool = toolchain()
    command = [str(tool.mojo), "precompile", str(path), "-o", str(output)]
    environment = tool.environment(cache.root / "mojo")
    with slow(f"compiling the Mojo package {path.name}"):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip()
        raise MojoCompileError(
            f"The Mojo package {path} does not compile.\n{said}\nCorrect it and compile again.",
            said,
        )
