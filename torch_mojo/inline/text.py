"""The Mojo text of an inline kernel for one set of dtypes, ranks, layouts and parameters."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from torch_mojo.dtypes import TO_MOJO
from torch_mojo.inline.operands import ATTRIBUTES, argument

_NOT_CODE = re.compile(r'"""(?:.|\n)*?"""|"(?:\\.|[^"\\\n])*"|#[^\n]*')
_IMPORTS = """\
from std.math import ceildiv
from std.utils.index import IndexList

import extensibility
from extensibility import InputTensor, OutputTensor
from extensibility import _MutableInputTensor as MutableInputTensor
from max.gpu.host import DeviceContext
from max.gpu.primitives import warp
from max.gpu.sync import barrier

from inline import *
"""


@dataclass(frozen=True)
class Tensor:
    """An operand, as far as its text goes.

    Attributes:
        name: as the body calls it.
        dtype, rank: of the tensor.
        kind: `Input`, `MutableInput` or `Output`.
        row_major: whether it surely lies in row-major order.
        storage: whether one index counts places in memory.
        atomic: whether it is written by atomic operations.
        init: the Mojo text of what it is filled with first, or None.
    """

    name: str
    dtype: torch.dtype
    rank: int
    kind: str
    row_major: bool
    storage: bool = False
    atomic: bool = False
    init: str | None = None


@dataclass
class Program:
    """All that the text is made of.

    Attributes:
        name: the registered name.
        body, header: the user's text.
        tensors: outputs first.
        scalars: name and Mojo type of the other arguments that the body may use.
        hidden: the same for what only the grid and the fills use.
        constants: compile-time names and their Mojo text.
        sizes: names of sizes and their Mojo text.
        grid, threadgroup: Mojo text of three Ints each.
        most: the most threads of a threadgroup, if that is known.
        checked: whether every index is checked.
    """

    name: str
    body: str
    header: str
    tensors: Sequence[Tensor]
    scalars: Mapping[str, str]
    hidden: Mapping[str, str]
    constants: Mapping[str, str]
    sizes: Mapping[str, str]
    grid: Sequence[str]
    threadgroup: Sequence[str]
    most: int | None = None
    checked: bool = False
    pieces: list[tuple[int, int, int]] = field(default_factory=list)

    def text(self) -> str:
        """Return the Mojo text; `pieces` then says where header and body stand in it.

        A piece is (first line of the text, last line, first line of the header or body), counted from 1; the
        header comes first.
        """
        lines = _IMPORTS.splitlines()
        lines += [f"comptime {name} = {value}" for name, value in self.constants.items()]
        self.pieces = []
        if self.header.strip():
            lines += ["", *self._placed(lines, 1, dedented(self.header))]
        lines += ["", ""]
        for i, tensor in enumerate(self.tensors):
            lines.append(f"comptime _{tensor.name}_type = {self._type(i, tensor)}")
        lines += self._body(lines)
        lines += self._launch()
        lines += self._struct()
        return "\n".join(lines) + "\n"

    def _placed(self, before: Sequence[str], skipped: int, lines: list[str]) -> list[str]:
        first = len(before) + skipped + 1
        self.pieces.append((first, first + len(lines) - 1, 1))
        return lines

    def _type(self, i: int, tensor: Tensor) -> str:
        flags = [
            ("row_major", tensor.row_major, True),
            ("storage", tensor.storage, False),
            ("writable", tensor.kind != "Input", False),
            ("atomic", tensor.atomic, False),
            ("checked", self.checked, False),
        ]
        given = "".join(f", {name}={value}" for name, value, usual in flags if value != usual)
        return f"Operand[{_dtype(tensor.dtype)}, {tensor.rank}, id={i}{given}]"

    def _body(self, before: Sequence[str]) -> list[str]:
        used = words(self.body)
        taken = [f"_{t.name}: _{t.name}_type" for t in self.tensors]
        taken += [f"_{n}: {t}" for n, t in self.scalars.items() if n in used]
        taken += [f"_{n}: Int" for n in self.sizes if n in used]
        names = [t.name for t in self.tensors if t.name in used]
        names += [n for n in (*self.scalars, *self.sizes) if n in used]
        lines = ["", "", "@always_inline"]
        lines.append(f"def _body({', '.join(['_thread: Thread', *taken])}):")
        lines += [f"    var {n} = _{n}" for n in names]
        for tensor in self.tensors:
            views = {
                "shape": "shape",
                "strides": "elements_strides()",
                "ndim": "rank",
            }
            for suffix, value in views.items():
                if f"{tensor.name}_{suffix}" in used:
                    lines.append(f"    var {tensor.name}_{suffix} = _{tensor.name}.{value}")
        lines += [f"    var {n} = {value}" for n, value in ATTRIBUTES.items() if n in used]
        own = [f"    {line}".rstrip() for line in dedented(self.body)]
        return lines + self._placed([*before, *lines], 0, own)

    def _launch(self) -> list[str]:
        taken = [f"_{t.name}: _{t.name}_type" for t in self.tensors]
        taken += [f"_{n}: {t}" for n, t in self.scalars.items()]
        taken += [f"{n}: {t}" for n, t in self.hidden.items()]
        lines = ["", "", "def _launch[target: StaticString]("]
        lines += [f"    {t}," for t in taken]
        lines += ["    ctx: DeviceContext,", ") raises:"]
        lines += [f"    var {n} = _{n}" for n in (*(t.name for t in self.tensors), *self.scalars)]
        lines += [f"    var {n} = {value}" for n, value in self.sizes.items()]
        for tensor in self.tensors:
            if tensor.init is not None:
                value = f"{tensor.init}.cast[{_dtype(tensor.dtype)}]()"
                lines.append(f"    fill[target]({tensor.name}, {value}, ctx)")
        used = words(self.body)
        passed = [t.name for t in self.tensors] + [
            n for n in (*self.scalars, *self.sizes) if n in used
        ]
        captured = "".join(f", var {n}" for n in passed).removeprefix(", ")
        work = " + ".join(f"{t.name}.size()" for t in self.tensors)
        most = f", most={self.most}" if self.most else ""
        lines += [
            "",
            "    @always_inline",
            f"    def _each(_thread: Thread) {{{captured}}}:",
            f"        _body({', '.join(['_thread', *passed])})",
            "",
            f"    run[target{most}](",
            "        _each,",
            f"        Three({', '.join(self.grid)}),",
            f"        Three({', '.join(self.threadgroup)}),",
            f"        {work},",
            "        ctx,",
            "    )",
        ]
        return lines

    def _struct(self) -> list[str]:
        lines = ["", "", f'@extensibility.register("{self.name}")', "struct Kernel:"]
        lines += ["    @staticmethod", "    def execute[target: StaticString]("]
        for tensor in self.tensors:
            rank = f", rank={tensor.rank}" if tensor.rank else ""
            spec = f"{tensor.kind}Tensor[dtype={_dtype(tensor.dtype)}{rank}, ...]"
            lines.append(f"        {argument(tensor.name)}: {spec},")
        everything = {**self.scalars, **self.hidden}
        lines += [f"        {argument(n)}: {t}," for n, t in everything.items()]
        lines += ["        ctx: DeviceContext,", "    ) raises:"]
        made = [f"_{t.name}_type({argument(t.name)}, _faults.word())" for t in self.tensors]
        passed = [*made, *(argument(n) for n in everything), "ctx"]
        lines.append(f"        var _faults = Faults[target, {self.checked}](ctx)")
        lines += ["        _launch[target](", *(f"            {p}," for p in passed), "        )"]
        if self.checked:
            shapes = ", ".join(f"String(_{t.name}_shape)" for t in self.tensors)
            lines += [
                f"        var _{t.name}_shape = _{t.name}_type({argument(t.name)}, _faults.word()).shape"
                for t in self.tensors
            ]
            names = ", ".join(f'"{t.name}"' for t in self.tensors)
            lines.append(f"        _faults.report([{names}], [{shapes}])")
        return lines


def words(text: str) -> set[str]:
    """Return the words of a Mojo text, without its comments and strings."""
    return set(re.findall(r"[^\W\d]\w*", _NOT_CODE.sub(" ", text)))


def dedented(text: str) -> list[str]:
    """Return the lines of a text without their common indentation; none is added or taken away.

    The first line may stand behind the opening quotes, and then does not count.
    """
    lines = textwrap.dedent(text).split("\n")
    first, rest = lines[0], "\n".join(lines[1:])
    if first.strip() and first == first.lstrip() and not first.rstrip().endswith(":"):
        lines = [first, *textwrap.dedent(rest).split("\n")] if rest else [first]
    return [line.rstrip() for line in lines]


def _dtype(dtype: torch.dtype) -> str:
    return f"DType.{TO_MOJO[dtype]}"
