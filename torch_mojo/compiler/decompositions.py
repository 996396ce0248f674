"""Which operators are written as others before a graph is lowered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch

from torch_mojo.aten.product_rules import grouped_mm
from torch_mojo.torch_private import find_overload

from ._private import core_aten_decompositions, global_decompositions, operator_names

aten = torch.ops.aten
Table = dict[torch._ops.OperatorBase, Callable[..., Any]]


# operators of other libraries that are one of torch's by another name
_OF_OTHERS = {"transformers::grouped_mm_fallback": grouped_mm}


def _random(op: object) -> bool:
    return isinstance(op, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in op.tags


def _each(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator on lists as one call of the plain operator for each item."""

    def run(*args: Any, **kwargs: Any) -> list[Any]:
        def at(value: Any, i: int) -> Any:
            return value[i] if isinstance(value, (list, tuple)) else value

        return [
            plain(*(at(a, i) for a in args), **{k: at(v, i) for k, v in kwargs.items()})
            for i in range(len(args[0]))
        ]

    return run


def _with_value(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Take by position the factor that the plain operator takes by name."""

    def run(x: Any, first: Any, second: Any, value: Any = 1) -> Any:
        return plain(x, first, second, value=value)

    return run


def _norm(x: torch.Tensor, ord: Any = 2, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.linalg.vector_norm(x, ord, dtype=dtype)


_OF_LISTS: dict[str, Callable[..., Any]] = {
    "addcdiv": _with_value(aten.addcdiv),
    "addcmul": _with_value(aten.addcmul),
    "norm": _norm,
}
_NOT_EACH = ("copy", "max")
_KEPT = (
    aten.lift.default,  # their argument is a real tensor
    aten.lift_fresh.default,
    aten.complex.default,  # torch's decompositions of these write into a view
    aten.polar.default,
)


def _foreach() -> Iterator[tuple[torch._ops.OpOverload, Callable[..., Any]]]:
    """Return the decompositions of torch's operators on lists of tensors."""
    for name in operator_names():
        if not name.startswith("aten::_foreach_") or name.endswith("out"):
            continue
        base, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(aten, base), overload or "default")
        plain = base.removeprefix("_foreach_")
        one = _OF_LISTS.get(plain) or getattr(aten, plain, None)
        if not op._schema.is_mutable and plain not in _NOT_EACH and one is not None:
            yield op, _each(one)


@cache
def _of_torch() -> Table:
    """Return torch's decompositions of what draws no random numbers; collecting them takes a second."""
    table: Table = {**global_decompositions(), **core_aten_decompositions(), **dict(_foreach())}
    return {op: f for op, f in table.items() if not _random(op) and op not in _KEPT}


def decompositions() -> Table:
    """Return the decompositions: torch's, and those that end in Mojo kernels.

    Left out is what has a lowering at present, or draws random numbers. Ours come before built-in
    lowerings, which take what they leave, and after a user's.
    """
    from torch_mojo.aten.decompositions import DECOMPOSITIONS

    from . import rules

    others = {
        op: rule
        for name, rule in _OF_OTHERS.items()
        if (op := find_overload(name)) is not None and rules.find(op) is None
    }
    torchs = {op: f for op, f in _of_torch().items() if rules.find(op) is None}
    ours = {op: f for op, f in DECOMPOSITIONS.items() if not rules.is_users(op)}
    return torchs | ours | others
