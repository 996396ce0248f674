"""Every environment variable that torch_mojo reads. Read at each use, so that a test may change one."""

import os
from pathlib import Path

PREFIX = "TORCH_MOJO_"


def _get(name: str, default: str = "") -> str:
    return os.environ.get(PREFIX + name, default)


def cache_dir() -> Path | None:
    """Return TORCH_MOJO_CACHE_DIR: the folder of the kernel cache, or None for the user's cache folder."""
    value = _get("CACHE_DIR")
    return Path(value).expanduser() if value else None


def cache_size() -> int:
    """Return TORCH_MOJO_CACHE_SIZE in bytes (the variable is in MiB; 1024 by default)."""
    value = _get("CACHE_SIZE", "1024")
    try:
        return int(float(value) * 2**20)
    except ValueError as e:
        raise ValueError(f"TORCH_MOJO_CACHE_SIZE={value!r} is not a number of MiB.") from e


def debug() -> bool:
    """Return TORCH_MOJO_DEBUG: keep, print and check what is generated and compiled."""
    return _get("DEBUG", "0") not in ("", "0")


def quiet() -> bool:
    """Return TORCH_MOJO_QUIET: show no progress on standard error."""
    return _get("QUIET", "0") not in ("", "0")


def compiler() -> str | None:
    """Return TORCH_MOJO_COMPILER: the `mojo` binary to use instead of the installed package's."""
    return _get("COMPILER") or None


def flags() -> list[str]:
    """Return TORCH_MOJO_FLAGS: more flags for `mojo build`, separated by spaces."""
    return _get("FLAGS").split()


def fallback() -> str:
    """Return TORCH_MOJO_FALLBACK: `eager` (default) or `error`, for what a backend cannot run."""
    value = _get("FALLBACK", "eager")
    if value not in ("eager", "error"):
        raise ValueError(f"TORCH_MOJO_FALLBACK={value!r}; it takes 'eager' or 'error'.")
    return value


def build() -> str:
    """Return TORCH_MOJO_BUILD: `now` (default), or `never` to use only what the cache has."""
    value = _get("BUILD", "now")
    if value not in ("now", "never"):
        raise ValueError(f"TORCH_MOJO_BUILD={value!r}; it takes 'now' or 'never'.")
    return value
