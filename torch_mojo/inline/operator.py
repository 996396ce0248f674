"""An inline kernel as a torch operator: another Mojo text for each key."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from torch_mojo import batching
from torch_mojo.devices import on_host
from torch_mojo.dispatch import register
from torch_mojo.dispatch.binding import Binding
from torch_mojo.dispatch.keys import Key, TensorKey
from torch_mojo.inline import shipped
from torch_mojo.inline.declaration import Declaration
from torch_mojo.jit import sources, toolchain
from torch_mojo.jit.cache import cache
from torch_mojo.jit.sources import Source
from torch_mojo.loader import ShippedOp
from torch_mojo.op import MojoOp, library_beside

NAMESPACE = "torch_mojo_kernels"


class InlineOp(MojoOp):
    """An inline kernel as a torch operator.

    Attributes:
        declaration: what was declared.
        verbose: whether each text is printed when it is built.
    """

    is_inline = True

    def __init__(self, qualname: str, declaration: Declaration, module: str | None = None) -> None:
        self.declaration = declaration
        self.verbose = False

        def body(*args: Any, **kwargs: Any) -> Any:
            made = [  # here, where the plan's trace sees it
                torch.empty(shape, dtype=dtype, device=device)
                for shape, dtype, device in declaration.allocations(*args, **kwargs)
            ]
            return made[0] if len(made) == 1 else tuple(made) if made else None

        body.__doc__ = f"The inline kernel {declaration.label}."
        body.__module__ = module or __name__
        place = sources.place_of(declaration.body, declaration.file)
        source = Source(Path(), {}, (), place, origin=Path(declaration.label))
        super().__init__(qualname, source, declaration.schema(qualname), body, declaration.label)
        if qualname.startswith(f"{NAMESPACE}::"):  # the user did not choose that name
            self.label = declaration.label
        names = [a.name for a in self.arguments.args]
        self.register_vmap(batching.rule(self.overload, names, ()))

    @property
    def kernel_description(self) -> list[str]:
        return [f"inline  {self.declaration.label}, {self.source}"]

    def _check_declaration(self) -> None:
        pass  # the declaration did

    def check_inputs(self, values: Sequence[object], keys: Sequence[Key]) -> None:
        pass  # the body does

    def in_key(self, index: int) -> bool:
        return self.declaration.in_key(index)

    @property
    def parameters(self) -> Sequence[str]:
        return [a.name for i, a in enumerate(self.arguments.args) if self.in_key(i)]

    def fixed(self, name: str) -> tuple[torch.dtype | None, int | None]:
        return self.declaration.fixed(name)

    def kernel_for(
        self,
        values: Sequence[object],
        keys: Sequence[Key],
        outs: Sequence[TensorKey],
        graph: bool = False,
    ) -> tuple[Binding, Source]:
        program = self.declaration.program(values, keys, outs, graph)
        device = next((k.device for k in (*keys, *outs) if isinstance(k, TensorKey)), None)
        if device is None or on_host(device):
            self.declaration.refuse_on_cpu()
        text = program.text()
        if self.verbose:
            print(text)
        place = self.declaration.place(program)
        beside = {"inline": (toolchain.kernels() / "inline.mojo").read_text()}
        source = sources.generated(
            text,
            beside,
            self.declaration.include,
            cache().root / "sources",
            place,
            self.declaration.options,
        )
        where = str(place.describe(program.pieces[-1][0])) if place else self.declaration.label
        binding = Binding(self.label, self.arguments, source.kernel(program.name), None, where)
        return binding, source

    def generated(self, args: Sequence[object], kwargs: dict[str, object]) -> str:
        """Return the Mojo text for arguments like these."""
        values, keys, outs = self.calls.example(tuple(args), kwargs)
        return self.declaration.program(values, keys, outs).text()


def ready(qualname: str, declaration: Declaration, file: str) -> ShippedOp | None:
    """Return an inline kernel's operator out of the library beside a file, if nothing can be built here.

    Where something can, what was built is used, too.
    """
    library = library_beside(file, qualname, lambda: declaration.schema(qualname))
    if library is None or toolchain.is_available():
        return None
    return shipped.declare(declaration, qualname, library)


def operator(declaration: Declaration) -> InlineOp:
    """Return the operator of a declaration; one declared before in the same words is the same."""
    qualname = f"{NAMESPACE}::{declaration.label}_{declaration.digest}"
    found = register.find(qualname)
    if found is None:
        return InlineOp(qualname, declaration)
    assert isinstance(found, InlineOp)
    return found
