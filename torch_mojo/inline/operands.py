"""What an inline kernel takes and gives: names, dtypes, dims."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_mojo.dtypes import TO_MOJO, short
from torch_mojo.errors import SignatureError
from torch_mojo.inline.expressions import Expression

REST = "..."
_SHORT = {
    **{
        f"{k}{w}": f"{long}{w}"
        for k, long in (("i", "int"), ("u", "uint"))
        for w in (8, 16, 32, 64)
    },
    **{f"f{w}": f"float{w}" for w in (16, 32, 64)},
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
}
DTYPES: dict[str, torch.dtype] = {short(d): d for d in TO_MOJO}
DTYPES |= {k: DTYPES[v] for k, v in _SHORT.items()}

# Words that Mojo reads in its own way where an argument's name stands.
_RESERVED = frozenset(
    "and as assert async await break case class comptime continue def del deinit elif else except "
    "False finally fn for from global if imm import in inout is lambda let match mut None nonlocal not or out "
    "owned pass raise raises read ref return self Self struct trait True try unified var where while with "
    "yield".split()
)
_SOFT = frozenset(
    ("out", "ref", "mut", "read", "imm", "deinit", "var", "owned", "unified", "match")
)
ATTRIBUTES = {
    "thread_position_in_grid": "_thread.at",
    "threads_per_grid": "_thread.grid",
    "thread_position_in_threadgroup": "_thread.in_group()",
    "threadgroup_position_in_grid": "_thread.of_group()",
    "threads_per_threadgroup": "_thread.group",
    "threadgroups_per_grid": "_thread.groups()",
    "thread_index_in_threadgroup": "_thread.number()",
    "thread_index_in_simdgroup": "_thread.number() % WARP_SIZE",
    "simdgroup_index_in_threadgroup": "_thread.number() // WARP_SIZE",
    "simdgroups_per_threadgroup": "ceildiv(_thread.group.product(), WARP_SIZE)",
    "threads_per_simdgroup": "WARP_SIZE",
}
# What only a GPU has, and the words by which a body asks for it.
ONLY_GPU = (
    "barrier",
    "syncwarp",
    "warp",
    "Shared",
    "SHARED",
    "thread_idx",
    "block_idx",
    "block_dim",
    "grid_dim",
    "lane_id",
    "warp_id",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "threads_per_simdgroup",
)


def check_name(kernel: str, name: object, what: str) -> str:
    """Return a name that Mojo and torch both take.

    Raises:
        SignatureError: naming the kernel and the name.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z]\w*", name):
        raise SignatureError(
            f"[{kernel}] {what} {name!r} is no name.\nUse letters, digits and underscores, a letter first."
        )
    if name in ATTRIBUTES or (name in _RESERVED and name not in _SOFT):
        raise SignatureError(
            f"[{kernel}] {what} {name!r} already means something in the body.\nChoose another name."
        )
    return name


def argument(name: str) -> str:
    """Return the name under which a schema and a kernel's `execute` know an operand."""
    return f"{name}_" if name in _SOFT else name


@dataclass(frozen=True)
class Operand:
    """One operand as it was declared.

    Attributes:
        name: as the body calls it.
        dtype: a torch dtype, or the letter that stands for one.
        dims: a size each, REST for any number of them; None for a number.
    """

    name: str
    dtype: torch.dtype | str
    dims: tuple[Expression | str, ...] | None
    text: str

    @property
    def is_scalar(self) -> bool:
        return self.dims is None


def parse(kernel: str, name: str, text: object) -> Operand:
    """Return the operand of a declaration such as `T[n, w // 2, c]`, `f32[...]` or `i64`.

    Raises:
        SignatureError: naming the kernel and the operand.
    """
    match = re.fullmatch(r"\s*(\w+)\s*(?:\[(.*)\])?\s*", text) if isinstance(text, str) else None
    if match is None:
        raise SignatureError(
            f"[{kernel}] {name} is declared as {text!r}.\n"
            "Write a dtype and dims, such as 'T[n, 3]', 'f32[...]', or a dtype alone for a number."
        )
    word = match[1]
    dtype: torch.dtype | str
    if word in DTYPES:
        dtype = DTYPES[word]
    elif re.fullmatch(r"[A-Z]\d?", word):
        dtype = word
    else:
        raise SignatureError(
            f"[{kernel}] {name} has the unknown dtype {word!r}.\n"
            f"Use a capital letter for any dtype, or one of {', '.join(sorted(_SHORT))}, {', '.join(DTYPES)}."
        )
    assert isinstance(text, str)
    if match[2] is None:
        return Operand(name, dtype, None, text.strip())
    parts = split(match[2])
    dims = tuple(REST if p == REST else Expression(p, f"[{kernel}] {name}") for p in parts)
    if dims.count(REST) > 1:
        raise SignatureError(f"[{kernel}] {name} has '...' twice.\nUse it once.")
    return Operand(name, dtype, dims, text.strip())


def split(text: str) -> list[str]:
    """Return the parts between the commas that stand in no parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    parts = [p.strip() for p in parts]
    return parts[:-1] if parts[-1] == "" else parts


class Dims:
    """Solves the dims of the inputs, and checks them against each other."""

    def __init__(self, kernel: str, known: Mapping[str, Any]) -> None:
        self._kernel = kernel
        self.sizes: dict[str, Any] = dict(known)
        self._seen: dict[str, str] = {}
        self.rest: tuple[Any, ...] | None = None
        self._rest_of = ""

    def _error(self, problem: str, advice: str) -> SignatureError:
        return SignatureError(f"[{self._kernel}] {problem}.\n{advice}")

    def take(self, operand: Operand, shape: Sequence[Any]) -> None:
        """Read the names that an input's shape gives; `check` comes when all inputs are read."""
        for d, dim in self._pairs(operand, shape):
            if isinstance(dim, Expression) and dim.symbol and dim.symbol not in self.sizes:
                self.sizes[dim.symbol] = shape[d]
                self._seen[dim.symbol] = f"{operand.name}.shape[{d}]"

    def _pairs(self, operand: Operand, shape: Sequence[Any]) -> list[tuple[int, Expression | str]]:
        dims = operand.dims
        assert dims is not None
        if REST not in dims:
            if len(shape) != len(dims):
                raise self._error(
                    f"{operand.name} has {len(shape)} dimension(s); {operand.text} has {len(dims)}",
                    f"Reshape {operand.name}, or correct the declaration.",
                )
            return list(enumerate(dims))
        at = dims.index(REST)
        many = len(shape) - len(dims) + 1
        if many < 0:
            raise self._error(
                f"{operand.name} has {len(shape)} dimension(s); {operand.text} needs at least {len(dims) - 1}",
                f"Reshape {operand.name}, or correct the declaration.",
            )
        rest = tuple(shape[at : at + many])
        if self.rest is None:
            self.rest, self._rest_of = rest, operand.name
        elif self._rest_of != operand.name and (
            len(rest) != len(self.rest) or any(a != b for a, b in zip(rest, self.rest, strict=True))
        ):
            raise self._error(
                f"'...' is {_shown(rest)} in {operand.name} and {_shown(self.rest)} in {self._rest_of}",
                "Give both the same shape.",
            )
        behind = [(d + many - 1, dims[d]) for d in range(at + 1, len(dims))]
        return [*enumerate(dims[:at]), *behind]

    def check(self, operand: Operand, shape: Sequence[Any]) -> None:
        """Refuse an input with a size that is not the declared one."""
        for d, dim in self._pairs(operand, shape):
            assert isinstance(dim, Expression)
            if self._seen.get(dim.text) == f"{operand.name}.shape[{d}]":
                continue
            wanted = dim.evaluate(self.sizes)
            if shape[d] != wanted:
                source = self._seen.get(dim.text)
                because = f", as {source}" if source else f" ({dim.text})" if dim.names else ""
                raise self._error(
                    f"{operand.name} has {int(shape[d])} in dimension {d}; "
                    f"{operand.text} says {int(wanted)}{because}",
                    f"Reshape {operand.name}, or correct the declaration.",
                )

    def shape(self, operand: Operand) -> tuple[Any, ...]:
        """Return the shape of an output."""
        found: list[Any] = []
        for d, dim in enumerate(operand.dims or ()):
            if isinstance(dim, Expression):
                size = dim.evaluate(self.sizes)
                if dim.symbol is None and size < 0:
                    raise self._error(
                        f"{operand.name} would have {int(size)} in dimension {d} ({dim.text})",
                        "Check the sizes of the inputs.",
                    )
                found.append(size)
            else:
                assert self.rest is not None
                found += self.rest
        return tuple(found)


def _shown(shape: Sequence[Any]) -> str:
    return str(tuple(int(n) for n in shape))
