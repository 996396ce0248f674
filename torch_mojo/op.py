"""`mojo_op`: a Mojo kernel declared as a torch operator."""

import ctypes
import functools
import inspect
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torch_mojo import torch_private
from torch_mojo.dispatch import libtorch, plans, schema as schemas, stack as stacks
from torch_mojo.dispatch.binding import Binding, Key, Specialization, TensorKey
from torch_mojo.dispatch.router import Slot, pending, router
from torch_mojo.dispatch.schema import Schema
from torch_mojo.errors import MojoError, SignatureError
from torch_mojo.jit import sources, toolchain
from torch_mojo.jit.build import Job, build
from torch_mojo.jit.cache import cache
from torch_mojo.jit.sources import Source

_SECOND_STAGE = -1
_registry: dict[str, "MojoOp"] = {}
_slots: dict[str, Slot] = {}
_registry_lock = threading.RLock()


@dataclass
class Built:
    """One specialization in use, as the router takes it."""

    description: str
    library: Path | None
    function: int
    plan: list[int] | None
    accelerator: int = 0
    context: int = 0
    device: int = 0
    fenced: bool = False


@functools.cache
def _open(library: Path) -> tuple[ctypes.CDLL, int]:
    toolchain.load_runtime()
    opened = ctypes.CDLL(str(library))
    return opened, ctypes.cast(opened.tm_run, ctypes.c_void_p).value or 0


class MojoOp:
    """A Mojo kernel as a torch operator; `torch.ops.NAMESPACE.NAME` behind it.

    Attributes:
        qualname: `namespace::name`.
        source: where the kernel comes from.
        schema: the operator's schema, as text.
    """

    def __init__(
        self,
        qualname: str,
        source: Source,
        schema: Schema,
        body: Callable[..., object],
        kernel: str,
        place: str,
    ) -> None:
        self.qualname = qualname
        self.source = source
        self.place = place
        self._schema = schema
        self._body = body
        self._kernel_name = kernel
        self._built: list[Built] = []
        self._binding_lock = threading.Lock()
        self._binding: Binding | None = None
        self._autograd_info = torch_private.AutogradInfo(None, None)
        self._lowering: Callable[..., object] | None = None
        if not source.precompiled:
            _ = self.binding  # a declaration that does not fit is told at once
        self.__name__ = qualname.split("::")[1]
        self.__doc__ = body.__doc__
        self._overload: Any = None
        self._autograd_impl: Callable[..., object] | None = None

    @property
    def binding(self) -> Binding:
        """How the declaration and the kernel fit together."""
        with self._binding_lock:
            if self._binding is None:
                kernel = self.source.kernel(self._kernel_name)
                self._binding = Binding(self.qualname, self._schema, kernel)
            return self._binding

    def in_key(self, index: int) -> bool:
        """Tell whether the value of this argument makes another specialization."""
        return self.binding.in_key(index)

    @property
    def schema(self) -> str:
        return f"{self.qualname.split('::')[0]}::{self._schema.text}"

    @property
    def specializations(self) -> list[str]:
        """Return what was built or loaded for this operator in this process."""
        return [b.description for b in self._built if b.library is not None]

    def __repr__(self) -> str:
        return f"MojoOp({self.schema})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if torch.compiler.is_compiling():
            return self._overload(*args, **kwargs)
        try:
            return self._overload(*args, **kwargs)
        except RuntimeError as e:
            found = pending(e)
            if found is None:
                raise
            raise found from None

    # what the router asks

    def specialize(self, stack: int, key: Sequence[int], outs: int) -> Built:
        """Build or load the specialization for a key.

        Args:
            stack: the call's arguments.
            key: the router's words.
            outs: 0, or where Python has left the outputs' handles.
        """
        values = stacks.read(self._schema, stack, steal=False)
        reader = _KeyReader(self._schema, key, self.binding)
        keys = reader.keys(values)
        if outs:
            return self._build(keys, values, reader.outputs())
        plan = self._trace(keys, values)
        if plan is None:
            self._check_early(keys, values)
            return Built("body", None, 0, None)
        built = self._build(keys, values, [_planned(plan, i) for i in range(self._schema.returns)])
        built.plan = plan.words
        return built

    def _check_early(self, keys: list[Key], values: list[object]) -> None:
        """Refuse what no outputs could make right, before the body runs on it."""
        binding = self.binding
        for name, key in zip((a.name for a in self._schema.args), keys, strict=True):
            argument = next((a for a in binding.kernel.arguments if a.name == name), None)
            if isinstance(key, TensorKey) and argument is not None:
                wanted = argument.constraints.get("rank", "")
                if wanted.isdigit() and int(wanted) != key.rank:
                    raise SignatureError(
                        f"[{self.qualname}] {name} has rank {key.rank}; the kernel takes rank {wanted}.\n"
                        f"Reshape it to {wanted} dimension(s)."
                    )

    def _build(self, keys: list[Key], values: list[object], outs: list[TensorKey]) -> Built:
        special = Specialization(self.binding, keys, values, outs)
        gpu = special.device.type == "cuda"
        job = Job(
            special.description,
            special.text(),
            self.source,
            accelerator=_architecture(special.device) if gpu else None,
            extra=(torch.__version__,),
        )
        library = build(job, cache()).library
        _, function = _open(library)
        context = self.binding.context and not gpu
        built = Built(
            special.description,
            library,
            function,
            None,
            accelerator=router().accelerator(special.device.index or 0) if gpu else 0,
            context=router().cpu_context() if context else 0,
            device=special.device.index or 0,
            fenced=gpu and not self.binding.stream,
        )
        self._built.append(built)
        return built

    def _trace(self, keys: list[Key], values: list[object]) -> plans.Plan | None:
        def arguments(trace: plans.Trace) -> tuple[list[object], dict[str, object]]:
            at, found = 0, []
            for arg, key, value in zip(self._schema.args, keys, values, strict=True):
                stand_in, words = _stand_in(trace, arg, key, value, at)
                found.append(stand_in)
                at += words
            return stacks.as_call(self._schema, found)

        return plans.trace(
            self._body, arguments, self._schema.returns, libtorch.dtype_code, libtorch.device_code
        )

    def make_outputs(self, stack: int, outs: int) -> None:
        """Call the body with the real arguments and leave its tensors' handles behind `outs`."""
        values = stacks.read(self._schema, stack, steal=False)
        args, kwargs = stacks.as_call(self._schema, values)
        with torch.no_grad():
            result = self._body(*args, **kwargs)
        made = (
            [] if result is None else list(result) if isinstance(result, (tuple, list)) else [result]
        )
        if len(made) != self._schema.returns or not all(isinstance(t, torch.Tensor) for t in made):
            raise SignatureError(
                f"[{self.qualname}] its body returned {_describe(result)}; the declaration says "
                f"{self._schema.returns} tensor(s).\nReturn new, empty tensors of the outputs' shapes."
            )
        inputs = [t.untyped_storage()._cdata for t in _tensors(values)]
        for i, tensor in enumerate(made):
            if tensor.untyped_storage()._cdata in inputs:
                raise SignatureError(
                    f"[{self.qualname}] output {i} of its body shares memory with an argument.\n"
                    "Return a new tensor, such as torch.empty_like(x)."
                )
        stacks.write_tensors(outs, made)

    def autograd(self, stack: int) -> None:
        """Run a call that needs autograd, or that is no plain one, through torch's Python machinery."""
        values = stacks.read(self._schema, stack, steal=True)
        args, kwargs = stacks.as_call(self._schema, values)
        assert self._autograd_impl is not None
        result = self._autograd_impl(*args, **kwargs)
        made = [] if result is None else list(result) if isinstance(result, (tuple, list)) else [result]
        stacks.write_tensors(stack, made)

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
        if self._schema.mutable:
            raise SignatureError(
                f"[{self.qualname}] writes to its arguments, and autograd has no formula for that.\n"
                "Declare a functional operator (no mutates_args) and register its backward."
            )
        self._autograd_info._backward_fn = backward
        self._autograd_info._setup_context_fn = setup_context

    def register_vmap(self, rule: Callable[..., object] | None = None) -> Any:  # noqa: ANN401
        """Register a batching rule, as `torch.library.register_vmap` takes it."""
        if rule is None:
            return self.register_vmap
        torch.library.register_vmap(self.qualname, rule, lib=_libraries[self.qualname])
        return rule

    def register_autocast(self, device_type: str, cast_inputs: torch.dtype) -> None:
        """Cast floating-point tensors (not float64) to `cast_inputs` under autocast on `device_type`."""
        torch.library.register_autocast(
            self.qualname, device_type, cast_inputs, lib=_libraries[self.qualname]
        )

    def register_fake(self, fake: Callable[..., object] | None = None) -> Any:  # noqa: ANN401
        """Register another fake implementation than the body, for sizes that depend on data.

        Raises:
            SignatureError: if its parameters are not those of the operator.
        """
        if fake is None:
            return self.register_fake
        _check_parameters(self.qualname, self._schema, fake)
        torch.library.register_fake(
            self.qualname, fake, lib=_libraries[self.qualname], allow_override=True
        )
        return fake

    def register_lowering(self, lowering: Callable[..., object] | None = None) -> Any:  # noqa: ANN401
        """Register how `torch.compile(backend="max")` lowers the operator, instead of its own kernel."""
        if lowering is None:
            return self.register_lowering
        from torch_mojo.compiler.rules import lowering as register

        self._lowering = register(self._overload)(lowering)
        return lowering

    def precompile(self, *args: Any, **kwargs: Any) -> str:  # noqa: ANN401
        """Build the specialization for arguments like these, without running it.

        Args:
            args, kwargs: example arguments; tensors may be on the meta device or fake, and then
                stand for contiguous CPU tensors.

        Returns:
            what was built.
        """
        bound = _bind_call(self._schema, self.qualname, args, kwargs)
        keys: list[Key] = [_key_of_value(a, v) for a, v in zip(self._schema.args, bound, strict=True)]
        plan = self._trace(keys, bound)
        if plan is not None:
            outs = [_planned(plan, i) for i in range(self._schema.returns)]
        else:
            fakes = stacks.as_call(self._schema, bound)
            result = self._body(*fakes[0], **fakes[1])
            made = [] if result is None else list(result) if isinstance(result, (tuple, list)) else [result]
            outs = [_tensor_key(t) for t in made]
        return self._build(keys, bound, outs).description


_libraries: dict[str, torch.library.Library] = {}


def _tensors(values: Sequence[object]) -> list[torch.Tensor]:
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [t for t in value if isinstance(t, torch.Tensor)]
    return found


def _describe(result: object) -> str:
    if isinstance(result, (tuple, list)):
        return f"{len(result)} values"
    return "None" if result is None else type(result).__name__


def _planned(plan: plans.Plan, i: int) -> TensorKey:
    """Return what is known of a planned output."""
    device_type, device_index = libtorch.device_code(plan.devices[i])
    layout = 0 if plan.contiguous[i] else 2
    dtype = libtorch.dtype_code(plan.dtypes[i])
    return TensorKey(dtype, plan.ranks[i], layout, device_type != 0, device_type, device_index)


def _layout_class(tensor: torch.Tensor) -> int:
    if tensor.is_contiguous():
        return 0
    if any(s == 0 and n != 1 for s, n in zip(tensor.stride(), tensor.shape, strict=True)):
        return 3
    return 2


def _tensor_key(tensor: torch.Tensor) -> TensorKey:
    device = torch.device("cpu") if tensor.device.type == "meta" else tensor.device
    device_type, device_index = libtorch.device_code(device)
    dtype = libtorch.dtype_code(tensor.dtype)
    return TensorKey(
        dtype, tensor.dim(), _layout_class(tensor), device_type != 0, device_type, max(device_index, 0)
    )


def _key_of_value(arg: schemas.Arg, value: object) -> Key:
    if arg.base != "Tensor" or value is None:
        return None
    if arg.is_list:
        assert isinstance(value, (list, tuple))
        return [None if t is None else _tensor_key(t) for t in value]
    assert isinstance(value, torch.Tensor)
    return _tensor_key(value)


def _bind_call(
    schema: Schema, qualname: str, args: tuple[object, ...], kwargs: dict[str, object]
) -> list[object]:
    """Return the values of all arguments in schema order, defaults filled in."""
    parsed = torch._C.parse_schema(schema.text)
    values: list[object] = []
    rest = dict(kwargs)
    for i, argument in enumerate(parsed.arguments):
        if i < len(args) and not argument.kwarg_only:
            values.append(args[i])
        elif argument.name in rest:
            values.append(rest.pop(argument.name))
        elif argument.has_default_value():
            values.append(argument.default_value)
        else:
            raise SignatureError(f"[{qualname}] {argument.name} is missing.\nPass {argument.name}.")
    if rest or len(args) > len(values):
        extra = ", ".join(rest) or f"{len(args) - len(values)} positional"
        raise SignatureError(f"[{qualname}] got unknown arguments: {extra}.\nSee {qualname}'s schema.")
    return values


def _stand_in(
    trace: plans.Trace, arg: schemas.Arg, key: Key, value: object, at: int
) -> tuple[object, int]:
    """Return what the body gets for an argument under trace, and the number of its flat words."""
    if arg.base == "Tensor":
        if isinstance(key, list):
            assert isinstance(value, list)
            items = [
                None if k is None else plans.TensorIn(trace, t, at + 3 * i, k.layout)
                for i, (k, t) in enumerate(zip(key, value, strict=True))
            ]
            return items, 3 * len(items)
        if key is None:
            return None, 0 if arg.is_list else 3
        assert isinstance(value, torch.Tensor)
        return plans.TensorIn(trace, value, at, key.layout), 3
    words = arg.flat_words
    if value is None:
        return None, words
    if arg.is_list:
        assert isinstance(value, list)
        if arg.base == "int":
            return [plans.Sym(trace, [plans.ITEM, at, i], n) for i, n in enumerate(value)], words
        if arg.base == "float":
            return [plans.Opaque(v) for v in value], words
        return value, words
    if arg.base == "int":
        assert isinstance(value, int)
        return plans.Sym(trace, [plans.VALUE, at], value), words
    if arg.base == "float":
        assert isinstance(value, (int, float))
        return plans.Opaque(value), words
    return value, words


class _KeyReader:
    """Reads the router's key words back, argument by argument, in the order in which it pushes them."""

    def __init__(self, schema: Schema, words: Sequence[int], binding: Binding) -> None:
        self._schema = schema
        self._words = words
        self._binding = binding
        self._at = 0

    def _next(self) -> int:
        self._at += 1
        return self._words[self._at - 1]

    def _tensor(self) -> TensorKey | None:
        word = self._next()
        return TensorKey.from_word(word) if word else None

    def keys(self, values: Sequence[object]) -> list[Key]:
        return [
            self._key(i, a, v) for i, (a, v) in enumerate(zip(self._schema.args, values, strict=True))
        ]

    def _key(self, index: int, arg: schemas.Arg, value: object) -> Key:
        if arg.optional:
            present = self._next()
            if not present:
                if arg.base == "Tensor" and not arg.is_list:
                    self._next()
                return None
        in_key = arg.kind(self._binding.in_key(index)) & schemas.IN_KEY
        if arg.is_list:
            length = self._next()
            if arg.base == "Tensor":
                return [self._tensor() for _ in range(length)]
            if in_key:
                self._at += length
            return None
        if arg.base == "Tensor":
            return self._tensor()
        if arg.base == "str":
            self._at += (self._next() + 7) // 8
        elif in_key:
            self._at += 1
        return None

    def outputs(self) -> list[TensorKey]:
        mark = self._next()
        assert mark == _SECOND_STAGE
        return [TensorKey.from_word(self._next()) for _ in range(self._schema.returns)]


@functools.cache
def _architecture(device: torch.device) -> str:
    """Return the compiler's name for a CUDA or ROCm device."""
    properties = torch.cuda.get_device_properties(device)
    name = getattr(properties, "gcnArchName", None)
    if name and torch.version.hip:
        return name.split(":")[0]
    return f"sm_{properties.major}{properties.minor}"


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


def _caller_file(depth: int) -> tuple[str | None, str]:
    frame = inspect.currentframe()
    for _ in range(depth):
        frame = frame.f_back if frame else None
    if frame is None:
        return None, "unknown"
    return frame.f_code.co_filename, f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _make_source(
    source: str | os.PathLike[str] | None,
    path: str | os.PathLike[str] | None,
    include: Sequence[str | os.PathLike[str]],
    caller: str | None,
    qualname: str,
) -> Source:
    if (source is None) == (path is None):
        raise SignatureError(
            f"[{qualname}] needs exactly one of source= (Mojo text) and path= (a file, folder or .mojoc)."
        )
    folders = [Path(p).expanduser().absolute() for p in include]
    if path is not None:
        place = Path(path).expanduser()
        if not place.is_absolute() and caller is not None and not place.exists():
            place = Path(caller).parent / place
        return sources.from_path(place, folders)
    assert source is not None
    if isinstance(source, os.PathLike):
        return sources.from_path(Path(source), folders)
    return sources.from_text(source, folders, cache().root / "sources", caller)


def _define(op: MojoOp, tags: Sequence[torch.Tag]) -> None:
    """Define the operator for torch; nothing is built before the first call on real tensors."""
    namespace, name = op.qualname.split("::")
    with _registry_lock:
        old = _registry.get(op.qualname)
        if old is None and hasattr(getattr(torch.ops, namespace), name):
            raise SignatureError(
                f"[{op.qualname}] is an operator of somebody else already.\nChoose another name."
            )
        if op.qualname in _libraries:
            _libraries.pop(op.qualname)._destroy()
        library = torch.library.Library(namespace, "FRAGMENT")
        library.define(op._schema.text, tags=(torch.Tag.pt2_compliant_tag, *tags))
        _libraries[op.qualname] = library
        torch.library.register_fake(op.qualname, op._body, lib=library)
        op._overload = getattr(getattr(torch.ops, namespace), name).default
        if op._schema.mutable:
            mutated = [a.name for a in op._schema.args if a.mutated]
            torch_private.bump_versions(library, op._overload, mutated)
        op._autograd_impl = torch_private.make_autograd(op._overload, op._autograd_info)
        _registry[op.qualname] = op
        if op.qualname in _slots:
            _slots[op.qualname].assign(op, op._schema, op.in_key)
        elif op.qualname not in _waiting:
            _waiting[op.qualname] = _Waiting(op)


class _Waiting:
    """Stands in for an operator's native functions until its first call on real tensors."""

    def __init__(self, op: MojoOp) -> None:
        self._qualname = op.qualname
        namespace, name = op.qualname.split("::")
        self._library = torch.library.Library(namespace, "IMPL")
        takes_tensors = any(a.base == "Tensor" for a in op._schema.args)
        self._keys = ("CPU", "CUDA") if takes_tensors else ("BackendSelect",)
        for key in self._keys:
            self._library.impl(name, self._first_call, key, with_keyset=True)
        if takes_tensors:
            self._library.impl(name, self._autograd, "Autograd")
        # a kernel that unregisters itself must outlive its own call
        self._alive = torch_private.registered_kernels(op.qualname, takes_tensors)

    def _autograd(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        impl = _registry[self._qualname]._autograd_impl
        assert impl is not None
        return impl(*args, **kwargs)

    def _first_call(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        self.start()
        return _registry[self._qualname]._overload.redispatch(keyset, *args, **kwargs)

    def start(self) -> None:
        """Put the native functions in place."""
        native = router()  # may take long; other threads wait inside
        with _registry_lock:
            if self._qualname in _slots:
                return
            op = _registry[self._qualname]
            slot = native.new_slot()
            slot.assign(op, op._schema, op.in_key)
            self._library._destroy()
            keys = dict.fromkeys(self._keys, slot.kernel)
            if "CPU" in keys:
                keys["Autograd"] = slot.gate
            for key, function in keys.items():
                _natives.append(libtorch.implement(self._qualname, key, function))
            _slots[self._qualname] = slot


_waiting: dict[str, _Waiting] = {}
_natives: list[int] = []


def find_op(overload: object) -> MojoOp | None:
    """Return the MojoOp behind a torch operator, or None."""
    name = getattr(overload, "name", None)
    qualname = name() if callable(name) else str(overload)
    return _registry.get(str(qualname).split(".")[0])


def declared() -> dict[str, MojoOp]:
    """Return every operator declared in this process, by qualified name."""
    return dict(_registry)


def mojo_op(
    qualname: str,
    *,
    source: str | os.PathLike[str] | None = None,
    path: str | os.PathLike[str] | None = None,
    include: Sequence[str | os.PathLike[str]] = (),
    kernel: str | None = None,
    mutates_args: str | Sequence[str] = (),
    tags: Sequence[torch.Tag] = (),
) -> Callable[[Callable[..., Any]], MojoOp]:
    """Declare a Mojo kernel as the torch operator `qualname`.

    The decorated function's annotations are the operator's schema. Its body returns new, empty tensors that
    look like the outputs: it is the fake implementation, and the allocation of every eager call. Only their
    shape, strides, dtype and device count; their values do not.

    Arguments bind to the kernel's `execute` by name; outputs are its remaining OutputTensors, in return
    order. An argument named like a compile-time parameter of `execute` or of its struct becomes that
    parameter. An optional argument needs a compile-time parameter `has_NAME: Bool`.

    Args:
        qualname: `namespace::name`. Declaring one name again replaces the operator.
        source: Mojo text, with a struct under `@extensibility.register("NAME")`.
        path: instead of source, a `.mojo` file, a folder of them, or a `.mojoc`.
        include: folders in which the kernel's imports are looked up.
        kernel: the registered name, if it is not the operator's.
        mutates_args: the arguments that the kernel writes.
        tags: more `torch.Tag`s for the operator.

    Raises:
        KernelNotFoundError: if the source registers no such kernel.
        SignatureError: if declaration and kernel do not fit.
    """
    caller, place = _caller_file(2)
    if qualname.count("::") != 1 or not all(p.isidentifier() for p in qualname.split("::")):
        raise SignatureError(f"{qualname!r} is no operator name.\nName it 'namespace::name'.")

    def declare(body: Callable[..., Any]) -> MojoOp:
        made = _make_source(source, path, include, caller, qualname)
        schema = schemas.infer(qualname, body, mutates_args)
        op = MojoOp(qualname, made, schema, body, kernel or qualname.split("::")[1], place)
        _define(op, tags)
        return op

    return declare


__all__ = ["MojoError", "MojoOp", "declared", "find_op", "mojo_op"]
