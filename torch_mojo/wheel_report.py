"""What a wheel, or a library that was built ahead of time, contains and needs, for people."""

import email
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch_mojo.dispatch.shipped import check
from torch_mojo.errors import MojoError
from torch_mojo.jit import manifest


def _size(count: int) -> str:
    return f"{count / 1024:.1f} KiB" if count < 2**20 else f"{count / 2**20:.1f} MiB"


def _library(name: str, path: Path) -> Iterator[tuple[str, str]]:
    about = manifest.read(path)
    yield "library", f"{name}, {_size(path.stat().st_size)}"
    for operator in about["operators"]:
        yield "operator", f"{operator['name'].split('::')[0]}::{operator['schema']}"
        yield from _built(about, operator)
    yield "targets", ", ".join(about["targets"])
    yield "needs torch", f"{about['torch']} or newer"
    runtime = about["runtime"]
    if runtime:
        yield "needs Mojo runtime", f"{runtime['version']}: {', '.join(runtime['libraries'])}"
    else:
        yield "needs Mojo runtime", "no"
    for licence in about["licences"]:
        yield "licence", licence
    try:
        check(path, about)
        yield "runs here", "yes"
    except MojoError as e:
        yield "runs here", " ".join(str(e).splitlines())


def _built(about: dict[str, Any], operator: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for target in about["targets"]:
        whats = [b["what"] or "any call" for b in operator["built"] if b["target"] == target]
        if whats:
            yield f"  {target}", "; ".join(dict.fromkeys(whats))
    if operator["python"]:
        yield "  sizes", "computed by its Python declaration; not for C++ programs"


def _wheel(path: Path) -> Iterator[tuple[str, str]]:
    yield "wheel", f"{path.name}, {_size(path.stat().st_size)}"
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        metadata = next((n for n in names if n.endswith(".dist-info/METADATA")), None)
        if metadata is not None:
            message = email.message_from_bytes(archive.read(metadata))
            needs = message.get_all("Requires-Dist") or ["nothing"]
            yield "depends on", ", ".join(needs)
            yield (
                "its own licence",
                message.get("License-Expression") or message.get("License") or "not stated",
            )
        libraries = [n for n in names if n.endswith(manifest.SUFFIX)]
        if not libraries:
            raise MojoError(
                f"{path} has no library of torch_mojo.\nBuild one with torch_mojo.build.MojoExtension."
            )
        for name in libraries:
            yield from _library(name, Path(archive.extract(name, folder)))
        loaders = [n for n in names if "_torch_mojo" in n]
        bundled = [n for n in loaders if "/runtime/" in n]
        small = sum(archive.getinfo(n).file_size for n in loaders if n not in bundled)
        yield "small loader", _size(small) if loaders else "no; it needs torch_mojo"
        if bundled:
            size = sum(archive.getinfo(n).file_size for n in bundled)
            texts = [Path(n).name for n in bundled if not n.endswith((".so", "version.txt"))]
            yield (
                "bundled runtime",
                f"{_size(size)}, with {', '.join(texts) or 'no licence text'}",
            )


def rows(path: Path) -> list[tuple[str, str]]:
    """Return what to print of a wheel or a library: names and texts.

    Raises:
        MojoError: if the file is neither, or is damaged.
    """
    if not path.is_file():
        raise MojoError(f"There is no file {path}.\nGive a wheel, or a library that was built.")
    if zipfile.is_zipfile(path):
        return list(_wheel(path))
    return list(_library(path.name, path))
