"""Every private name of torch that this package uses, with the reason."""

import contextlib
import ctypes
import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch._library.autograd import Info as AutogradInfo
from torch._library.autograd import make_autograd_impl
from torch._prims_common import suggest_memory_format as suggest_memory_format
from torch.amp.autocast_mode import _cast

from torch_mojo.errors import ToolchainError

# Tensors to and from the handles of the stable C interface: torch offers no public way.
_from_handle = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr
_to_handle = torch._C._aoti.unsafe_alloc_void_ptr_from_tensor

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
F = TypeVar("F", bound=Callable[..., Any])
Entry = Callable[..., Any]

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class _BelowAutograd:
    """An operator as `make_autograd_impl` calls it: once autograd is done, what is left is an ordinary call.

    The C stack brings no dispatch keys, so there is none to redispatch on.
    """

    def __init__(self, overload: torch._ops.OpOverload) -> None:
        self._overload = overload

    def __getattr__(self, name: str) -> object:
        return getattr(self._overload, name)

    def __str__(self) -> str:
        return str(self._overload)

    def redispatch(self, keyset: object, *args: object, **kwargs: object) -> object:
        return self._overload(*args, **kwargs)


def make_autograd(overload: torch._ops.OpOverload, info: AutogradInfo) -> Callable[..., object]:
    """Return torch's own Python autograd kernel for an operator, as a function of its arguments."""
    impl = make_autograd_impl(_BelowAutograd(overload), info)  # type: ignore[arg-type]
    anything = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    return functools.partial(impl, anything)


def make_short_autograd(
    overload: torch._ops.OpOverload, info: AutogradInfo
) -> Callable[..., object]:
    """Return the same for calls that give all arguments in order: it takes two thirds of the time.

    Operators with lists of tensors, or with arguments that have to be named, get torch's own.
    """
    schema = overload._schema
    lists = any("List[Tensor]" in str(a.type) for a in (*schema.arguments, *schema.returns))
    lists = lists or any("Optional[Tensor]]" in str(a.type) for a in schema.arguments)
    if lists or any(a.kwarg_only or a.is_out for a in schema.arguments):
        return make_autograd(overload, info)
    below, call = torch._C._AutoDispatchBelowAutograd, entry(overload)

    class Short(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            with below():
                result = call(*args)
                if info._setup_context_fn:
                    info._setup_context_fn(ctx=ctx, inputs=args, output=result)
                return result

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if info._backward_fn is None:
                raise RuntimeError(
                    f"Trying to backward through {overload} but no autograd formula was registered. "
                    "Please use register_autograd to add one."
                )
            return info._backward_fn(ctx, *grads)

    Short.__name__ = Short.__qualname__ = (
        f"GeneratedBackwardFor_{overload.namespace}_{overload._opname}"
    )
    apply, wanted = Short.apply, torch._C._any_requires_grad

    def run(*args: Any) -> Any:
        if torch.is_grad_enabled() and wanted(*args):
            return apply(*args)
        with below():
            return call(*args)

    return run


def parse_schema(text: str) -> Any:
    """Return the parts of a schema text."""
    return torch._C.parse_schema(text)


_being_defined = threading.local()


@contextlib.contextmanager
def defining(qualname: str) -> Iterator[None]:
    """Keep lazy namespaces still while an operator is defined: torch looks whether the name is taken."""
    before = getattr(_being_defined, "names", ())
    _being_defined.names = (*before, qualname.split("::")[1].partition(".")[0])
    try:
        yield
    finally:
        _being_defined.names = before


class _Namespace(torch._ops._OpNamespace):
    """A namespace of torch.ops that registers an operator when it is first asked for."""

    __module__ = torch._ops.__name__  # FX prints and imports operators by it

    def __init__(self, name: str, declare: Callable[[str], None]) -> None:
        super().__init__(name)
        self._declare = declare

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name not in getattr(_being_defined, "names", ()):
            self._declare(name)
            if name in vars(self):
                return vars(self)[name]
        return super().__getattr__(name)


def lazy_namespace(name: str, declare: Callable[[str], None]) -> None:
    """Let `torch.ops.NAME.x` call `declare("x")` before torch looks for the operator."""
    setattr(torch.ops, name, _Namespace(name, declare))


def is_defined(qualname: str) -> bool:
    """Tell whether an operator overload exists, without binding it to torch.ops."""
    name, _, overload = qualname.partition(".")
    try:
        torch._C._get_schema(name, overload)
    except RuntimeError:
        return False
    return True


def find_overload(qualname: str) -> torch._ops.OpOverload | None:
    """Return the operator overload `namespace::name` or `namespace::name.overload`, or None."""
    namespace, name = qualname.split("::")
    packet, _, overload = name.partition(".")
    return getattr(
        getattr(getattr(torch.ops, namespace), packet, None), overload or "default", None
    )


def new_overload(qualname: str) -> torch._ops.OpOverload:
    """Return an overload that has just been defined; what torch keeps of the name's older ones is forgotten."""
    namespace, name = qualname.split("::")
    vars(getattr(torch.ops, namespace)).pop(name.partition(".")[0], None)
    found = find_overload(qualname)
    assert found is not None
    return found


def entry(overload: torch._ops.OpOverload) -> Callable[..., Any]:
    """Return what an overload calls: the same without a Python function around it (0.5 us of 4)."""
    return overload._op  # type: ignore[no-any-return]


def assume_constant_result(function: F) -> F:
    """Do what `torch.compiler.assume_constant_result` does, without importing Dynamo (3 s)."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def privateuse1_name() -> str:
    """Return what the PrivateUse1 device is called in this process."""
    return torch._C._get_privateuse1_backend_name()


def privateuse1_is_taken() -> bool:
    """Tell whether another library has named the private device."""
    return privateuse1_name() != "privateuseone"


def name_private_device(name: str, module: Any) -> None:
    """Name the private device; give it its module and the methods of tensors, modules and storages."""
    torch.utils.rename_privateuse1_backend(name)
    torch._register_device_module(name, module)
    torch.utils.generate_methods_for_privateuse1_backend()


def kernel_words(qualname: str, key: str) -> tuple[int, ...]:
    """Return functor, boxed and unboxed function of an operator's kernel for a dispatch key, as addresses.

    The object that has them is never freed: the kernel belongs to torch and stays.
    """
    kernel = torch._C._dispatch_get_computed_kernel_for_dispatch_key(qualname, key)
    _kept_kernels.append(kernel)
    value = ctypes.c_int64.from_address(id(kernel) + 16).value  # pybind11's object, then ours
    return tuple((ctypes.c_int64 * 3).from_address(value))


_kept_kernels: list[object] = []
PRINTING = torch._tensor_str.__file__  # the code that writes tensors as text


def register_inductor_device(name: str) -> None:
    """Let Inductor come as far with a device as to its code generators, instead of to a KeyError."""
    from torch._inductor.codegen.common import DeviceOpOverrides, register_device_op_overrides

    register_device_op_overrides(name, DeviceOpOverrides())


def is_composite(overload: torch._ops.OpOverload) -> bool:
    """Tell whether torch makes an operator of others, with gradients of their own."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(
        overload.name(), "CompositeImplicitAutograd"
    )


def is_structured(qualname: str) -> bool:
    """Tell whether torch makes an operator of its meta function and its `out` overload."""
    key = "CompositeExplicitAutogradNonFunctional"
    return torch._C._dispatch_has_kernel_for_dispatch_key(qualname, key)


def decomposition(overload: torch._ops.OpOverload) -> Callable[..., Any]:
    """Return what torch itself makes of an operator."""
    from torch._decomp import decomposition_table

    return decomposition_table[overload]


def forms(
    overload: torch._ops.OpOverload,
) -> list[tuple[torch._ops.OpOverload, list[str]]]:
    """Return the overloads that write what this one returns: into `out` arguments, by their names, or in place.

    Their other arguments have the same names and types.
    """
    base = overload_name(overload).partition(".")[0]
    wanted = [(a.name, str(a.real_type)) for a in overload._schema.arguments]
    found = []
    for packet in (base, f"{base}_"):
        for name in getattr(getattr(torch.ops.aten, packet, None), "overloads", list)():
            other = getattr(getattr(torch.ops.aten, packet), name)
            given = [(a.name, str(a.real_type)) for a in other._schema.arguments if not a.is_out]
            if other is not overload and given == wanted:
                found.append((other, [a.name for a in other._schema.arguments if a.is_out]))
    return found


def resized_output(out: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Give an `out` argument a size, with torch's warning if it had another that was not empty."""
    from torch._prims_common.wrappers import _maybe_resize_out

    return _maybe_resize_out(out, torch.Size(shape))


def with_conj(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that says that it is conjugated."""
    return torch._conj(tensor)


def with_neg(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that says that it is negated."""
    return torch._neg_view(tensor)


def tensor_from_handle(handle: int) -> torch.Tensor:
    """Return the tensor of a handle, which is used up."""
    return _from_handle(_new_capsule(handle, None, None))


def handle_of_tensor(tensor: torch.Tensor) -> int:
    """Return a new handle of a tensor."""
    pointer = _capsule_pointer(_to_handle(tensor), None)
    assert pointer is not None
    return pointer


def autocast(
    library: torch.library.Library,
    overload: torch._ops.OpOverload,
    device_type: str,
    dtype: torch.dtype | None,
) -> None:
    """Cast an operator's floating-point tensors under autocast, keyword arguments too.

    torch.library.register_autocast takes one fixed dtype and positional arguments only.
    """
    name = "PrivateUse1" if device_type == "mojo" else device_type.upper()
    key = getattr(torch._C.DispatchKey, "Autocast" + name)

    def cast(*args: Any, **kwargs: Any) -> Any:
        to = dtype or torch.get_autocast_dtype(device_type)
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return overload(
                *_cast(args, device_type, to),
                **{k: _cast(v, device_type, to) for k, v in kwargs.items()},
            )

    overload.py_kernels.pop(key, None)
    overload.py_impl(key)(cast)
    library.impl(overload_name(overload), cast, key.name)


def cast_tensors(values: Any, device_type: str, dtype: torch.dtype) -> Any:
    """Return arguments with the floating-point tensors of a device (not float64) in another dtype."""
    return _cast(values, device_type, dtype)


def without_autocast() -> Any:
    """Return a context in which calls go past the private device's autocast."""
    key = torch._C.DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key))


def overload_name(overload: torch._ops.OpOverload) -> str:
    """Return `name` or `name.overload`, as a Library takes it."""
    return overload.name().split("::")[1]


def keyset_of(tensor: torch.Tensor) -> Any:
    """Return the dispatch keys of a tensor."""
    return torch._C._dispatch_keys(tensor)


def keyset(*names: str) -> int:
    """Return the raw bits of dispatch keys by name."""
    bits = 0
    for name in names:
        bits |= torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)).raw_repr()
    return bits


def key_number(name: str) -> int:
    """Return c10's number of a dispatch key."""
    return int(getattr(torch._C.DispatchKey, name))


def gate_words() -> list[int]:
    """Return what a gate needs to see whether only autograd stands between tensors and their backend."""
    plain = keyset(
        "CPU",
        "CUDA",
        "PrivateUse1",
        "AutogradCPU",
        "AutogradCUDA",
        "AutogradPrivateUse1",
        "AutocastCPU",
        "AutocastCUDA",
        "AutocastPrivateUse1",
        "ADInplaceOrView",
    )
    modes = ("Python", "Functionalize", "FuncTorchDynamicLayerBackMode")
    return [plain, keyset_offset(), *(key_number(m) for m in modes)]


def bump_versions(
    library: torch.library.Library, overload: torch._ops.OpOverload, mutated: list[str]
) -> None:
    """Let an operator's calls bump the version counters of what it writes, below autograd."""
    names = [a.name for a in overload._schema.arguments]

    def bump(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        values = dict(zip(names, args, strict=False)) | kwargs
        written = [values.get(n) for n in mutated]
        flat = [t for v in written for t in (v if isinstance(v, (list, tuple)) else [v])]
        torch.autograd.graph.increment_version([t for t in flat if t is not None])
        return overload.redispatch(keyset & torch._C._after_ADInplaceOrView_keyset, *args, **kwargs)

    library.impl(overload_name(overload), bump, "ADInplaceOrView", with_keyset=True)


def trace_in_python(
    library: torch.library.Library, qualname: str, autograd: Callable[..., Any]
) -> None:
    """Send an operator's calls under a torch_dispatch mode, or on fake tensors, to Python autograd.

    A C kernel gets ints as values: on the way there a symbolic int would be fixed to today's value.
    """
    snapshot = torch._C.DispatchKey.PythonTLSSnapshot
    original = torch._C._dispatch_get_computed_kernel_for_dispatch_key(qualname, snapshot.name)
    own = torch._C.DispatchKeySet(snapshot).add(torch._C.DispatchKey.PythonDispatcher)

    def traced(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        first = (keyset - own).highestPriorityTypeId()
        if first.name.startswith("Autograd"):
            return autograd(*args, **kwargs)
        return original.call_boxed(keyset, *args, **kwargs)

    library.impl(qualname.split("::")[1], traced, snapshot.name, with_keyset=True)


@functools.cache
def expect_overrides() -> None:
    """Use up torch's one warning that a kernel stands on another: for a moment ours should.

    The warning comes once in a process; raised here it can be silenced, out of a C call it could not.
    """
    library = torch.library.Library("torch_mojo", "FRAGMENT")
    library.define("nothing() -> ()")
    others = [torch.library.Library("torch_mojo", "IMPL") for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for other in others:
            other.impl("nothing", lambda: None, "CPU", allow_override=True)
    for other in (*others, library):
        other._destroy()


def keyset_offset() -> int:
    """Return where c10::TensorImpl keeps its dispatch keys: found by looking, since no C function tells.

    Raises:
        ToolchainError: if this torch keeps them in another way.
    """
    samples = [
        torch.empty(0),
        torch.empty(2, 3, dtype=torch.int64).t(),
        torch.empty(0, device="meta"),
        torch.empty(1, dtype=torch.complex64).conj(),
    ]
    places = set(range(16, 26 * 8, 8))
    for tensor in samples:
        raw = keyset_of(tensor).raw_repr()
        memory = (ctypes.c_uint64 * 26).from_address(tensor._cdata)
        places &= {i * 8 for i, word in enumerate(memory) if word == raw}
    if len(places) != 1:
        raise ToolchainError(
            f"torch {torch.__version__} keeps a tensor's dispatch keys where torch_mojo cannot find them.\n"
            "Install a torch version that torch_mojo was tested with."
        )
    return places.pop()


def known(condition: bool | torch.SymBool) -> bool:
    """Return whether a condition on sizes is provable without a new guard."""
    if isinstance(condition, bool):
        return condition
    # imported late: it brings sympy, which takes a second
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(condition)


@contextlib.contextmanager
def recording(namespace: str) -> Iterator[list[tuple[str, tuple[Any, ...], dict[str, Any]]]]:
    """Note every call of a namespace's operators, on fake tensors: (qualified name, args, kwargs)."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func.namespace == namespace:
                found.append((func.name().removesuffix(".default"), args, kwargs or {}))
            return func(*args, **kwargs or {})

    with FakeTensorMode(), Recorder():
        yield found
