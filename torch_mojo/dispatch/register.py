"""The operators of this process: defined for torch when declared, put on native functions when first called."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from torch_mojo import torch_private
from torch_mojo.dispatch.binding import Binding
from torch_mojo.dispatch.schema import Schema
from torch_mojo.errors import SignatureError
from torch_mojo.jit.sources import Source

if TYPE_CHECKING:
    from torch_mojo.dispatch.calls import Calls
    from torch_mojo.dispatch.keys import Key, TensorKey
    from torch_mojo.dispatch.router import Slot


class Declared(Protocol):
    """What is registered: what torch needs to know, and what the router asks."""

    qualname: str
    label: str
    source: Source
    arguments: Schema
    body: Callable[..., Any]
    overload: Any
    autograd_impl: Callable[..., Any]
    short_autograd: Callable[..., Any]  # of calls that give all arguments
    autograd_info: torch_private.AutogradInfo

    def kernel_for(
        self, values: Sequence[object], keys: "Sequence[Key]", outs: "Sequence[TensorKey]"
    ) -> tuple[Binding, Source]: ...

    def check_inputs(self, values: Sequence[object], keys: "Sequence[Key]") -> None: ...

    @property
    def calls(self) -> "Calls": ...

    def in_key(self, index: int) -> bool: ...


# All of these live as long as the process: a collected handle would take its operator with it.
_operators: dict[str, Declared] = {}
_libraries: dict[str, torch.library.Library] = {}
_waiting: dict[str, "_Waiting"] = {}
_slots: dict[str, "Slot"] = {}
_natives: list[int] = []
_lock = threading.RLock()


def define(op: Declared, tags: Sequence[torch.Tag] = ()) -> None:
    """Define an operator for torch. Nothing is built before its first call on real tensors.

    A second definition of one name replaces the first; the native functions stay, since somebody may hold
    the old operator.

    Raises:
        SignatureError: if the name is an operator that torch_mojo did not define.
    """
    with _lock, torch_private.defining(op.qualname):
        if op.qualname not in _operators and torch_private.is_defined(op.qualname):
            raise SignatureError(
                f"[{op.qualname}] is an operator of somebody else already.\nChoose another name."
            )
        if op.qualname in _libraries:
            _libraries.pop(op.qualname)._destroy()
        library = torch.library.Library(op.qualname.split("::")[0], "FRAGMENT")
        library.define(op.arguments.text, tags=(torch.Tag.pt2_compliant_tag, *tags))
        _libraries[op.qualname] = library
        torch.library.register_fake(op.qualname, op.body, lib=library)
        op.overload = torch_private.new_overload(op.qualname)
        if op.arguments.mutable:
            mutated = [a.name for a in op.arguments.args if a.mutated]
            torch_private.bump_versions(library, op.overload, mutated)
        op.autograd_impl = torch_private.make_autograd(op.overload, op.autograd_info)
        op.short_autograd = torch_private.make_short_autograd(op.overload, op.autograd_info)
        torch_private.trace_in_python(library, op.qualname, op.autograd_impl)
        _operators[op.qualname] = op
        if op.qualname in _slots:
            _slots[op.qualname].assign(op.calls, op.arguments, op.in_key)
        elif op.qualname not in _waiting:
            _waiting[op.qualname] = _Waiting(op)


def library_of(qualname: str) -> torch.library.Library:
    """Return the Library that holds an operator's Python registrations."""
    return _libraries[qualname]


def find(qualname: str) -> Declared | None:
    """Return the operator of a qualified name, or None."""
    return _operators.get(qualname)


def all_operators() -> dict[str, Declared]:
    """Return every operator by qualified name."""
    return dict(_operators)


class _Waiting:
    """Stands in for an operator's native functions until its first call on real tensors.

    It stays registered below them: another thread may be about to enter it.
    """

    def __init__(self, op: Declared) -> None:
        self._qualname = op.qualname
        namespace, name = op.qualname.split("::")
        self._library = torch.library.Library(namespace, "IMPL")
        takes_tensors = any(a.base == "Tensor" for a in op.arguments.args)
        self._keys = ("CPU", "CUDA", "PrivateUse1") if takes_tensors else ("BackendSelect",)
        for key in self._keys:
            self._library.impl(name, self._first_call, key, with_keyset=True)
        if takes_tensors:
            self._library.impl(name, self._autograd, "Autograd")

    def _autograd(self, *args: Any, **kwargs: Any) -> Any:
        return _operators[self._qualname].autograd_impl(*args, **kwargs)

    def _first_call(self, keyset: Any, *args: Any, **kwargs: Any) -> Any:
        self.start()
        return _operators[self._qualname].overload.redispatch(keyset, *args, **kwargs)

    def start(self) -> None:
        """Put the native functions in place."""
        from torch_mojo.dispatch.router import router

        native = router()  # may build; other threads wait inside
        with _lock:
            if self._qualname in _slots:
                return
            op = _operators[self._qualname]
            slot = native.new_slot()
            slot.assign(op.calls, op.arguments, op.in_key)
            functions = dict.fromkeys(self._keys, slot.kernel)
            if "CPU" in functions:
                functions["Autograd"] = slot.gate
            from torch_mojo.dispatch import libtorch

            torch_private.expect_overrides()
            for key, function in functions.items():
                _natives.append(libtorch.implement(self._qualname, key, function))
            _slots[self._qualname] = slot
