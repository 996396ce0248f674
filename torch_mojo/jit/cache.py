"""The folder of built libraries: atomic, shared by processes, bounded, never trusted blindly."""

import functools
import hashlib
import json
import os
import shutil
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_mojo import config
from torch_mojo.errors import CacheError

FORMAT = "v1"
FOLDERS = ("packages", "debug")  # what else is pruned: a folder each
RECENT_SECONDS = 3600  # a package or report used since then may be in use
STALE_SECONDS = 24 * 3600  # a half-made folder older than this belongs to a dead process


def default_folder() -> Path | None:
    """Return the user's cache folder for torch_mojo, or None if the user has no home."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base) / "torch_mojo"
    try:
        return Path.home() / ".cache" / "torch_mojo"
    except RuntimeError:
        return None


def _usable(folder: Path) -> bool:
    """Make `folder` for this user alone; tell whether it can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _private_folder() -> Path:
    """Return a folder in the system's temporary folder that belongs to this user alone."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"torch_mojo-{user}"
    if _usable(folder):
        status = folder.lstat()
        if status.st_uid == user and not status.st_mode & 0o022:
            return folder
    return Path(tempfile.mkdtemp(prefix="torch_mojo-"))


@dataclass(frozen=True)
class Entry:
    """One built library and what is known of it."""

    key: str
    folder: Path
    info: dict[str, Any]

    @property
    def library(self) -> Path:
        return self.folder / "lib.so"

    @property
    def size(self) -> int:
        return folder_size(self.folder)


class Cache:
    """Built libraries by key.

    `root` is where new ones go; `readable` is one more folder that is only read, when the wished one cannot
    be written.
    """

    def __init__(self, root: Path, readable: Path | None = None) -> None:
        self.root = root
        self.readable = readable

    def _folder(self, root: Path, key: str) -> Path:
        return root / FORMAT / key[:2] / key

    def find(self, key: str) -> Entry | None:
        """Return the whole, undamaged entry of this key, or None."""
        for root in (self.root, self.readable):
            if root is None:
                continue
            entry = _read(self._folder(root, key))
            if entry is not None:
                try:
                    os.utime(entry.folder)  # the least recently used is pruned first
                except OSError:
                    pass  # another user's, or read-only
                return entry
        return None

    def find_or_build(self, key: str, build: Callable[[Path], dict[str, Any]]) -> Entry:
        """Return the entry of this key, built at most once over all processes.

        `build` gets an empty folder, leaves `lib.so` in it and returns what shall be known of it. If it
        raises, nothing is kept.
        """
        entry = self.find(key)
        if entry is not None:
            return entry
        with self.lock(key):
            entry = self.find(key)
            if entry is not None:
                return entry
            work = self.root / "tmp" / uuid.uuid4().hex
            try:
                work.mkdir(parents=True, mode=0o700)
                info = build(work)
                info["sha256"] = _digest(work / "lib.so")
                info["created"] = time.time()
                (work / "info.json").write_text(json.dumps(info, indent=1))
                final = self._folder(self.root, key)
                final.parent.mkdir(parents=True, exist_ok=True)
                if final.exists():  # damaged, or find() would have returned it
                    final.rename(work.with_suffix(".damaged"))
                work.rename(final)
            except OSError as e:
                raise CacheError(
                    f"The kernel cache {self.root} cannot be written: {e}.\n"
                    f"Set TORCH_MOJO_CACHE_DIR to another folder."
                ) from e
            finally:
                shutil.rmtree(work, ignore_errors=True)
                shutil.rmtree(work.with_suffix(".damaged"), ignore_errors=True)
        self.prune(keep=key)
        entry = self.find(key)
        assert entry is not None, f"{key} vanished from {self.root}"
        return entry

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Keep other processes and threads from making the same thing."""
        from filelock import FileLock

        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(folder / f"{key}.lock", thread_local=False):
            yield

    def entries(self) -> list[Entry]:
        """Return all whole entries, the least recently used first."""
        found = [_read(f, check=False) for f in (self.root / FORMAT).glob("*/*")]
        return sorted((e for e in found if e is not None), key=lambda e: e.folder.stat().st_mtime)

    def others(self) -> list[Path]:
        """Return the folders of packages and debugging reports, the least recently used first."""
        found = []
        for part in FOLDERS:
            for folder in (self.root / part).glob("*"):
                try:
                    found.append((folder.stat().st_mtime, folder))
                except OSError:
                    pass  # another process has just removed it
        return [folder for _, folder in sorted(found)]

    @property
    def size(self) -> int:
        """The bytes of all that is pruned."""
        folders = [*(e.folder for e in self.entries()), *self.others()]
        return sum(map(folder_size, folders))

    def prune(self, keep: str | None = None, limit: int | None = None) -> list[Path]:
        """Remove the least recently used kernels, packages and reports until the rest fits.

        Args:
            keep: the key of a kernel that stays.
            limit: how many bytes fit. By default TORCH_MOJO_CACHE_SIZE; packages and reports that were used in the
                last hour stay then.

        Returns:
            the folders that were removed.
        """
        now = time.time()
        items, total = [], 0
        for folder in [*(e.folder for e in self.entries()), *self.others()]:
            try:
                used = folder.stat().st_mtime
            except OSError:
                continue  # another process has just removed it
            total += folder_size(folder)
            recent = folder.parent.name in FOLDERS and now - used < RECENT_SECONDS
            if folder.name != keep and (limit is not None or not recent):
                items.append((used, folder))
        limit = config.cache_size() if limit is None else limit
        removed = []
        for _, folder in sorted(items):
            if total <= limit:
                break
            total -= folder_size(folder)
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
        for leftover in (self.root / "tmp").glob("*"):
            try:
                if now - leftover.stat().st_mtime > STALE_SECONDS:
                    shutil.rmtree(leftover, ignore_errors=True)
            except OSError:
                pass  # its owner has just renamed it
        return removed

    def clear(self) -> int:
        """Remove everything, the compiler's own cache too; return the number of entries."""
        count = len(self.entries())
        for part in (FORMAT, "tmp", "mojo", "sources", "packages", "debug"):
            shutil.rmtree(self.root / part, ignore_errors=True)
        return count


def folder_size(folder: Path) -> int:
    """Return the bytes of all files below a folder, as far as they are still there."""
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_size if path.is_file() else 0
        except OSError:
            pass  # removed meanwhile
    return size


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read(folder: Path, check: bool = True) -> Entry | None:
    try:
        info = json.loads((folder / "info.json").read_text())
        if check and _digest(folder / "lib.so") != info["sha256"]:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Entry(folder.name, folder, info)


@functools.cache
def _cache(wished: Path | None) -> Cache:
    if wished is not None and _usable(wished):
        return Cache(wished)
    folder = _private_folder()
    if wished is not None:
        warnings.warn(
            f"torch_mojo cannot write its kernel cache in {wished} and uses {folder}.\n"
            f"Set TORCH_MOJO_CACHE_DIR to a folder of yours to keep what is built.",
            stacklevel=3,
        )
    return Cache(folder, readable=wished)


def cache() -> Cache:
    """Return the cache: TORCH_MOJO_CACHE_DIR, else the user's, else a private temporary one."""
    return _cache(config.cache_dir() or default_folder())
