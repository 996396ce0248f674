"""Ints and floats that are not known before the call, under which a declaration's body is traced."""

import operator
from collections.abc import Callable
from typing import Any

# Opcodes of kernels/torch/plan.mojo.
END, CONST, SIZE, STRIDE, VALUE, ITEM = range(6)
ADD, SUB, MUL, FLOORDIV, MOD, MIN, MAX, EQ, NE, LT, LE = range(6, 17)
_DEPTH = 32

_PYTHON: dict[int, Callable[[int, int], int]] = {
    ADD: operator.add,
    SUB: operator.sub,
    MUL: operator.mul,
    FLOORDIV: operator.floordiv,
    MOD: operator.mod,
    MIN: min,
    MAX: max,
    EQ: operator.eq,
    NE: operator.ne,
    LT: operator.lt,
    LE: operator.le,
}


class Untraceable(Exception):
    """The body does something that cannot become a plan."""


class Trace:
    """The guards of one trace."""

    def __init__(self) -> None:
        self.guards: list[list[int]] = []


class Sym:
    """An int that is not known before the call: its program, and its value in the first call."""

    __slots__ = ("code", "depth", "trace", "value")

    def __init__(self, trace: Trace, code: list[int], value: int, depth: int = 1) -> None:
        self.trace = trace
        self.code = code
        self.value = value
        self.depth = depth
        if depth > _DEPTH:
            raise Untraceable("an expression is too deep")

    def _combine(self, op: int, a: object, b: object) -> "Sym":
        left, right = symbolic(self.trace, a), symbolic(self.trace, b)
        if op in (FLOORDIV, MOD) and right.value == 0:
            raise ZeroDivisionError
        return Sym(
            self.trace,
            [*left.code, *right.code, op],
            int(_PYTHON[op](left.value, right.value)),
            max(left.depth, right.depth + 1),
        )

    def _compare(self, op: int, a: object, b: object, swap: bool = False) -> bool:
        if swap:
            a, b = b, a
        condition = self._combine(op, a, b)
        holds = bool(condition.value)
        self.trace.guards.append(condition.code if holds else [*condition.code, CONST, 0, EQ])
        return holds

    def __add__(self, other: object) -> "Sym":
        return self._combine(ADD, self, other)

    def __radd__(self, other: object) -> "Sym":
        return self._combine(ADD, other, self)

    def __sub__(self, other: object) -> "Sym":
        return self._combine(SUB, self, other)

    def __rsub__(self, other: object) -> "Sym":
        return self._combine(SUB, other, self)

    def __mul__(self, other: object) -> "Sym":
        return self._combine(MUL, self, other)

    def __rmul__(self, other: object) -> "Sym":
        return self._combine(MUL, other, self)

    def __floordiv__(self, other: object) -> "Sym":
        return self._combine(FLOORDIV, self, other)

    def __rfloordiv__(self, other: object) -> "Sym":
        return self._combine(FLOORDIV, other, self)

    def __mod__(self, other: object) -> "Sym":
        return self._combine(MOD, self, other)

    def __rmod__(self, other: object) -> "Sym":
        return self._combine(MOD, other, self)

    def __neg__(self) -> "Sym":
        return self._combine(SUB, 0, self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (int, Sym)) and self._compare(EQ, self, other)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, (int, Sym)) or self._compare(NE, self, other)

    def __lt__(self, other: object) -> bool:
        return self._compare(LT, self, other)

    def __le__(self, other: object) -> bool:
        return self._compare(LE, self, other)

    def __gt__(self, other: object) -> bool:
        return self._compare(LT, self, other, swap=True)

    def __ge__(self, other: object) -> bool:
        return self._compare(LE, self, other, swap=True)

    def __bool__(self) -> bool:
        return self._compare(NE, self, 0)

    def __int__(self) -> int:
        return self.__index__()

    def __index__(self) -> int:
        self._compare(EQ, self, self.value)
        return self.value

    def __hash__(self) -> int:
        return hash(self.__index__())


def symbolic(trace: Trace, value: object) -> Sym:
    """Return an int, known or not, as a symbolic one."""
    if isinstance(value, Sym):
        return value
    if isinstance(value, int):
        return Sym(trace, [CONST, int(value)], int(value))
    raise Untraceable(f"{type(value).__name__} in a size")


class Opaque(float):
    """A float whose value the body may hand on but not look at: it is no part of the key."""


def _refuse(self: object, *args: object) -> Any:
    raise Untraceable("the body looks at the value of a float")


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow eq ne lt le gt ge "
    "bool int float trunc floor ceil round abs neg pos hash divmod rdivmod repr str format"
).split():
    setattr(Opaque, f"__{_name}__", _refuse)
