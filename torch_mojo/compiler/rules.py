"""The registry of lowerings: one function per ATen (or other) overload.

A lowering gets the node's arguments with every tensor as a `max.graph.TensorValue` and returns one
TensorValue, or a tuple for an operator with several results. The importer casts and checks the
result against what torch promised, so a lowering need not repeat the result's dtype.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from torch import fx

F = TypeVar("F", bound=Callable[..., Any])

FAMILIES = ("pointwise", "reduce", "view", "matmul", "nn", "create")


class NotLowered(Exception):
    """Raised by a lowering that cannot take this node; the node then runs in eager torch."""


@dataclass(frozen=True)
class Rule:
    """One lowering.

    Attributes:
        op: the overload.
        fn: the function; built-in ones take the `Context` first.
        where: file:line of the registration.
        refuse: says why a node cannot be lowered (None if it can), before any graph is built.
        builtin: whether `fn` takes a Context first.
        alias: the result may share memory with the first argument (views, clones, no-op casts).
    """

    op: torch._ops.OpOverload
    fn: Callable[..., Any]
    where: str
    refuse: Callable[[fx.Node], str | None] | None
    builtin: bool
    alias: bool = False


_builtin: dict[torch._ops.OpOverload, Rule] = {}
_user: dict[torch._ops.OpOverload, Rule] = {}
_loaded = False


def _caller(depth: int) -> str:
    frame = sys._getframe(depth)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _overload(op: object) -> torch._ops.OpOverload:
    op = getattr(op, "_opoverload", op)  # what torch.library.custom_op returns
    if isinstance(op, torch._ops.OpOverload):
        return op
    if isinstance(op, torch._ops.OpOverloadPacket):
        names = ", ".join(op.overloads())
        raise TypeError(
            f"lowering({op}) names an operator with the overloads {names}.\n"
            f"Pass one of them, for example torch.ops.{op}.{op.overloads()[0]}."
        )
    raise TypeError(
        f"lowering() got {op!r} of type {type(op).__name__}, which is no operator.\n"
        "Pass an overload such as torch.ops.aten.add.Tensor."
    )


def _add(table: dict[torch._ops.OpOverload, Rule], rule: Rule) -> None:
    if (first := table.get(rule.op)) is not None:
        raise ValueError(
            f"[{rule.op}] has a lowering from {first.where}; {rule.where} adds a second.\n"
            "Remove one of the two."
        )
    table[rule.op] = rule


def lowering(op: object) -> Callable[[F], F]:
    """Register a lowering of `op` for `torch.compile(backend="max")`, instead of a built-in one.

    The function is called with the operator's own arguments, every tensor as a
    `max.graph.TensorValue`, and returns a TensorValue, or a tuple of them for several results. It
    may raise `NotLowered(reason)`.

    Args:
        op: an overload such as `torch.ops.aten.add.Tensor`, or what
            `torch.library.custom_op` returned.

    Raises:
        TypeError: `op` is no single operator.
        ValueError: `op` has a user's lowering already.
    """
    overload = _overload(op)
    where = _caller(2)

    def register(fn: F) -> F:
        _add(_user, Rule(overload, fn, where, None, builtin=False))
        return fn

    return register


def builtin(
    *ops: torch._ops.OpOverload,
    refuse: Callable[[fx.Node], str | None] | None = None,
    alias: bool = False,
) -> Callable[[F], F]:
    """Register a lowering of this package for `ops`; the function takes a Context first."""
    where = _caller(2)

    def register(fn: F) -> F:
        for op in ops:
            _add(_builtin, Rule(op, fn, where, refuse, builtin=True, alias=alias))
        return fn

    return register


def load() -> None:
    """Import the built-in lowerings (and with them max)."""
    global _loaded
    if not _loaded:
        for family in FAMILIES:
            importlib.import_module(f"torch_mojo.compiler.lowerings.{family}")
        _loaded = True


def find(op: object) -> Rule | None:
    """Return the lowering of `op`: the user's, else the built-in one, else None."""
    load()
    if not isinstance(op, torch._ops.OpOverload):
        return None
    return _user.get(op) or _builtin.get(op)


def is_users(op: object) -> bool:
    """Return whether a user registered a lowering of `op`."""
    return op in _user


def lowered_ops() -> list[torch._ops.OpOverload]:
    """Return every overload that has a lowering."""
    load()
    return list({**_builtin, **_user})
