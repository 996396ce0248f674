"""Named operands: what an operator of them looks like, and the shapes and dtypes of its outputs.

Wheels carry a copy of this file and of what it imports: it needs no compiler.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torch_mojo.dispatch import libtorch
from torch_mojo.dispatch import schema as schemas
from torch_mojo.dispatch.schema import Schema
from torch_mojo.dtypes import short
from torch_mojo.errors import SignatureError
from torch_mojo.inline.expressions import Expression
from torch_mojo.inline.operands import Dims, Operand, argument, check_name, parse, split

Allocation = tuple[Sequence[Any], torch.dtype, torch.device]
Parameter = bool | int | torch.dtype
Grid = str | int | Sequence[str | int]
_THREADGROUPS = {1: (256, 1, 1), 2: (32, 8, 1), 3: (32, 4, 2)}


class Labelled:
    """What a user has given a name.

    Attributes:
        label: the name.
    """

    def __init__(self, label: str) -> None:
        self.label = label

    def error(self, problem: str, advice: str) -> SignatureError:
        return SignatureError(f"[{self.label}] {problem}.\n{advice}")

    def schema(self, qualname: str) -> Schema:
        """Return the operator's schema."""
        name = qualname.split("::")[1].partition(".")[0]
        return schemas.parse(qualname, f"{name}{self._schema_text()}")

    def _schema_text(self) -> str:
        raise NotImplementedError

    def allocations(self, *args: Any, **kwargs: Any) -> list[Allocation]:
        """Return shape, dtype and device of each output; refuse arguments that do not fit."""
        raise NotImplementedError

    def make(self, *args: Any, **kwargs: Any) -> Any:
        """Return new, empty tensors for the outputs: the body of the operator."""
        made = [
            torch.empty(shape, dtype=dtype, device=device)
            for shape, dtype, device in self.allocations(*args, **kwargs)
        ]
        return made[0] if len(made) == 1 else tuple(made) if made else None


class Shapes(Labelled):
    """Named operands.

    Attributes:
        inputs, outputs: by name, in order.
        params: the compile-time parameters' defaults.
    """

    def __init__(
        self,
        label: str,
        inputs: Mapping[str, str],
        outputs: Mapping[str, str],
        params: Mapping[str, Parameter],
        grid: Grid,
        threadgroup: Grid | None,
        init: Mapping[str, float],
        atomic: Sequence[str],
        mutates: Sequence[str],
    ) -> None:
        Labelled.__init__(self, label)
        self.inputs = [self._operand(n, t, "input") for n, t in inputs.items()]
        self.outputs = [self._operand(n, t, "output") for n, t in outputs.items()]
        self.params = dict(params)
        self.init = dict(init)
        self.atomic = tuple(atomic)
        self.mutates = tuple(mutates)
        self.grid = self._three(grid, "grid")
        self.threadgroup = self._three(
            _THREADGROUPS[len(self.grid)] if threadgroup is None else threadgroup, "threadgroup"
        )
        self._check()

    def _operand(self, name: str, text: str, what: str) -> Operand:
        return parse(self.label, check_name(self.label, name, f"the {what}"), text)

    def _three(self, grid: Grid, what: str) -> list[Expression]:
        if isinstance(grid, str):
            text = grid.strip()
            parts: Sequence[str | int] = split(
                text[1:-1] if text.startswith("(") and text.endswith(")") and "," in text else text
            )
        else:
            parts = [grid] if isinstance(grid, int) else list(grid)
        if not 1 <= len(parts) <= 3:
            raise self.error(
                f"the {what} {grid!r} has {len(parts)} sizes; it takes one to three",
                f"Give the {what} as (x, y, z).",
            )
        return [Expression(p, f"[{self.label}] {what}") for p in parts]

    # checks of the declaration

    def _check(self) -> None:
        names = [o.name for o in (*self.inputs, *self.outputs)]
        tensors = [o.name for o in (*self.inputs, *self.outputs) if not o.is_scalar]
        for name, value in self.params.items():
            check_name(self.label, name, "the parameter")
            if not isinstance(value, (bool, int, torch.dtype)):
                raise self.error(
                    f"the parameter {name} is {value!r}; a compile-time parameter is an int, a bool or a dtype",
                    "Pass other values as inputs.",
                )
        for name in {n for n in names if names.count(n) > 1 or n in self.params}:
            raise self.error(f"{name} is declared twice", "Give each its own name.")
        for output in self.outputs:
            if output.is_scalar:
                raise self.error(
                    f"the output {output.name} is a number",
                    f"Write '{output.text}[]' for one element.",
                )
        if not self.outputs and not self.mutates:
            raise self.error(
                "it has no output", "Declare outputs=, or what it writes with mutates=."
            )
        for what, given in (
            ("init", self.init),
            ("atomic", self.atomic),
            ("mutates", self.mutates),
        ):
            allowed = [o.name for o in (self.inputs if what == "mutates" else self.outputs)]
            allowed += list(self.mutates) if what == "atomic" else []
            for name in given:
                if name not in allowed or name not in tensors:
                    kind = "input tensor" if what == "mutates" else "output"
                    raise self.error(
                        f"{what} names {name}, which is no {kind}",
                        f"It has {', '.join(allowed) or 'none'}.",
                    )
        for name, start in self.init.items():
            if not isinstance(start, (bool, int, float)):
                raise self.error(f"init of {name} is {start!r}", "Give a number.")
        for operand in self.inputs:
            if operand.is_scalar and isinstance(operand.dtype, str):
                raise self.error(
                    f"the number {operand.name} has the dtype {operand.dtype}, which nothing gives a value",
                    f"Name its dtype, such as f64, and write {operand.name}.cast[{operand.dtype}]() in the body.",
                )
        self._check_letters()
        self._check_names()

    def _check_letters(self) -> None:
        known = {o.dtype for o in self.inputs} | {
            n for n, v in self.params.items() if isinstance(v, torch.dtype)
        }
        for operand in self.outputs:
            if isinstance(operand.dtype, str) and operand.dtype not in known:
                raise self.error(
                    f"the output {operand.name} has the dtype {operand.dtype}, which no input has",
                    f'Name the dtype, or add it to params: {{"{operand.dtype}": torch.float32}}.',
                )

    def _check_names(self) -> None:
        """Refuse sizes that nothing gives a value."""
        tensors = {o.name: o for o in (*self.inputs, *self.outputs) if not o.is_scalar}
        ints = {n for n, v in self.params.items() if isinstance(v, int) and not isinstance(v, bool)}
        self.dims: dict[str, tuple[str, int]] = {}
        for operand in self.inputs:
            behind = False
            for d, dim in enumerate(operand.dims or ()):
                if not isinstance(dim, Expression):
                    behind = True
                elif dim.symbol and dim.symbol not in ints and dim.symbol not in self.dims:
                    at = d - len(operand.dims or ()) if behind else d
                    self.dims[dim.symbol] = (operand.name, at)
        for name in self.dims:
            letters = {o.dtype for o in (*self.inputs, *self.outputs)}
            if name in tensors or name in self.params or name in letters:
                raise self.error(f"{name} is a size and something else", "Rename one of them.")
            check_name(self.label, name, "the size")
        known = set(self.dims) | ints
        scalars = {o.name for o in self.inputs if o.is_scalar and _is_integral(o.dtype)}
        groups: list[tuple[str, Sequence[Any], set[str]]] = [
            (o.name, o.dims or (), known) for o in (*self.inputs, *self.outputs)
        ]
        groups += [("grid", self.grid, known | scalars)]
        groups += [("threadgroup", self.threadgroup, known | scalars)]
        for where, expressions, names in groups:
            for expression in expressions:
                if not isinstance(expression, Expression):
                    continue
                missing = (expression.names - names) | (expression.tensors - set(tensors))
                if missing:
                    raise self.error(
                        f"{where} uses {', '.join(sorted(missing))}, which no input gives a value",
                        f"It may use {', '.join(sorted(names)) or 'no name'}"
                        f" and the size of {', '.join(tensors)}.",
                    )
                if expression.tensors and where not in ("grid", "threadgroup"):
                    raise self.error(
                        f"{where} has the dim {expression.text}", "Use the names of dims there."
                    )
        for operand in self.outputs:
            if "..." in (operand.dims or ()) and not any(
                "..." in (o.dims or ()) for o in self.inputs
            ):
                raise self.error(
                    f"{operand.name} has '...', and no input has", "Write its dims out."
                )

    # the operator

    def _schema_text(self) -> str:
        parts = []
        for i, operand in enumerate(self.inputs):
            kind = "Tensor"
            if operand.name in self.mutates:
                kind = f"Tensor(a{i}!)"
            elif operand.is_scalar:
                kind = _schema_type(operand.dtype)
            parts.append(f"{kind} {argument(operand.name)}")
        if self.params:
            parts.append("*")
        for name, value in self.params.items():
            if isinstance(value, torch.dtype):
                parts.append(f"ScalarType {argument(name)}={libtorch.dtype_code(value)}")
            else:
                parts.append(f"{_schema_type(value)} {argument(name)}={value}")
        returns = ", ".join(["Tensor"] * len(self.outputs))
        return f"({', '.join(parts)}) -> {returns if len(self.outputs) == 1 else f'({returns})'}"

    def allocations(self, *args: Any, **kwargs: Any) -> list[Allocation]:
        params = self.params | {
            n: kwargs[argument(n)] for n in self.params if argument(n) in kwargs
        }
        dims = Dims(
            self.label,
            {n: v for n, v in params.items() if not isinstance(v, (bool, torch.dtype))},
        )
        tensors = [(o, t) for o, t in zip(self.inputs, args, strict=True) if not o.is_scalar]
        for operand, tensor in tensors:
            dims.take(operand, tensor.shape)
        for operand, tensor in tensors:
            dims.check(operand, tensor.shape)
        dtypes = self.dtypes([(o, t.dtype) for o, t in tensors], params)
        device = tensors[0][1].device if tensors else torch.get_default_device()
        return [
            (dims.shape(o), dtypes[o.dtype] if isinstance(o.dtype, str) else o.dtype, device)
            for o in self.outputs
        ]

    def dtypes(
        self, tensors: Sequence[tuple[Operand, torch.dtype]], params: Mapping[str, Any]
    ) -> dict[str, torch.dtype]:
        """Return what the letters stand for."""
        found = {n: v for n, v in params.items() if isinstance(v, torch.dtype)}
        source = dict.fromkeys(found, "the parameter")
        for operand, dtype in tensors:
            if isinstance(operand.dtype, torch.dtype):
                if operand.dtype != dtype:
                    raise self.error(
                        f"{operand.name} has dtype {short(dtype)}; {operand.text} takes {short(operand.dtype)}",
                        f"Convert it: {operand.name}.to({operand.dtype}).",
                    )
                continue
            wanted = found.setdefault(operand.dtype, dtype)
            if wanted != dtype:
                raise self.error(
                    f"{operand.name} has dtype {short(dtype)}; {operand.dtype} is {short(wanted)}, "
                    f"as {source[operand.dtype]}",
                    f"Convert it: {operand.name}.to({wanted}).",
                )
            source.setdefault(operand.dtype, operand.name)
        return found


def _is_integral(dtype: torch.dtype | str) -> bool:
    return isinstance(dtype, torch.dtype) and not dtype.is_floating_point and dtype != torch.bool


def _schema_type(value: object) -> str:
    if isinstance(value, torch.dtype):
        return "bool" if value == torch.bool else "float" if value.is_floating_point else "int"
    return "bool" if isinstance(value, bool) else "int"
