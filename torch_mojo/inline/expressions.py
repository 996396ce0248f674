"""Arithmetic on sizes, written once: Python works it out for the outputs, Mojo for the grid."""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch_mojo.errors import SignatureError

_OPERATORS: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
}
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "min": min,
    "max": max,
    "ceildiv": lambda a, b: -(-a // b),
}


class Expression:
    """An integer expression over names, `NAME.size`, `NAME.ndim`, `NAME.shape[i]`, min, max and ceildiv.

    Attributes:
        text: as it was written.
        names: the plain names in it.
        tensors: the names whose size, ndim or shape it uses.

    Raises:
        SignatureError: for any other syntax.
    """

    def __init__(self, text: str | int, where: str) -> None:
        self.text = str(text).strip()
        self._where = where
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except SyntaxError as e:
            raise SignatureError(
                f"{where}: {self.text!r} is no expression.\nWrite sizes as 'n', 'w // 2', 'y.size'."
            ) from e
        self.names: set[str] = set()
        self.tensors: set[str] = set()
        for name, attribute in self._check(self._tree):
            (self.tensors if attribute else self.names).add(name)

    def __repr__(self) -> str:
        return self.text

    def _check(self, node: ast.expr) -> Iterator[tuple[str, bool]]:
        match node:
            case ast.Constant(value=int()) if not isinstance(node.value, bool):
                return
            case ast.Name(id=name):
                yield name, False
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                yield from self._check(left)
                yield from self._check(right)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                yield from self._check(operand)
            case ast.Call(func=ast.Name(id=name), args=[a, b], keywords=[]) if name in _FUNCTIONS:
                yield from self._check(a)
                yield from self._check(b)
            case ast.Attribute(value=ast.Name(id=name), attr="size" | "ndim"):
                yield name, True
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=index
            ) if _integer(index) is not None:
                yield name, True
            case _:
                raise SignatureError(
                    f"{self._where}: {ast.unparse(node)!r} in {self.text!r} is not understood.\n"
                    "Use ints, names, + - * // %, min(a, b), max(a, b), ceildiv(a, b), "
                    "x.size, x.ndim and x.shape[0]."
                )

    @property
    def symbol(self) -> str | None:
        """The name, if the expression is nothing else."""
        return self._tree.id if isinstance(self._tree, ast.Name) else None

    @property
    def constant(self) -> int | None:
        """The value, if the expression is a number."""
        return int(self.text) if isinstance(self._tree, ast.Constant) else None

    def evaluate(self, names: Mapping[str, Any], shapes: Mapping[str, Any] | None = None) -> Any:
        """Return the value.

        Args:
            names: ints, known or symbolic.
            shapes: the shape of each tensor.
        """

        def value(node: ast.expr) -> Any:
            match node:
                case ast.Constant(value=number):
                    return number
                case ast.Name(id=name):
                    return names[name]
                case ast.BinOp(left=left, op=op, right=right):
                    return _OPERATORS[type(op)][1](value(left), value(right))
                case ast.UnaryOp(operand=operand):
                    return -value(operand)
                case ast.Call(func=ast.Name(id=name), args=[a, b]):
                    return _FUNCTIONS[name](value(a), value(b))
                case ast.Attribute(value=ast.Name(id=name), attr="ndim"):
                    return len((shapes or {})[name])
                case ast.Attribute(value=ast.Name(id=name)):
                    total: Any = 1
                    for size in (shapes or {})[name]:
                        total = total * size
                    return total
                case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name)), slice=index):
                    return (shapes or {})[name][_integer(index)]
            raise AssertionError(ast.dump(node))

        return value(self._tree)

    def mojo(self, ranks: Mapping[str, int]) -> str:
        """Return the same as Mojo text, over Ints of the same names and the operands of the body."""

        def text(node: ast.expr) -> str:
            match node:
                case ast.Constant(value=number):
                    return str(number)
                case ast.Name(id=name):
                    return name
                case ast.BinOp(left=left, op=op, right=right):
                    return f"({text(left)} {_OPERATORS[type(op)][0]} {text(right)})"
                case ast.UnaryOp(operand=operand):
                    return f"(-{text(operand)})"
                case ast.Call(func=ast.Name(id=name), args=[a, b]):
                    return f"{name}(Int({text(a)}), Int({text(b)}))"
                case ast.Attribute(value=ast.Name(id=name), attr="ndim"):
                    return str(ranks[name])
                case ast.Attribute(value=ast.Name(id=name)):
                    return f"{name}.size()"
                case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name)), slice=index):
                    i, rank = _integer(index), ranks[name]
                    if i is None or not -rank <= i < rank:
                        raise SignatureError(
                            f"{self._where}: {name} has {rank} dimension(s), and {self.text!r} asks for "
                            f"number {i}.\nCorrect the expression, or the call."
                        )
                    return f"{name}.shape[{i % rank}]"
            raise AssertionError(ast.dump(node))

        return text(self._tree)


def _integer(node: ast.expr) -> int | None:
    """Return the value of a literal integer, which may be negative."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
    return None
