"""`kernel` without a compiler: the operators of inline kernels, out of a library that was built ahead of time.

Wheels that have such operators carry a copy of this file and of what it imports.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch_mojo import batching, loader
from torch_mojo.errors import MojoError
from torch_mojo.inline.shapes import Grid, Labelled, Parameter, Shapes


def declare(declaration: Labelled, qualname: str, library: Path) -> loader.ShippedOp:
    """Return the operator of an inline kernel out of a library."""

    def body(*args: Any, **kwargs: Any) -> Any:
        return declaration.make(*args, **kwargs)

    body.__doc__ = f"The inline kernel {declaration.label}."
    op = loader.declare(qualname, library, declaration.schema(qualname), body)
    op.register_vmap(batching.rule(op.overload, [a.name for a in op.arguments.args], ()))
    return op


class ShippedKernel:
    """An inline kernel where nothing can be built: it has its operators, and nothing else."""

    def __init__(self, label: str, declaration: Shapes | None) -> None:
        self._declaration = declaration
        self.__name__ = label

    def __repr__(self) -> str:
        return f"<torch_mojo.kernel {self.__name__}, built ahead of time>"

    def as_op(self, qualname: str) -> loader.ShippedOp:
        """Return the torch operator `qualname`, out of the library beside the calling file.

        Raises:
            MojoError: if there is no library, it has no such operator, or it cannot be used here.
        """
        if self._declaration is None:
            raise self._needs_torch_mojo()
        library = loader.library_with(qualname, loader.called_from(1)[0])
        return declare(self._declaration, qualname, library)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: only operators are built ahead of time."""
        raise self._needs_torch_mojo()

    def _needs_torch_mojo(self) -> MojoError:
        return MojoError(
            f"[{self.__name__}] is built when it is called, and torch_mojo is not installed.\n"
            "Install torch_mojo, or call the operator that .as_op('NAMESPACE::NAME') returns."
        )


def kernel(
    name: str,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    source: str | None = None,
    *ignored: Any,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    params: Mapping[str, Parameter] | None = None,
    grid: Grid = 1,
    threadgroup: Grid | None = None,
    init: Mapping[str, float] | None = None,
    atomic: str | Sequence[str] = (),
    mutates: str | Sequence[str] = (),
    **also_ignored: Any,
) -> ShippedKernel:
    """Take what `torch_mojo.kernel` takes; the text is not looked at."""
    if input_names is not None or output_names is not None:
        return ShippedKernel(name, None)
    both = [(n,) if isinstance(n, str) else tuple(n) for n in (atomic, mutates)]
    declaration = Shapes(
        name, inputs or {}, outputs or {}, params or {}, grid, threadgroup, init or {}, *both
    )
    return ShippedKernel(name, declaration)
