"""What goes into a wheel beside a library: the small loader, Mojo's runtime if it is needed, their licences."""

import importlib.metadata
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from torch_mojo.ahead.library import Built
from torch_mojo.dispatch.shipped import BUNDLED
from torch_mojo.jit.toolchain import toolchain

LOADER = "_torch_mojo"
_PACKAGE = Path(__file__).parent.parent
_MODULES = (
    "errors.py",
    "dtypes.py",
    "torch_private.py",
    "loader.py",
    "dispatch/__init__.py",
    "dispatch/libtorch.py",
    "dispatch/pending.py",
    "dispatch/schema.py",
    "dispatch/shipped.py",
    "dispatch/stack.py",
    "jit/__init__.py",
    "jit/manifest.py",
)
_INLINE_MODULES = (  # as well, where there are operators of inline kernels
    "batching.py",
    "inline/__init__.py",
    "inline/expressions.py",
    "inline/operands.py",
    "inline/shapes.py",
    "inline/shipped.py",
)
_INIT = '''"""The small loader of torch_mojo: the operators of this package, out of the library that was built with it.

A copy of parts of torch_mojo {version}, which is licensed under Apache-2.0; it needs nothing but torch.
"""

from typing import Any

from {package} import loader
from {package}.loader import ShippedOp as MojoOp
from {package}.loader import errors, mojo_op
{inline}
__all__ = ["MojoOp", "errors", {names}"mojo_op"]


def __getattr__(name: str) -> Any:
    """Say what of torch_mojo is not here."""
    return loader.__getattr__(name)
'''


def loader_name(module: str) -> str:
    """Return the name of the loader's package for a module: beside it."""
    package, _, name = module.rpartition(".")
    return f"{package}.{LOADER}" if package else f"{LOADER}_{name}"


def write_loader(package: str, folder: Path, inline: bool = False) -> None:
    """Write the loader as the package of this name into a folder, with the part for inline kernels or without it."""
    try:
        version = importlib.metadata.version("torch_mojo")
    except importlib.metadata.PackageNotFoundError:
        version = "of this source tree"
    for name in (*_MODULES, *(_INLINE_MODULES if inline else ())):
        text = (_PACKAGE / name).read_text()
        text = re.sub(r"^(\s*(?:from|import) )torch_mojo\b", rf"\g<1>{package}", text, flags=re.M)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    imported = f"from {package}.inline.shipped import kernel\n" if inline else ""
    text = _INIT.format(
        package=package, version=version, inline=imported, names='"kernel", ' * inline
    )
    (folder / "__init__.py").write_text(text)


def write_runtime(built: Built, folder: Path) -> None:
    """Copy the runtime libraries that a library needs, with their licence, into the loader's folder."""
    if not built.runtime:
        return
    target = folder / BUNDLED
    target.mkdir(parents=True, exist_ok=True)
    for name in built.runtime:
        shutil.copyfile(toolchain().runtime / name, target / name)
    (target / "version.txt").write_text(built.manifest["runtime"]["version"] + "\n")
    for name, text in licence_files():
        (target / name).write_bytes(text)


def licence_files() -> Iterator[tuple[str, bytes]]:
    """Return the licence texts that came with the compiler and its libraries: (file name, text)."""
    seen = set()
    for distribution in ("mojo-compiler", "max", "max-core"):
        try:
            files = importlib.metadata.files(distribution) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            place = Path(str(file.locate()))
            known = place.name.upper().startswith(("LICENSE", "LICENCE", "NOTICE", "THIRD-PARTY"))
            if known and ".dist-info" in str(file) and place.name not in seen and place.is_file():
                seen.add(place.name)
                yield place.name, place.read_bytes()
