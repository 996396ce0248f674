"""`mojo_op`: a Mojo kernel declared as a torch operator."""

import functools
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from torch_mojo import loader, torch_private
from torch_mojo.dispatch import register, shipped
from torch_mojo.dispatch import schema as schemas
from torch_mojo.dispatch.binding import Binding
from torch_mojo.dispatch.schema import Schema
from torch_mojo.dtypes import FROM_MOJO
from torch_mojo.errors import KernelNotFoundError, MojoError, SignatureError
from torch_mojo.jit import manifest, sources, toolchain
from torch_mojo.jit.cache import cache
from torch_mojo.jit.sources import Source

if TYPE_CHECKING:  # what a first call needs is imported then
    from torch_mojo.dispatch.calls import Calls
    from torch_mojo.dispatch.graph import GraphKernel
    from torch_mojo.dispatch.keys import Key, TensorKey


class MojoOp(loader.Registers):
    """A Mojo kernel as a torch operator; `torch.ops.NAMESPACE.NAME` behind it.

    Attributes:
        qualname: `namespace::name`.
        label: what messages call it.
        source: where the kernel comes from.
    """

    is_inline = False  # whether its text is another one for each key
    autograd_impl: Callable[..., Any]
    short_autograd: Callable[..., Any]

    def __init__(
        self,
        qualname: str,
        source: Source,
        arguments: Schema,
        body: Callable[..., Any],
        kernel: str,
        constants: Mapping[str, object] | None = None,
        tags: Sequence[torch.Tag] = (),
        broadcast: bool = False,
    ) -> None:
        self.qualname = self.label = qualname
        self.source = source
        self.arguments = arguments
        self.body = body
        self.__name__ = qualname.split("::")[1].split(".")[0]
        self.__doc__ = body.__doc__
        self._kernel_name = kernel
        self._constants = constants
        self._broadcast = broadcast
        self._lock = threading.Lock()
        self._binding: Binding | None = None
        self.autograd_info = torch_private.AutogradInfo(None, None)
        self._check_declaration()
        register.define(self, tags)
        self.entry = torch_private.entry(self.overload)

    def _check_declaration(self) -> None:
        """Refuse a declaration that does not fit the kernel."""
        if not self.source.precompiled:
            _ = self.binding

    @property
    def binding(self) -> Binding:
        """How the declaration and the kernel fit together."""
        with self._lock:
            if self._binding is None:
                kernel = self.source.kernel(self._kernel_name)
                place = self.source.user_place(kernel.file, kernel.line) or str(self.source)
                self._binding = Binding(
                    self.qualname,
                    self.arguments,
                    kernel,
                    self._constants,
                    place,
                    broadcast=self._broadcast,
                )
            return self._binding

    @property
    def broadcasts(self) -> bool:
        """Whether the kernel sees its inputs expanded to the first output's shape."""
        return self._broadcast

    @property
    def kernel_description(self) -> list[str]:
        """Which kernel it is and where, for people."""
        kernel = self.binding.kernel
        place = self.source.user_place(kernel.file, kernel.line) or self.source
        parameters = ", ".join(f"{p.name}: {p.type}" for p in kernel.struct_parameters)
        named = f"{kernel.struct}[{parameters}]" if parameters else kernel.struct
        return [f"kernel  {named}, {place}", kernel.signature]

    @property
    def parameters(self) -> Sequence[str]:
        """The arguments that are compile-time parameters of the kernel."""
        return list(self.binding.parameters)

    def fixed(self, name: str) -> tuple[torch.dtype | None, int | None]:
        """Return dtype and rank of a tensor, as far as the kernel names them."""
        for argument in self.binding.kernel.arguments:
            if argument.name == name:
                dtype = argument.constraints.get("dtype", "").removeprefix("DType")
                rank = argument.constraints.get("rank", "")
                known = FROM_MOJO.get(dtype.removeprefix("."))
                return known, int(rank) if rank.isdigit() else None
        return None, None

    def in_key(self, index: int) -> bool:
        """Tell whether the value of this argument makes another specialization."""
        return self.binding.in_key(index)

    def kernel_for(
        self,
        values: Sequence[object],
        keys: "Sequence[Key]",
        outs: "Sequence[TensorKey]",
        graph: bool = False,
    ) -> tuple[Binding, Source]:
        """Return the kernel for a call with these values, keys and outputs, bound to the declaration."""
        return self.binding, self.source

    def check_inputs(self, values: Sequence[object], keys: "Sequence[Key]") -> None:
        """Refuse inputs that no outputs could make right."""
        from torch_mojo.dispatch.specialization import Specialization

        Specialization(self.binding, keys, values, ())

    @property
    def registrations(self) -> torch.library.Library:
        return register.library_of(self.qualname)

    @functools.cached_property
    def calls(self) -> "Calls":
        """What the router asks when this operator is called."""
        from torch_mojo.dispatch.calls import Calls

        return Calls(self)

    @property
    def specializations(self) -> list[str]:
        """What was built or loaded for this operator in this process."""
        return sorted({b.description for b in self.calls.built.values()})

    def __repr__(self) -> str:
        return f"MojoOp({self.schema})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.overload(*args, **kwargs)
        try:
            return self.entry(*args, **kwargs)
        except RuntimeError as e:
            raise original(e) from None

    def graph_kernel(
        self, args: Sequence[object], kwargs: Mapping[str, object], outs: object
    ) -> "GraphKernel | None":
        """Return the operator as a node of a MAX graph, or None if MAX cannot run it there.

        Args:
            args, kwargs: the call's arguments, with fake tensors.
            outs: the fake output, or a sequence of them.
        """
        from torch_mojo.dispatch.graph import fake_keys, graph_kernel

        values = self.calls.bind(tuple(args), dict(kwargs))
        made: list[Any] = list(outs) if isinstance(outs, (tuple, list)) else [outs]
        try:
            found = self.kernel_for(values, fake_keys(values), fake_keys(made), graph=True)
        except SignatureError:
            return None  # eager says what is wrong
        return graph_kernel(*found, values, made)

    # what the author adds

    def register_lowering(self, lowering: Callable[..., object] | None = None) -> Any:
        """Register how `torch.compile(backend="max")` lowers the operator, instead of its own kernel."""
        if lowering is None:
            return self.register_lowering
        from torch_mojo.compiler import rules

        return rules.lowering(self.overload)(lowering)

    def precompile(self, *args: Any, **kwargs: Any) -> str:
        """Build the specialization for arguments like these, without running it.

        Args:
            args, kwargs: example arguments; tensors on the meta device stand for contiguous CPU tensors.

        Returns:
            what was built.
        """
        return self.calls.precompile(args, kwargs)


def original(error: RuntimeError) -> BaseException:
    """Return the exception that became this one on its way through the dispatcher."""
    from torch_mojo.dispatch.pending import pending

    return pending(error) or error


def make_source(
    source: str | os.PathLike[str] | None,
    path: str | os.PathLike[str] | None,
    include: Sequence[str | os.PathLike[str]],
    file: str | None,
    qualname: str,
) -> Source:
    """Return the source that a declaration in `file` names.

    Raises:
        SignatureError: unless exactly one of source and path is given.
    """
    if (source is None) == (path is None):
        raise SignatureError(
            f"[{qualname}] needs exactly one of source= (Mojo text) and path= (a file, folder or .mojoc)."
        )
    folders = [Path(p).expanduser().absolute() for p in include]
    if path is not None:
        place = Path(path).expanduser()
        if not place.is_absolute() and file is not None and not place.exists():
            place = Path(file).parent / place
        return sources.from_path(place, folders)
    assert source is not None
    if isinstance(source, os.PathLike):
        return sources.from_path(Path(source), folders)
    return sources.from_text(source, folders, cache().root / "sources", file)


def find_op(overload: object) -> MojoOp | None:
    """Return the MojoOp behind a torch operator, or None."""
    name = getattr(overload, "name", None)
    qualname = str(name() if callable(name) else overload).removesuffix(".default")
    found = register.find(qualname)
    assert found is None or isinstance(found, MojoOp)
    return found


def declared() -> dict[str, MojoOp]:
    """Return every operator declared in this process, by qualified name."""
    return {n: o for n, o in register.all_operators().items() if isinstance(o, MojoOp)}


def library_beside(file: str | None, qualname: str, schema: Callable[[], Schema]) -> Path | None:
    """Return the library beside a Python file, if it was built from this declaration."""
    path = manifest.library_of(file) if file else None
    if path is None or not path.exists():
        return None
    try:
        found = shipped.entry_of(manifest.read(path), qualname)
    except MojoError:
        return None  # of another version: what is called is built
    if found is None or found[1]["schema"] != schema().text:
        return None
    shipped.add(path)
    return path


def mojo_op(
    qualname: str,
    *,
    source: str | os.PathLike[str] | None = None,
    path: str | os.PathLike[str] | None = None,
    include: Sequence[str | os.PathLike[str]] = (),
    kernel: str | None = None,
    mutates_args: str | Sequence[str] = (),
    tags: Sequence[torch.Tag] = (),
    broadcast: bool = False,
) -> Callable[[Callable[..., Any]], Any]:
    """Declare a Mojo kernel as the torch operator `qualname`.

    The decorated function's annotations are the operator's schema. Its body returns new, empty tensors that
    look like the outputs: it is the fake implementation, and the allocation of every eager call. Only their
    shape, strides, dtype and device count; their values do not.

    If a library with the operator lies beside the calling file (`torch_mojo.build`), what was built is taken from
    it. Without a compiler, or without the Mojo source, the operator is a `ShippedOp`, which has nothing else.

    Arguments bind to the kernel's `execute` by name; outputs are its remaining OutputTensors, in return
    order. An argument named like a compile-time parameter of `execute` or of its struct becomes that
    parameter. An optional argument needs a compile-time parameter `has_NAME: Bool`.

    Args:
        qualname: `namespace::name`, or `namespace::name.overload` for one of several signatures. Declaring
            one name again replaces the operator.
        source: Mojo text, with a struct under `@extensibility.register("NAME")`.
        path: instead of source, a `.mojo` file, a folder of them, or a `.mojoc`.
        include: folders in which the kernel's imports are looked up.
        kernel: the registered name, if it is not the operator's.
        mutates_args: the arguments that the kernel writes.
        tags: more `torch.Tag`s for the operator.
        broadcast: the kernel sees its input tensors expanded to the shape of the first output. It is written for
            inputs of one shape; the body says which shapes go together (`torch.broadcast_shapes`).

    Raises:
        KernelNotFoundError: if the source registers no such kernel.
        SignatureError: if declaration and kernel do not fit.
    """
    file, names = loader.called_from(1)
    if not re.fullmatch(r"[^\W\d]\w*::[^\W\d]\w*(\.[^\W\d]\w*)?", qualname):
        raise SignatureError(f"{qualname!r} is no operator name.\nName it 'namespace::name'.")

    def declare(body: Callable[..., Any]) -> Any:
        @functools.cache
        def schema() -> Schema:
            return schemas.infer(qualname, body, mutates_args, names)

        library = library_beside(file, qualname, schema)
        if library is not None and not toolchain.is_available():
            return loader.declare(qualname, library, schema(), body, tags)
        try:
            made = make_source(source, path, include, file, qualname)
        except KernelNotFoundError:
            if library is None:
                raise
            return loader.declare(qualname, library, schema(), body, tags)
        name = kernel or qualname.split("::")[1].split(".")[0]
        return MojoOp(qualname, made, schema(), body, name, tags=tags, broadcast=broadcast)

    return declare
