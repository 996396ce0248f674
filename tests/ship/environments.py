"""Environments with torch and nothing of torch_mojo, made of links to what is installed here."""

import importlib.metadata
import os
import re
import subprocess
import sys
import venv
from pathlib import Path


def closure(*names: str) -> set[str]:
    """Return the distributions that these need, as far as they are installed."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            needed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
        waiting += [re.split(r"[ ;<>=!~\[(]", n)[0] for n in needed if "extra ==" not in n]
    return found


def make(folder: Path, *names: str) -> Path:
    """Make an environment with these distributions and what they need; return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    target = folder / "lib" / version / "site-packages"
    for name in closure(*names):
        distribution = importlib.metadata.distribution(name)
        for top in {Path(str(f)).parts[0] for f in distribution.files or ()} - {
            "..",
            "__pycache__",
        }:
            source = Path(str(distribution.locate_file(top)))
            if source.exists() and not (target / top).exists():
                (target / top).symlink_to(source)
    return folder / "bin" / "python"


def clean() -> dict[str, str]:
    """Return the environment variables without those of this project or of the running Python."""
    own = ("TORCH_MOJO", "MODULAR", "PYTHON", "MOJO", "LD_LIBRARY_PATH")
    return {k: v for k, v in os.environ.items() if not k.startswith(own)}


def run(python: Path, *args: str, cwd: Path | None = None, check: bool = True) -> str:
    """Run an environment's Python; return what it prints."""
    done = subprocess.run(
        [str(python), *args], env=clean(), cwd=cwd, capture_output=True, text=True, check=False
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def install(python: Path, wheel: Path) -> None:
    """Install a wheel and nothing else."""
    run(
        Path(sys.executable),
        *("-m", "pip", "-q", "--python", str(python), "install", "--no-deps", "--no-index"),
        str(wheel),
    )
