"""`mojo_op`: a Mojo kernel declared as a torch operator."""

import functools
import inspect
import os
import re
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from torch_mojo import torch_private
from torch_mojo.dispatch import register
from torch_mojo.dispatch import schema as schemas
from torch_mojo.dispatch.binding import Binding
from torch_mojo.dispatch.schema import Schema
from torch_mojo.errors import SignatureError
from torch_mojo.jit import sources
from torch_mojo.jit.cache import cache
from torch_mojo.jit.sources import Source

if TYPE_CHECKING:  # what a first call needs is imported then
    from torch_mojo.dispatch.calls import Calls
    from torch_mojo.dispatch.graph import GraphKernel
    from torch_mojo.dispatch.keys import Key, TensorKey


class MojoOp:
    """A Mojo kernel as a torch operator; `torch.ops.NAMESPACE.NAME` behind it.

    Attributes:
        qualname: `namespace::name`.
        label: what messages call it.
        source: where the kernel comes from.
    """

    overload: Any
    autograd_impl: Callable[..., Any]

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
    def kernel_description(self) -> list[str]:
        """Which kernel it is and where, for people."""
        kernel = self.binding.kernel
        place = self.source.user_place(kernel.file, kernel.line) or self.source
        parameters = ", ".join(f"{p.name}: {p.type}" for p in kernel.struct_parameters)
        named = f"{kernel.struct}[{parameters}]" if parameters else kernel.struct
        return [f"kernel  {named}, {place}", kernel.signature]

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
    def schema(self) -> str:
        """The operator's schema, as text."""
        return f"{self.qualname.split('::')[0]}::{self.arguments.text}"

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

    def register_autograd(
        self, backward: Callable[..., object], *, setup_context: Callable[..., object] | None = None
    ) -> None:
        """Register a backward formula, as `torch.library.register_autograd` takes it.

        Args:
            backward: takes ctx and one gradient per output, returns one gradient (or None) per argument.
            setup_context: takes ctx, inputs and output (and keyword_only_inputs, if there are any).

        Raises:
            SignatureError: if the operator writes to its arguments.
        """
        if self.arguments.mutable:
            raise SignatureError(
                f"[{self.qualname}] writes to its arguments, and autograd has no formula for that.\n"
                "Declare a functional operator (no mutates_args) and register its backward."
            )
        self.autograd_info._backward_fn = backward
        self.autograd_info._setup_context_fn = setup_context

    def register_vmap(self, rule: Callable[..., object] | None = None) -> Any:
        """Register a batching rule, as `torch.library.register_vmap` takes it."""
        if rule is None:
            return self.register_vmap
        torch.library.register_vmap(self.qualname, rule, lib=register.library_of(self.qualname))
        return rule

    def register_autocast(self, device_type: str, cast_inputs: torch.dtype | None = None) -> None:
        """Cast floating-point tensors (not float64) under autocast on `device_type`.

        Args:
            device_type: "cpu" or "cuda".
            cast_inputs: the dtype; without one, what the autocast block in force says.
        """
        torch_private.autocast(
            register.library_of(self.qualname), self.overload, device_type, cast_inputs
        )

    def register_fake(self, fake: Callable[..., object] | None = None) -> Any:
        """Register another fake implementation than the body, for sizes that depend on data.

        Raises:
            SignatureError: if its parameters are not those of the operator.
        """
        if fake is None:
            return self.register_fake
        _check_parameters(self.qualname, self.arguments, fake)
        torch.library.register_fake(
            self.qualname, fake, lib=register.library_of(self.qualname), allow_override=True
        )
        return fake

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
    from torch_mojo.dispatch.router import pending

    return pending(error) or error


def _check_parameters(qualname: str, schema: Schema, function: Callable[..., object]) -> None:
    """Refuse a fake implementation whose parameters are not the schema's."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return
    have = [p.name for p in parameters]
    want = [a.name for a in schema.args]
    missing = [n for n in want if n not in have]
    extra = [
        p.name for p in parameters if p.name not in want and p.default is inspect.Parameter.empty
    ]
    if missing or extra:
        problem = " and ".join(
            [f"lacks the parameter {', '.join(missing)}"] * bool(missing)
            + [f"has the unknown parameter {', '.join(extra)}"] * bool(extra)
        )
        raise SignatureError(
            f"[{qualname}] the fake implementation {function.__name__} {problem}; "
            f"the operator is {schema.text}.\nGive it the operator's parameters: ({', '.join(want)})."
        )


def caller(depth: int) -> types.FrameType | None:
    """Return the frame that is `depth` calls above the calling function."""
    frame = inspect.currentframe()
    for _ in range(depth + 1):
        frame = frame.f_back if frame else None
    return frame


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
) -> Callable[[Callable[..., Any]], MojoOp]:
    """Declare a Mojo kernel as the torch operator `qualname`.

    The decorated function's annotations are the operator's schema. Its body returns new, empty tensors that
    look like the outputs: it is the fake implementation, and the allocation of every eager call. Only their
    shape, strides, dtype and device count; their values do not.

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
    frame = caller(1)
    file = frame.f_code.co_filename if frame else None
    names = dict(frame.f_locals) if frame else {}
    del frame
    if not re.fullmatch(r"[^\W\d]\w*::[^\W\d]\w*(\.[^\W\d]\w*)?", qualname):
        raise SignatureError(f"{qualname!r} is no operator name.\nName it 'namespace::name'.")

    def declare(body: Callable[..., Any]) -> MojoOp:
        made = make_source(source, path, include, file, qualname)
        schema = schemas.infer(qualname, body, mutates_args, names)
        name = kernel or qualname.split("::")[1].split(".")[0]
        return MojoOp(qualname, made, schema, body, name, tags=tags, broadcast=broadcast)

    return declare
