"""Kernel sources: text, a file, a folder, a precompiled package. What they register, import and hash to."""

import ast
import difflib
import functools
import hashlib
import linecache
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_mojo.errors import KernelNotFoundError
from torch_mojo.jit import signature
from torch_mojo.jit.signature import Kernel

MOJO_SUFFIXES = (".mojo", ".🔥")
PRECOMPILED = ".mojoc"
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import|import[ \t]+([.\w, \t]+))", re.M)


@dataclass(frozen=True)
class PythonPlace:
    """Where a kernel's text stands in a Python file.

    Attributes:
        file: the Python file.
        pieces: literals in the text: first line, last line, line in the file.
        whole: whether all of the text is the user's.
    """

    file: str
    pieces: tuple[tuple[int, int, int], ...]
    whole: bool = True

    def has(self, line: int) -> bool:
        """Tell whether this line of the text is the user's."""
        return self.whole or any(first <= line <= last for first, last, _ in self.pieces)

    def describe(self, line: int) -> str:
        for first, last, at in self.pieces:
            if first <= line <= last:
                return f"{self.file}:{at + line - first}"
        return f"line {line} of the source given in {self.file}"


class Source:
    """One source of kernels.

    Attributes:
        folder: what the compiler searches for the module.
        roots: the Mojo files that register kernels, by module name.
        include: further folders that the compiler searches.
        place: for text, where it stands in Python.
        flags: more flags for the compiler.
    """

    def __init__(
        self,
        folder: Path,
        roots: dict[str, Path],
        include: Sequence[Path] = (),
        place: PythonPlace | None = None,
        origin: Path | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.flags = tuple(flags)
        self.roots = roots
        self.include = tuple(include)
        self.place = place
        self.origin = origin or next(iter(roots.values()))

    @property
    def search(self) -> tuple[Path, ...]:
        return (self.folder, *self.include)

    def __str__(self) -> str:
        if self.place is None:
            return str(self.origin)
        return self.place.describe(1) if self.place.pieces else f"the source in {self.place.file}"

    @functools.cached_property
    def precompiled(self) -> bool:
        return self.origin.suffix == PRECOMPILED

    @functools.cached_property
    def kernels(self) -> dict[str, Kernel]:
        """Return the registered kernels by name."""
        if self.precompiled:
            from torch_mojo.jit.precompiled import read_kernels

            return read_kernels(self.origin)
        found: dict[str, Kernel] = {}
        for module, path in self.roots.items():
            for kernel in signature.parse(path.read_text(), module, str(path)):
                found.setdefault(kernel.name, kernel)
        return found

    def kernel(self, name: str) -> Kernel:
        """Return the kernel registered as `name`.

        Raises:
            KernelNotFoundError: naming what is there, the nearest first.
        """
        found = self.kernels.get(name)
        if found is not None:
            return found
        names = sorted(
            self.kernels,
            key=lambda n: -difflib.SequenceMatcher(None, n, name).ratio(),
        )
        have = ", ".join(names[:12]) + (f", and {len(names) - 12} more" if len(names) > 12 else "")
        raise KernelNotFoundError(
            f"{self} registers no kernel {name!r}; it registers {have or 'none at all'}.\n"
            + (f"Did you mean {names[0]!r}? " if names else "")
            + 'A kernel is a struct under @extensibility.register("NAME"); another library is given '
            "by path= or source=, and what it imports by include=[FOLDER]."
        )

    def files(self) -> list[Path]:
        """Return every file that a build of this source can read."""
        return sorted(_closure(self.roots.values(), self.search))

    def fingerprint(self) -> str:
        """Return a hash of every file that a build of this source can read."""
        digest = hashlib.sha256()
        for path in self.files():
            digest.update(f"{path.name}\0".encode())
            digest.update(path.read_bytes())
            digest.update(b"\0")
        return digest.hexdigest()

    def library_path(self, kernel: Kernel, store: Path) -> Path | None:
        """Return what MAX loads as the library with this kernel: a package, or a `.mojoc`.

        A single file becomes a package in `store`, with the files beside it that it imports. None if MAX could
        not find what the kernel imports.
        """
        if self.precompiled or (self.origin / "__init__.mojo").exists():
            return self.origin
        file = self.roots[kernel.module]
        files = sorted(_closure([file], self.search))
        siblings = "|".join(f.stem for f in files if f != file)
        texts: dict[str, str] = {}
        for path in files:
            text = path.read_text() if path.suffix in MOJO_SUFFIXES else ""
            if path.parent != file.parent or not text:
                return None
            if siblings:
                if re.search(rf"^\s*import\s+({siblings})\b", text, re.M):
                    return None
                text = re.sub(
                    rf"^(\s*from\s+)({siblings})(\s+import\b)", r"\1.\2\3", text, flags=re.M
                )
            texts["__init__.mojo" if path == file else path.name] = text
        digest = hashlib.sha256(
            "\0".join(f"{n}\0{t}" for n, t in texts.items()).encode()
        ).hexdigest()
        package = store / f"package_{digest[:24]}" / kernel.module
        for name, text in texts.items():
            write(package / name, text)
        return package

    def user_place(self, path: str, line: int) -> str | None:
        """Return `file:line` as the user knows it, or None if the file is not the user's."""
        file = Path(path)
        if self.place is not None and file == self.origin:
            return self.place.describe(line) if self.place.has(line) else None
        if any(file.is_relative_to(folder) for folder in self.search):
            return f"{path}:{line}"
        return None


def _folder_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in (*MOJO_SUFFIXES, PRECOMPILED):
            yield path


def _resolve(module: str, search: Iterable[Path]) -> list[Path]:
    """Return the files of a top-level module or package, as the compiler would find it."""
    for folder in search:
        package = folder / module
        if package.is_dir():
            return list(_folder_files(package))
        for suffix in (*MOJO_SUFFIXES, PRECOMPILED):
            if (folder / f"{module}{suffix}").is_file():
                return [folder / f"{module}{suffix}"]
    return []


def _closure(roots: Iterable[Path], search: tuple[Path, ...]) -> set[Path]:
    """Return the roots and all files that they import from the searched folders, in turn."""
    seen: set[Path] = set()
    waiting = list(roots)
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        if path.suffix == PRECOMPILED:
            continue
        here = path.parent
        if (here / "__init__.mojo").exists():  # a package: relative imports may reach all of it
            waiting.extend(_folder_files(here))
        for match in _IMPORT.finditer(path.read_text()):
            for name in (match[1] or match[2]).split(","):
                words = name.split()
                module = (words[0] if words else "").lstrip(".").split(".")[0]
                if module:
                    waiting.extend(_resolve(module, (*search, here)))
    return seen


def from_text(text: str, include: Sequence[Path], store: Path, caller: str | None) -> Source:
    """Return the source of an inline text, kept as a file in `store` under the hash of its content."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:24]
    module = f"inline_{digest}"
    folder = store / module
    path = folder / f"{module}.mojo"
    write(path, text)
    return Source(folder, {module: path}, include, place_of(text, caller))


def generated(
    text: str,
    beside: Mapping[str, str],
    include: Sequence[Path],
    store: Path,
    place: PythonPlace | None,
    flags: Sequence[str] = (),
) -> Source:
    """Return the source of a generated text, with other modules beside it; `place` has the user's part of it."""
    parts = [text, *(f"{n}\0{t}" for n, t in beside.items())]
    module = f"kernel_{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]}"
    folder = store / module
    for name, other in {module: text, **beside}.items():
        write(folder / f"{name}.mojo", other)
    return Source(folder, {module: folder / f"{module}.mojo"}, include, place, flags=flags)


def write(path: Path, text: str) -> None:
    """Put a text into a file, at once for all who look."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.parent / f".{path.name}.{os.getpid()}.{threading.get_ident()}"
    part.write_text(text)
    part.replace(path)


def from_path(path: Path, include: Sequence[Path]) -> Source:
    """Return the source of a `.mojo` file, a folder (a package or plain), or a `.mojoc`.

    Raises:
        KernelNotFoundError: if nothing is there, or nothing that could hold a kernel.
    """
    path = path.expanduser().absolute()
    if path.is_dir():
        if (path / "__init__.mojo").exists():
            roots = {
                ".".join([path.name, *f.relative_to(path).with_suffix("").parts]).removesuffix(
                    ".__init__"
                ): f
                for f in _folder_files(path)
            }
            folder = path.parent
        else:
            roots = {f.stem: f for f in sorted(path.iterdir()) if f.suffix in MOJO_SUFFIXES}
            folder = path
        if roots:
            return Source(folder, roots, include, origin=path)
        raise KernelNotFoundError(
            f"The folder {path} has no Mojo file.\nGive a folder with .mojo files, a .mojo file or a .mojoc."
        )
    if not path.exists():
        raise KernelNotFoundError(
            f"There is nothing at {path}.\nGive the path of a .mojo file, a folder or a .mojoc."
        )
    if path.suffix not in (*MOJO_SUFFIXES, PRECOMPILED):
        raise KernelNotFoundError(
            f"{path} is not a Mojo source.\nGive a .mojo file, a folder of them or a .mojoc."
        )
    if not path.stem.isidentifier():
        raise KernelNotFoundError(
            f"{path.name} cannot be imported in Mojo: {path.stem!r} is not an identifier.\nRename the file."
        )
    return Source(path.parent, {path.stem: path}, include)


def place_of(text: str, caller: str | None) -> PythonPlace | None:
    """Return where the literals of this text stand in a Python file, or None without a file."""
    if caller is None:
        return None
    try:
        lines = linecache.getlines(caller)  # notebook cells are there as well
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return PythonPlace(caller, ())
    pieces = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            at = text.find(node.value) if "\n" in node.value or node.value == text else -1
            if at >= 0:
                first = text.count("\n", 0, at) + 1
                pieces.append((first, first + node.value.count("\n"), node.lineno))
    pieces.sort(key=lambda p: p[0] - p[1])  # the longest literal explains a line best
    return PythonPlace(caller, tuple(pieces))
