"""`mojo_op` without a compiler: operators out of a library that was built ahead of time.

torch_mojo uses it where there is no compiler or no Mojo source, and a wheel that was built with
`bundle_runtime=True` carries a copy of it, which needs nothing but torch.
"""

import ctypes
import inspect
import threading
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from torch_mojo import errors as errors
from torch_mojo import torch_private
from torch_mojo.dispatch import libtorch
from torch_mojo.dispatch import schema as schemas
from torch_mojo.dispatch import stack as stacks
from torch_mojo.dispatch.pending import keep, pending
from torch_mojo.dispatch.schema import Schema
from torch_mojo.dispatch.shipped import built_text, entry_of, open_library
from torch_mojo.errors import KernelError, MojoError, SignatureError
from torch_mojo.jit import manifest

HERE = Path(__file__).parent
_AUTOGRAD = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_OUTPUTS = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_STATE_AUTOGRAD, _STATE_PYTHON_OUTPUTS = 8, 11  # words of kernels/torch/route.mojo

_ops: dict[str, "ShippedOp"] = {}
_libraries: dict[Path, "_Library"] = {}
_handles: list[object] = []
_lock = threading.RLock()


class _Library:
    """One opened library, and the operators that are declared of it by their numbers."""

    def __init__(self, path: Path) -> None:
        self.opened = open_library(path, HERE)
        self.operators: dict[int, ShippedOp] = {}
        state = (ctypes.c_int64 * 16).from_address(self.opened.tm_state())
        for i, word in enumerate(torch_private.gate_words()):
            state[i] = word
        self._callbacks = (_AUTOGRAD(self._autograd), _OUTPUTS(self._outputs))
        for place, callback in zip(
            (_STATE_AUTOGRAD, _STATE_PYTHON_OUTPUTS), self._callbacks, strict=True
        ):
            state[place] = ctypes.cast(callback, ctypes.c_void_p).value or 0

    def _autograd(self, index: int, stack: int) -> int:
        try:
            self.operators[index].run_autograd(stack)
            return 0
        except BaseException as e:
            return keep(e)

    def _outputs(self, index: int, stack: int, outs: int) -> int:
        try:
            self.operators[index].make_outputs(stack, outs)
            return 0
        except BaseException as e:
            return keep(e) | 1


class Registers:
    """What an author adds to an operator, however its kernels come to be.

    Attributes:
        qualname: `namespace::name`.
    """

    qualname: str
    arguments: Schema
    overload: Any
    autograd_info: Any

    @property
    def registrations(self) -> torch.library.Library:
        """The Library that holds the operator's Python registrations."""
        raise NotImplementedError

    @property
    def schema(self) -> str:
        """The operator's schema, as text."""
        return f"{self.qualname.split('::')[0]}::{self.arguments.text}"

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
        torch.library.register_vmap(self.qualname, rule, lib=self.registrations)
        return rule

    def register_autocast(self, device_type: str, cast_inputs: torch.dtype | None = None) -> None:
        """Cast floating-point tensors (not float64) under autocast on `device_type`.

        Args:
            device_type: "cpu", "cuda" or "mojo".
            cast_inputs: the dtype; without one, what the autocast block in force says.
        """
        torch_private.autocast(self.registrations, self.overload, device_type, cast_inputs)

    def register_fake(self, fake: Callable[..., object] | None = None) -> Any:
        """Register another fake implementation than the body, for sizes that depend on data.

        Raises:
            SignatureError: if its parameters are not those of the operator.
        """
        if fake is None:
            return self.register_fake
        check_parameters(self.qualname, self.arguments, fake)
        torch.library.register_fake(
            self.qualname, fake, lib=self.registrations, allow_override=True
        )
        return fake


class ShippedOp(Registers):
    """An operator out of a library; the same to its user as `torch_mojo.MojoOp`.

    Attributes:
        qualname: `namespace::name`.
        library: the file that has its kernels.
        body: its declaration: the fake implementation.
    """

    def __init__(
        self,
        qualname: str,
        library: Path,
        arguments: Schema,
        body: Callable[..., Any],
        tags: Sequence[torch.Tag],
    ) -> None:
        self.qualname = qualname
        self.library = library
        self.arguments = arguments
        self.body = body
        self.__name__ = qualname.split("::")[1].partition(".")[0]
        self.__doc__ = body.__doc__
        self.autograd_info = torch_private.AutogradInfo(None, None)
        found = entry_of(manifest.read(library), qualname)
        assert found is not None, f"{library} has no {qualname}"
        self._index, self._entry = found
        self._check()
        if library not in _libraries:
            _libraries[library] = _Library(library)
        native = _libraries[library]
        namespace = qualname.split("::")[0]
        self._registrations = torch.library.Library(namespace, "FRAGMENT")
        defined = torch_private.is_defined(qualname)  # by torch.ops.load_library
        if not defined:
            self._registrations.define(arguments.text, tags=(torch.Tag.pt2_compliant_tag, *tags))
        torch.library.register_fake(qualname, self._fake, lib=self._registrations)
        self.overload: Any = torch_private.new_overload(qualname)
        if not defined and native.opened.tm_implement(ctypes.c_int64(self._index)) != 0:
            raise MojoError(
                f"[{qualname}] torch took no kernel of {library}; the lines above say why."
            )
        self._autograd = torch_private.make_short_autograd(self.overload, self.autograd_info)
        if any(a.base == "Tensor" for a in arguments.args):
            traced = torch_private.make_autograd(self.overload, self.autograd_info)
            torch_private.trace_in_python(self._registrations, qualname, traced)
            gate = ctypes.cast(getattr(native.opened, f"tm_gate_{self._index}"), ctypes.c_void_p)
            _handles.append(libtorch.implement(qualname, "Autograd", gate.value or 0))
        native.operators[self._index] = self
        self.entry = torch_private.entry(self.overload)

    def _check(self) -> None:
        if self._entry["schema"] != self.arguments.text:
            raise SignatureError(
                f"[{self.qualname}] is declared as {self.arguments.text}; {self.library.name} was built "
                f"from {self._entry['schema']}.\nBuild the wheel again."
            )

    def _fake(self, *args: Any, **kwargs: Any) -> Any:
        return self.body(*args, **kwargs)

    @property
    def registrations(self) -> torch.library.Library:
        return self._registrations

    @property
    def specializations(self) -> list[str]:
        """What was built."""
        return sorted({f"{b['what']} ({b['target']})" for b in self._entry["built"]})

    def __repr__(self) -> str:
        return f"ShippedOp({self.schema})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.overload(*args, **kwargs)
        try:
            return self.entry(*args, **kwargs)
        except RuntimeError as e:
            found = pending(e)
            if found is None and str(e).startswith(f"[{self.qualname}]"):
                found = KernelError(str(e))
            raise (found or e) from None

    # what the library asks

    def run_autograd(self, stack: int) -> None:
        """Run a call that needs autograd, or that is no plain one, through torch's Python machinery."""
        values = stacks.read(self.arguments, stack, steal=True)
        args, kwargs = stacks.as_call(self.arguments, values)
        stacks.write_tensors(stack, _as_list(self._autograd(*args, **kwargs)))

    def make_outputs(self, stack: int, outs: int) -> None:
        """Call the body with the real arguments and leave its tensors' handles behind `outs`."""
        values = stacks.read(self.arguments, stack, steal=False)
        args, kwargs = stacks.as_call(self.arguments, values)
        with torch.no_grad():
            stacks.write_tensors(outs, _as_list(self.body(*args, **kwargs)))

    def register_lowering(self, lowering: Callable[..., object] | None = None) -> Any:
        """Do nothing: `torch.compile(backend="max")` comes with torch_mojo itself."""
        return lowering if lowering is not None else self.register_lowering

    def precompile(self, *args: Any, **kwargs: Any) -> str:
        """Return what was built; nothing can be built here."""
        return built_text(self._entry)


def _as_list(result: Any) -> list[Any]:
    if result is None:
        return []
    return list(result) if isinstance(result, (tuple, list)) else [result]


def check_parameters(qualname: str, schema: Schema, function: Callable[..., object]) -> None:
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


def called_from(depth: int) -> tuple[str, dict[str, object]]:
    """Return the file and the local names of the frame that is `depth` calls above the calling function."""
    frame = caller(depth + 1)
    return (frame.f_code.co_filename, dict(frame.f_locals)) if frame else ("", {})


def declare(
    qualname: str,
    library: Path,
    arguments: Schema,
    body: Callable[..., Any],
    tags: Sequence[torch.Tag] = (),
) -> ShippedOp:
    """Return the operator of this name out of a library; declared again, it gets the new body."""
    with _lock:
        known = _ops.get(qualname)
        if known is None or known.library != library:
            _ops[qualname] = ShippedOp(qualname, library, arguments, body, tags)
        elif known.body is not body:
            known.body = body
            known.autograd_info._backward_fn = known.autograd_info._setup_context_fn = None
        return _ops[qualname]


def mojo_op(
    qualname: str,
    *,
    mutates_args: str | Sequence[str] = (),
    tags: Sequence[torch.Tag] = (),
    **ignored: Any,
) -> Callable[[Callable[..., Any]], ShippedOp]:
    """Declare an operator whose kernels are in the library beside the calling file.

    Takes what `torch_mojo.mojo_op` takes; what says where the Mojo source is, is not looked at.

    Raises:
        MojoError: if there is no library, it has no such operator, or it cannot be used here.
        SignatureError: if it was built from another declaration.
    """
    file, names = called_from(1)

    def make(body: Callable[..., Any]) -> ShippedOp:
        library = library_with(qualname, file)
        arguments = schemas.infer(qualname, body, mutates_args, names)
        return declare(qualname, library, arguments, body, tags)

    return make


def library_with(qualname: str, file: str) -> Path:
    """Return the library beside a Python file, which must have this operator.

    Raises:
        MojoError: if it is not there, or has no such operator.
    """
    path = manifest.library_of(file)
    if not path.exists():
        raise MojoError(
            f"[{qualname}] torch_mojo is not installed, and there is no {path.name} in {path.parent}.\n"
            "Install torch_mojo, or install this package from a wheel that has its kernels."
        )
    about = manifest.read(path)
    if entry_of(about, qualname) is None:
        have = ", ".join(e["name"] for e in about["operators"])
        raise MojoError(
            f"[{qualname}] was not built into {path.name}; it has {have}.\n"
            "Build the wheel again, or install torch_mojo."
        )
    return path


def __getattr__(name: str) -> Any:
    """Say what of torch_mojo is not here."""
    if name.startswith("_"):
        raise AttributeError(name)
    raise AttributeError(
        f"torch_mojo.{name} is not part of the small loader in this package.\n"
        "Install torch_mojo itself to use it."
    )
