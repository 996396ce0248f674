"""What is installed here, and what there is to build with, for people."""

import importlib.metadata
import inspect
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import torch_mojo
from torch_mojo import config
from torch_mojo.errors import MojoError
from torch_mojo.jit import toolchain
from torch_mojo.jit.cache import cache, folder_size

ENTRY_POINT_GROUP = "torch_dynamo_backends"
_MIB = 2**20


def shown_size(count: int) -> str:
    """Return a number of bytes for people."""
    return f"{count / _MIB:.1f} MiB" if count >= 0.05 * _MIB else f"{count / 1024:.1f} KiB"


def variables() -> dict[str, Callable[[], object]]:
    """Return every variable that torch_mojo reads, with the function of config.py that reads it."""
    readers = inspect.getmembers(config, inspect.isfunction)
    return {
        config.PREFIX + name.upper(): reader for name, reader in readers if not name.startswith("_")
    }


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _compiler() -> Iterator[tuple[str, str]]:
    try:
        tool = toolchain.toolchain()
    except MojoError as e:
        yield "compiler", " ".join(str(e).splitlines())
        return
    yield "compiler", str(tool.mojo)
    command = [str(tool.mojo), "--version"]
    try:
        result = subprocess.run(
            command,
            env=tool.environment(cache().root / "mojo"),
            capture_output=True,
            text=True,
            check=False,
        )
        said = result.stdout.strip() or f"{result.stderr.strip()} (exit status {result.returncode})"
    except OSError as e:
        said = f"does not run: {e}"
    yield "compiler version", said


def _processor() -> str:
    name = ""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        name = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "")
    except OSError:
        pass  # not Linux
    name = name or platform.processor() or platform.machine()
    return f"{toolchain.host()}, {name}, {os.cpu_count()} cores"


def _gpus() -> Iterator[tuple[str, str]]:
    if not torch.cuda.is_available():
        yield "GPU target", "none that torch sees"
        return
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        arch = getattr(properties, "gcnArchName", "") if torch.version.hip else ""
        arch = arch or f"sm_{properties.major}{properties.minor}"
        yield f"GPU target {i}", f"{arch}, {properties.name}"


def _cache_rows() -> Iterator[tuple[str, str]]:
    yield "kernel cache", str(cache().root)
    entries = cache().entries()
    yield "kernels in it", f"{len(entries)}, {shown_size(sum(e.size for e in entries))}"
    yield "compiler's own cache", shown_size(folder_size(cache().root / "mojo"))


def _backend() -> str:
    found = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name="max")
    if not found:
        return "not registered; install torch_mojo with pip, its entry points are missing"
    return ", ".join(e.value for e in found)


def _variable(reader: Callable[[], object]) -> str:
    """Return what a variable, or its default, comes to."""
    try:
        value = reader()
    except ValueError as e:
        return str(e)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return shown_size(value)
    return " ".join(value) if isinstance(value, list) else str(value or "")


def rows() -> list[tuple[str, str]]:
    """Return what to print: names and texts."""
    return [
        (
            "torch_mojo",
            f"{torch_mojo.__version__}, for Mojo {toolchain.MOJO_VERSION} and "
            f"MAX {toolchain.MAX_VERSION}",
        ),
        ("Python", f"{platform.python_version()} ({sys.executable})"),
        ("torch", torch.__version__),
        ("max", _version("max")),
        ("mojo-compiler", _version("mojo-compiler")),
        *_compiler(),
        ("CPU target", _processor()),
        *_gpus(),
        *_cache_rows(),
        ('backend "max"', _backend()),
        *((name, _variable(reader)) for name, reader in variables().items()),
    ]
