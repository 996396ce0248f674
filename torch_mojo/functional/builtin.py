"""How a built-in kernel is declared: once, as a function here and as `torch.ops.mojo.NAME`, registered on first use."""

import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, overload

import torch

from torch_mojo import batching, torch_private
from torch_mojo.dispatch import schema as schemas
from torch_mojo.jit import sources, toolchain
from torch_mojo.op import MojoOp

P = ParamSpec("P")
R = TypeVar("R")

NAMESPACE = "mojo"
LOWER = "lower"  # under autocast: cast to the block's dtype, as torch does for matrix products
AUTOCAST_DEVICES = ("cpu", "cuda", "mojo")

_functions: dict[str, list["Function[..., Any]"]] = {}  # by operator: one for each overload
_lock = threading.RLock()


def summed_to(grad: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a gradient in the shape and dtype of the argument that was broadcast."""
    grad = grad if grad.shape == like.shape else grad.sum_to_size(like.shape)
    return grad if grad.dtype == like.dtype else grad.to(like.dtype)


class Function(Generic[P, R]):
    """A built-in function.

    It takes torch tensors (real, fake, under torch.compile), `max.graph.TensorValue`s while a MAX graph is being
    built, or `max.experimental.tensor.Tensor`s, and returns the same kind.

    Attributes:
        qualname: the operator's name, `mojo::name` or `mojo::name.overload`.
        file: the kernel's Mojo file, or the Python file of a composition.
    """

    def __init__(
        self, body: Callable[P, R], name: str, file: str, namespace: str = NAMESPACE
    ) -> None:
        functools.update_wrapper(self, body)
        self.__name__ = body.__name__
        self.qualname = f"{namespace}::{name}"
        self.file = file
        self._body = body
        self._op: Callable[P, R] | None = None
        self._overload: Any = None
        _functions.setdefault(_packet(self.qualname), []).append(self)

    @property
    def op(self) -> Callable[P, R]:
        """The operator for torch tensors, registered now if it was not."""
        if self._op is None:
            with _lock:
                # in order: torch takes the first overload that fits
                for function in _functions[_packet(self.qualname)]:
                    if function is self or not torch_private.is_defined(function.qualname):
                        function._op = function._op or function._declare()
                        function._overload = torch_private.find_overload(function.qualname)
        assert self._op is not None
        return self._op

    def _declare(self) -> Callable[P, R]:
        raise NotImplementedError

    @property
    def schema(self) -> str:
        """The operator's schema, as text."""
        _ = self.op
        return str(self._overload._schema)

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the operator, or put it into the MAX graph that is being built."""
        if torch.compiler.is_compiling():
            _register(self.qualname)
            return self._overload(*args, **kwargs)
        if not (args and isinstance(args[0], torch.Tensor)):
            for value in (*args, *kwargs.values()):
                if type(value).__module__.startswith("max."):
                    from torch_mojo.compiler.inline import call

                    return call(self.op, args, kwargs)
        return (self._op or self.op)(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<torch_mojo.functional.{self.__name__}>"


@torch_private.assume_constant_result
def _register(qualname: str) -> bool:
    """Register an operator while Dynamo traces a call of it: it cannot follow the registration itself."""
    for function in _functions[_packet(qualname)]:
        _ = function.op
    return True


def _packet(qualname: str) -> str:
    return qualname.partition(".")[0]


class Kernel(Function[P, R]):
    """A built-in function that is one Mojo kernel. What is registered here reaches the operator when it is declared."""

    def __init__(
        self,
        body: Callable[P, R],
        name: str,
        file: str,
        kernel: str,
        constants: Mapping[str, object] | None,
        broadcast: bool,
        tags: Sequence[torch.Tag],
        autocast: torch.dtype | str | None,
        leading: Sequence[str],
        namespace: str,
    ) -> None:
        super().__init__(body, name, str(toolchain.kernels() / f"{file}.mojo"), namespace)
        self._kernel = kernel
        self._constants = constants
        self._broadcast = broadcast
        self._tags = tags
        self._autocast = autocast
        self._leading = leading
        self._backward: tuple[Callable[..., object], Callable[..., object] | None] | None = None
        self._vmap: Callable[..., object] | None = None

    def register_autograd(
        self, backward: Callable[..., object], *, setup_context: Callable[..., object] | None = None
    ) -> None:
        """Give the operator its backward formula, as `MojoOp.register_autograd`."""
        assert self._op is None, "register before the first call"
        self._backward = (backward, setup_context)

    def register_vmap(self, rule: Callable[..., object]) -> Callable[..., object]:
        """Give the operator another batching rule than the general one."""
        assert self._op is None, "register before the first call"
        self._vmap = rule
        return rule

    def _declare(self) -> Callable[P, R]:
        op = MojoOp(
            self.qualname,
            sources.from_path(Path(self.file), ()),
            schemas.infer(self.qualname, self._body, ()),
            self._body,
            self._kernel,
            self._constants,
            tags=self._tags,
            broadcast=self._broadcast,
        )
        if self._backward is not None:
            op.register_autograd(self._backward[0], setup_context=self._backward[1])
        names = list(inspect.signature(self._body).parameters)
        if self._vmap is not None:
            rule = self._vmap
        elif self._broadcast:
            rule = batching.pointwise(op.overload)
        else:
            rule = batching.rule(op.overload, names, self._leading)
        op.register_vmap(rule)
        if self._autocast is not None:
            dtype = self._autocast if isinstance(self._autocast, torch.dtype) else None
            for device in AUTOCAST_DEVICES:
                op.register_autocast(device, dtype)
        return op


class Composition(Function[P, R]):
    """A built-in function that is made of others: torch sees through it."""

    def _declare(self) -> Callable[P, R]:
        name = self.qualname.split("::")[1]
        library = torch.library.Library(NAMESPACE, "FRAGMENT")
        text = schemas.infer(self.qualname, self._body, ()).text
        with torch_private.defining(self.qualname):
            library.define(text, tags=(torch.Tag.pt2_compliant_tag,))
            library.impl(name, self._body, "CompositeImplicitAutograd")
            self._library = library  # collected, it would take the operator with it
            return torch_private.new_overload(self.qualname)


def kernel(
    name: str | None = None,
    *,
    file: str | None = None,
    kernel: str | None = None,
    constants: Mapping[str, object] | None = None,
    broadcast: bool = False,
    tags: Sequence[torch.Tag] = (),
    autocast: torch.dtype | str | None = None,
    leading: Sequence[str] = (),
    namespace: str = NAMESPACE,
) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Declare a built-in kernel; the decorated function is its schema, its documentation and its fake.

    Args:
        name: the operator's name in `torch.ops.mojo`, with `.overload` if there are several; default: the
            function's.
        file: the Mojo file in kernels/, without suffix; default: the name.
        kernel: the name it is registered under there; default: the name.
        constants: values of compile-time parameters of the kernel.
        broadcast: as for `mojo_op`.
        tags: as for `mojo_op`.
        autocast: what floating-point tensors are cast to under autocast: a dtype, or LOWER.
        leading: arguments that may have more leading dimensions, which the kernel goes through one by one: vmap
            over those costs nothing. Any other batched argument makes vmap loop.
        namespace: the operator's; what is not in `torch.ops.mojo` is no part of `torch_mojo.functional`.
    """

    def declare(body: Callable[P, R]) -> Kernel[P, R]:
        full = name or body.__name__
        plain = full.partition(".")[0]
        return Kernel(
            body,
            full,
            file or plain,
            kernel or plain,
            constants,
            broadcast,
            tags,
            autocast,
            leading,
            namespace,
        )

    return declare


def composition(body: Callable[P, R]) -> Composition[P, R]:
    """Declare a built-in function that calls others."""
    return Composition(body, body.__name__, body.__code__.co_filename)


def functions(namespace: str = NAMESPACE) -> dict[str, list[Function[..., Any]]]:
    """Return every built-in function of a namespace by name, all overloads of each."""
    start = f"{namespace}::"
    return {n.removeprefix(start): f for n, f in _functions.items() if n.startswith(start)}


def declare(name: str, namespace: str = NAMESPACE) -> None:
    """Register all overloads of a built-in function for torch, if it is one and the user has none of that name."""
    with _lock:
        for function in _functions.get(f"{namespace}::{name}", ()):
            if not torch_private.is_defined(function.qualname):
                _ = function.op
