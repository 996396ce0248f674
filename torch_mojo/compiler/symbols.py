"""Sizes: torch's symbolic integers as MAX dimensions, and as numbers in every call."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import mul
from typing import Any

import sympy
import torch
from max.graph import Dim

from torch_mojo.torch_private import known as known

from ._private import (
    CleanDiv,
    FloorDiv,
    Identity,
    Mod,
    PythonMod,
    PythonPrinter,
)

Size = int | torch.SymInt


def expr(size: Size | torch.SymFloat) -> sympy.Expr:
    """Return the sympy expression of a size."""
    if isinstance(size, (torch.SymInt, torch.SymFloat)):
        return sympy.sympify(size.node.expr)
    return sympy.Integer(size)


def free(sizes: Iterable[Any]) -> list[sympy.Symbol]:
    """Return the symbols of `sizes`, in order of first use."""
    found: dict[sympy.Symbol, None] = {}
    for size in sizes:
        if isinstance(size, torch.SymInt):
            found.update(dict.fromkeys(sorted(expr(size).free_symbols, key=str)))
    return list(found)


def static(size: Size) -> int | None:
    """Return the value of a size that is no longer symbolic, or None."""
    value = expr(size)
    return int(value) if value.is_Integer else None


class UnknownExpression(ValueError):
    """An expression that no MAX dimension can express."""


class Names:
    """MAX dimension names of torch's symbols.

    The names are numbered by first use, so that one graph text, and with it one entry of MAX's disk
    cache, serves every process.
    """

    def __init__(self) -> None:
        """Start without names."""
        self.of: dict[sympy.Symbol, str] = {}

    def name(self, symbol: sympy.Symbol) -> str:
        """Return the dimension name of `symbol`."""
        return self.of.setdefault(symbol, f"s{len(self.of)}")

    def of_symbol(self, symbol: sympy.Symbol) -> Dim:
        """Return the dimension of a symbol."""
        return Dim(self.name(symbol))

    def dim(self, size: Size) -> Dim:
        """Return the dimension of `size`.

        Raises:
            UnknownExpression: the expression uses a function that MAX dimensions lack.
        """
        return self._dim(expr(size))

    def _dim(self, e: sympy.Expr) -> Dim:
        if e.is_Integer:
            return Dim(int(e))
        if isinstance(e, sympy.Symbol):
            return self.of_symbol(e)
        if isinstance(e, Identity):
            return self._dim(e.args[0])
        args = [self._dim(a) for a in e.args] if isinstance(e, _EXPRESSIBLE) else []
        if isinstance(e, sympy.Add):
            return sum(args[1:], args[0])
        if isinstance(e, sympy.Mul):
            return reduce(mul, args)
        if isinstance(e, (FloorDiv, CleanDiv)):
            return args[0] // args[1]
        if isinstance(e, (Mod, PythonMod)):
            return args[0] - args[0] // args[1] * args[1]
        if isinstance(e, sympy.Pow) and e.exp.is_Integer and e.exp > 0:
            return reduce(mul, [self._dim(e.base)] * int(e.exp))
        raise UnknownExpression(f"the size {e}")


_EXPRESSIBLE = (sympy.Add, sympy.Mul, FloorDiv, CleanDiv, Mod, PythonMod)


def evaluator(
    sizes: Sequence[Size], symbols: Sequence[sympy.Symbol]
) -> Callable[..., tuple[int, ...]]:
    """Compile `sizes` to one function of the values of `symbols`."""
    names = {s: sympy.Symbol(f"v{i}") for i, s in enumerate(symbols)}
    printer = PythonPrinter()
    texts = [printer.doprint(expr(size).xreplace(names)) for size in sizes]
    code = (
        f"lambda {', '.join(str(n) for n in names.values())}: ({''.join(t + ', ' for t in texts)})"
    )

    return eval(code, {"math": math, "torch": torch})  # our own text, printed from sizes
