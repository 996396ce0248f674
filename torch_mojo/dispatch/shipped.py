"""Libraries that were built ahead of time: found, checked, opened."""

import ctypes
import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

import torch

from torch_mojo.errors import MojoError, ToolchainError
from torch_mojo.jit import manifest
from torch_mojo.jit.manifest import CPU_LEVELS, HOST_OF_GPU_CODE

BUNDLED = "runtime"  # the folder with Mojo's runtime, in the folder of the loader
_FLAGS = {  # of /proc/cpuinfo, by the level that needs them
    2: ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"),
    3: ("abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"),
    4: ("avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"),
}


def missing_flags(level: int) -> list[str]:
    """Return the instruction sets of an x86-64 level that this CPU lacks."""
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    match = re.search(r"^flags\s*:(.*)$", text, re.M)
    have = set(match[1].split()) if match else set()
    return [f for n, flags in _FLAGS.items() if n <= level for f in flags if f not in have]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text.split("+")[0])[:2])


def check(path: Path, about: dict[str, Any]) -> None:
    """Refuse a library that this process cannot use, before any of its code runs.

    Raises:
        MojoError: naming what the library needs, and what is here.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise MojoError(
            f"{path.name} was built for Linux x86-64; this is {sys.platform} on {platform.machine()}.\n"
            "Install torch_mojo and its compiler, or a wheel for this machine."
        )
    if _version(torch.__version__) < _version(about["torch"]):
        raise MojoError(
            f"{path.name} needs torch {about['torch']} or newer; torch {torch.__version__} is installed.\n"
            f"Install it: pip install 'torch>={about['torch']}'"
        )
    cpus = [t for t in about["targets"] if t in CPU_LEVELS] or [HOST_OF_GPU_CODE]
    least = min(cpus, key=CPU_LEVELS.index)
    missing = missing_flags(CPU_LEVELS.index(least))
    if missing:
        raise MojoError(
            f"{path.name} was built for {' and '.join(cpus)}; this CPU lacks {', '.join(missing)}, "
            f"which {least} has.\nInstall a wheel that was built for this CPU, or build one: "
            "targets=['x86-64-v2']."
        )


def _installed() -> tuple[str, Path] | None:
    """Return version and folder of the installed Mojo runtime."""
    try:
        found = importlib.metadata.distribution("mojo-compiler")
    except importlib.metadata.PackageNotFoundError:
        return None
    return found.version, Path(str(found.locate_file("modular"))) / "lib"


def _loaded(name: str) -> Path | None:
    """Return the file of a library that this process has open."""
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        if line.endswith(f"/{name}"):
            return Path(line[line.index("/") :])
    return None


def _runtime_version(file: Path) -> str:
    """Return the version of the runtime to which a file belongs."""
    noted = file.parent / "version.txt"
    if noted.exists():
        return noted.read_text().strip()
    found = _installed()
    return found[0] if found and file.parent.resolve() == found[1].resolve() else "unknown"


def load_runtime(path: Path, runtime: dict[str, Any], loader: Path) -> None:
    """Open Mojo's runtime for a library: the one in use, the one bundled beside `loader`, or the installed one.

    Raises:
        MojoError: if its version is not the one for which the library was built.
    """
    wanted, names = runtime["version"], runtime["libraries"]
    used = _loaded(names[-1])
    bundled = loader / BUNDLED
    installed = _installed()
    if used is not None:
        have, folder, where = _runtime_version(used), used.parent, f"is in use ({used.parent})"
    elif (bundled / names[0]).exists():
        have, folder, where = _runtime_version(bundled / names[0]), bundled, f"is in {bundled}"
    elif installed is not None:
        (have, folder), where = installed, f"is installed ({installed[1]})"
    else:
        raise ToolchainError(
            f"{path.name} needs the Mojo runtime {wanted}, and none is installed.\n"
            f"Install it: pip install 'mojo-compiler=={wanted}'; or build the wheel with bundle_runtime=True."
        )
    if _version(have) != _version(wanted):
        raise ToolchainError(
            f"{path.name} was built for the Mojo runtime {wanted}; {have} {where}.\n"
            f"Install the other one, pip install 'mojo-compiler=={wanted}', or build the wheel again."
        )
    if used is None:
        for name in names:
            ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)


@functools.cache
def open_library(path: Path, loader: Path | None = None) -> ctypes.CDLL:
    """Open a library that was built ahead of time, without letting it register its operators.

    Raises:
        MojoError: if this process cannot use it; then none of its code has run.
    """
    about = manifest.read(path)
    check(path, about)
    if about["runtime"]:
        load_runtime(path, about["runtime"], loader or path.parent)
    os.environ["TORCH_MOJO_HOLD"] = path.name
    try:
        opened = ctypes.CDLL(str(path))
    except OSError as e:
        raise MojoError(
            f"{path} does not load: {e}.\nInstall its wheel again, or another torch."
        ) from e
    finally:
        del os.environ["TORCH_MOJO_HOLD"]
    for name in ("tm_state", "tm_implement", "tm_cpu_level"):
        getattr(opened, name).restype = ctypes.c_int64
    return opened


def entry_of(about: dict[str, Any], qualname: str) -> tuple[int, dict[str, Any]] | None:
    """Return an operator's number in a library, and what the manifest says of it."""
    for i, entry in enumerate(about["operators"]):
        if entry["name"] == qualname:
            return i, entry
    return None


def built_text(operator: dict[str, Any]) -> str:
    """Return for people what of an operator was built, a target a line."""
    targets: dict[str, list[str]] = {}
    for one in operator["built"]:
        targets.setdefault(one["target"], []).append(one["what"] or "any call")
    return "\n".join(f"  {t}: {'; '.join(dict.fromkeys(w))}" for t, w in targets.items())


# What torch_mojo itself finds built when a specialization is asked for: libraries by the digest of the kernel.
_known: dict[str, list[tuple[Path, dict[str, Any]]]] = {}


def digest_of(text: str, fingerprint: str) -> str:
    """Return what tells specializations apart: their text and the source that it calls."""
    return hashlib.sha256(f"{text}\0{fingerprint}".encode()).hexdigest()[:24]


@functools.cache
def add(path: Path) -> None:
    """Let `find` look into a library."""
    for operator in manifest.read(path)["operators"]:
        for one in operator["built"]:
            _known.setdefault(one["digest"], []).append((path, one))


@functools.cache
def add_folder(folder: Path) -> None:
    """Let `find` look into the libraries in a folder, as far as they can be read."""
    for path in sorted(folder.glob(f"*{manifest.SUFFIX}")):
        try:
            add(path)
        except MojoError:
            continue  # of another version, or damaged: what is called is built


def any_known() -> bool:
    """Tell whether there is any library to look into."""
    return bool(_known)


def find(
    text: str, fingerprint: str, accelerator: str | None, older: bool = False
) -> tuple[Path, int, bool] | None:
    """Return a function that was built for this text, for the best target that runs here.

    Args:
        text: the specialization's Mojo text.
        fingerprint: of the source that it calls.
        accelerator: the GPU's architecture, or None for the CPU.
        older: whether code for an older GPU will do.

    Returns:
        the library, the function's address, and whether its calls must be ordered by events.
    """
    candidates = _known.get(digest_of(text, fingerprint), [])
    for path, one in sorted(candidates, key=lambda c: _rank(c[1]["target"]), reverse=True):
        try:
            opened = open_library(path)
        except MojoError:
            continue  # what cannot be used here is built here
        target = one["target"]
        if accelerator is not None:
            fits = target == accelerator or (older and _is_older(target, accelerator))
        else:
            fits = target in CPU_LEVELS and CPU_LEVELS.index(target) <= opened.tm_cpu_level()
        if fits:
            function = ctypes.cast(getattr(opened, one["function"]), ctypes.c_void_p)
            return path, function.value or 0, one["fenced"]
    return None


def _rank(target: str) -> tuple[int, str]:
    """Return what puts targets of one kind in order: `sm_100` is above `sm_90a`, that above `sm_90`."""
    if target in CPU_LEVELS:
        return CPU_LEVELS.index(target), target
    match = re.search(r"\d+", target)
    return (int(match[0]) if match else 0), target


def _is_older(target: str, accelerator: str) -> bool:
    """Tell whether code for a GPU runs on a later one; that for `sm_90a` runs on no other."""
    both = [re.fullmatch(r"sm_(\d+)", name) for name in (target, accelerator)]
    return all(both) and _rank(target) < _rank(accelerator)


def built_of(qualname: str) -> str:
    """Return for people what of an operator was built into the libraries that are known."""
    paths = dict.fromkeys(path for found in _known.values() for path, _ in found)
    entries = [e for p in paths if (e := entry_of(manifest.read(p), qualname)) is not None]
    return "\n".join(built_text(e[1]) for e in entries)
