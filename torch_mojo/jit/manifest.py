"""What a library that was built ahead of time says of itself, read from the file without opening it."""

import functools
import json
import zlib
from pathlib import Path
from typing import Any

from torch_mojo.errors import MojoError

FORMAT = 1
SUFFIX = "_mojo.so"
CPU_LEVELS = ("any", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
HOST_OF_GPU_CODE = "x86-64-v3"  # what launches GPU kernels, in a library without a CPU target
_MARK = b"torch_mojo" + b" manifest:"  # in two parts: a file with this text is not a library


def encode(manifest: dict[str, Any]) -> bytes:
    """Return a manifest in the form in which a library has it."""
    content = zlib.compress(json.dumps(manifest, separators=(",", ":")).encode(), 9)
    return _MARK + len(content).to_bytes(8, "little") + content


@functools.cache
def read(path: Path) -> dict[str, Any]:
    """Return the manifest of a library.

    Raises:
        MojoError: if the file is none, or damaged, or of another format.
    """
    content = path.read_bytes()
    start = content.find(_MARK)
    if start < 0:
        raise MojoError(
            f"{path} is no library of torch_mojo.\nBuild one with python -m torch_mojo build."
        )
    start += len(_MARK)
    length = int.from_bytes(content[start : start + 8], "little")
    try:
        manifest = json.loads(zlib.decompress(content[start + 8 : start + 8 + length]))
    except (ValueError, zlib.error) as e:
        raise MojoError(f"{path} is damaged: {e}.\nBuild or install it again.") from e
    if manifest["format"] != FORMAT:
        raise MojoError(
            f"{path} has format {manifest['format']}; this torch_mojo reads {FORMAT}.\n"
            "Build the library again."
        )
    return manifest


def library_of(module_file: str) -> Path:
    """Return where the library of a module's operators is: beside it, `lib<module>_mojo.so`."""
    path = Path(module_file)
    stem = path.parent.name if path.stem == "__init__" else path.stem
    return path.parent / f"lib{stem}{SUFFIX}"
