"""Builds the operators that a module declares into a library, with what goes beside it."""

import importlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch_mojo.ahead import bundle
from torch_mojo.ahead.cases import Example, Grid, Wanted
from torch_mojo.ahead.library import Built, build_library
from torch_mojo.ahead.targets import DEFAULT
from torch_mojo.dispatch.shipped import BUNDLED
from torch_mojo.errors import MojoError
from torch_mojo.jit import manifest
from torch_mojo.op import MojoOp, declared

Specializations = Wanted | Sequence[Wanted] | Mapping[str, Wanted | Sequence[Wanted]]


def _operators(module: Any) -> list[MojoOp]:
    """Return the operators that a module declares."""
    names = (module.__name__, f"{module.__name__}.")
    found = [
        op
        for op in declared().values()
        if op.body.__module__ == names[0] or op.body.__module__.startswith(names[1])
    ]
    if not found:
        raise MojoError(
            f"{module.__name__} declares no operator.\nDeclare one with torch_mojo.mojo_op, or name an "
            "inline kernel: .as_op('NAMESPACE::NAME')."
        )
    return found


def _wanted(
    operators: Sequence[MojoOp], specializations: Specializations | None
) -> dict[MojoOp, Sequence[Wanted]]:
    def listed(wanted: Wanted | Sequence[Wanted]) -> Sequence[Wanted]:
        return [wanted] if isinstance(wanted, (Grid, Example)) else list(wanted)

    if specializations is None:
        return {op: [Grid()] for op in operators}
    if not isinstance(specializations, Mapping):
        return {op: listed(specializations) for op in operators}
    names = {op.qualname: op for op in operators}
    unknown = sorted(set(specializations) - set(names))
    if unknown:
        raise MojoError(
            f"There is no operator {', '.join(unknown)}; the module declares {', '.join(names)}.\n"
            "Correct the names in specializations=."
        )
    return {names[n]: listed(w) for n, w in specializations.items()}


def build_module(
    name: str,
    folder: Path | None = None,
    *,
    root: Path | None = None,
    specializations: Specializations | None = None,
    targets: Sequence[str] = DEFAULT,
    bundle_runtime: bool = False,
    include_sources: bool = True,
    jobs: int | None = None,
) -> Built:
    """Build the operators that a module declares into a library, as `torch_mojo.build.MojoExtension` does.

    Args:
        name: the module.
        folder: where the library goes; beside the module by default, where `mojo_op` looks for it.
        root: a folder from which the module can be imported.
        specializations, targets, bundle_runtime, include_sources, jobs: as for `torch_mojo.build.MojoExtension`.

    Raises:
        MojoError: if the module declares no operator, or a kernel cannot be built.
    """
    if root is not None and str(root) not in sys.path:
        sys.path.insert(0, str(root))
    module = importlib.import_module(name)
    operators = _operators(module)
    file = manifest.library_of(str(module.__file__))
    folder = folder or file.parent
    loader = bundle.loader_name(name)
    search = f"{loader.rpartition('.')[2]}/{BUNDLED}" if bundle_runtime else None
    built = build_library(
        _wanted(operators, specializations), folder / file.name, targets, jobs, search
    )
    if bundle_runtime:
        place = folder / loader.rpartition(".")[2]
        bundle.write_loader(loader, place, inline=any(op.is_inline for op in operators))
        bundle.write_runtime(built, place)
    if include_sources:
        _copy_sources(operators, file.parent, folder)
    return built


def _copy_sources(operators: Sequence[MojoOp], origin: Path, folder: Path) -> None:
    """Copy the Mojo files below the module's folder that its operators name."""
    for op in operators:
        for path in op.source.files() if op.source.place is None else ():
            if path.is_relative_to(origin) and folder != origin:
                target = folder / path.relative_to(origin)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
