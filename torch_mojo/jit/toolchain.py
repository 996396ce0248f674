"""Where the compiler, the linker and the runtime libraries are, and which machine they build for."""

import ctypes
import functools
import hashlib
import importlib.metadata
import importlib.resources
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from torch_mojo import config
from torch_mojo.errors import ToolchainError

MOJO_VERSION = "1.2"
MAX_VERSION = "26.7"

# In the order in which they need each other. A kernel that asks for a device context, or raises, uses them.
RUNTIME_LIBRARIES = (
    "KGENCompilerRTShared",
    "MSupportGlobals",
    "AsyncRTRuntimeGlobals",
    "AsyncRTMojoBindings",
)
_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"


@dataclass(frozen=True)
class Toolchain:
    """One installed Mojo compiler."""

    root: Path  # the `modular` folder: bin/, lib/
    mojo: Path
    version: str

    @property
    def lld(self) -> Path:
        return self.root / "bin" / "lld"

    @property
    def runtime(self) -> Path:
        return self.root / "lib"

    def environment(self, cache: Path) -> dict[str, str]:
        """Return the compiler's environment; its own cache goes to `cache`.

        Telemetry and crash reports stay off unless the user's environment turns them on.
        """
        environment = {
            "MODULAR_TELEMETRY_ENABLED": "0",
            "MODULAR_CRASH_REPORTING_ENABLED": "0",
            "MODULAR_CACHE_DIR": str(cache),
            "HOME": str(cache),
        } | dict(os.environ)
        return environment | {
            "MODULAR_MOJO_MAX_PACKAGE_ROOT": str(self.root),
            "MODULAR_MAX_PACKAGE_ROOT": str(self.root),
            "MODULAR_MOJO_MAX_DRIVER_PATH": str(self.mojo),
            "MODULAR_MOJO_MAX_IMPORT_PATH": str(self.root / "lib" / "mojo"),
        }


def distribution() -> importlib.metadata.Distribution:
    """Return the installed compiler's distribution, which has the runtime libraries as well.

    Raises:
        ToolchainError: if it is missing or of another version than torch_mojo was made for.
    """
    try:
        found = importlib.metadata.distribution("mojo-compiler")
    except importlib.metadata.PackageNotFoundError as e:
        raise ToolchainError(
            f"The Mojo compiler is not installed, and this kernel has not been built yet.\n"
            f"Install it: pip install 'mojo-compiler=={MOJO_VERSION}.*'"
        ) from e
    if not found.version.startswith(MOJO_VERSION + "."):
        raise ToolchainError(
            f"mojo-compiler {found.version} is installed; this torch_mojo is made for "
            f"{MOJO_VERSION}.\nInstall it: pip install 'mojo-compiler=={MOJO_VERSION}.*'"
        )
    return found


@functools.cache
def toolchain() -> Toolchain:
    """Return the installed compiler.

    Raises:
        ToolchainError: if it is missing or of another version than torch_mojo was made for.
    """
    root = _root()
    chosen = config.compiler()
    mojo = Path(chosen) if chosen else root / "bin" / "mojo"
    version = distribution().version
    if not mojo.exists():
        raise ToolchainError(
            f"There is no compiler at {mojo}.\n"
            + ("Correct or unset TORCH_MOJO_COMPILER." if chosen else "Reinstall mojo-compiler.")
        )
    if chosen:
        stat = mojo.stat()
        version += f"+{mojo}:{stat.st_size}:{stat.st_mtime_ns}"
    return Toolchain(root, mojo, version)


def _root() -> Path:
    return Path(str(distribution().locate_file("modular")))


def is_available() -> bool:
    """Tell whether kernels can be built here."""
    try:
        toolchain()
    except ToolchainError:
        return False
    return True


@functools.cache
def kernels() -> Path:
    """Return the folder of this package's own Mojo sources."""
    beside = Path(__file__).parents[2] / "kernels"  # a checkout that was not installed
    if (beside / "torch" / "router.mojo").is_file():
        return beside
    return Path(str(importlib.resources.files("torch_mojo"))) / "kernels"


def built_folder() -> Path:
    """Return the folder with what torch_mojo's wheel has built of its own kernels, if it has."""
    return kernels() / "built"


@functools.cache
def load_runtime() -> None:
    """Open the Mojo runtime libraries of this environment, which built kernels refer to by name."""
    folder = _root() / "lib"  # there may be no compiler
    for name in RUNTIME_LIBRARIES:
        path = folder / f"lib{name}{_SUFFIX}"
        try:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as e:
            raise ToolchainError(
                f"The Mojo runtime library {path} does not load: {e}.\nReinstall mojo-compiler."
            ) from e


@functools.cache
def host() -> str:
    """Return a short name that differs whenever code built for the host CPU could differ."""
    text = platform.machine() + platform.processor()
    try:
        info = Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n", 1)[0]
        wanted = ("model name", "flags", "Features", "CPU implementer", "CPU part")
        text += "".join(line for line in info.splitlines() if line.startswith(wanted))
    except OSError:
        pass  # not Linux
    return f"{platform.machine()}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
