"""An inline kernel declared by lists of names, as MLX's metal_kernel: each call says shapes, dtypes and grid."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_mojo.dispatch.keys import Key, TensorKey
from torch_mojo.dtypes import TO_MOJO
from torch_mojo.inline.declaration import Declaration
from torch_mojo.inline.operands import argument
from torch_mojo.inline.shapes import Allocation
from torch_mojo.inline.text import Program, Tensor

SIZES = 3  # numbers for grid and threadgroup
RADIX = 32  # more than there are dtypes
MOST_PACKED = 12  # of them fit into 63 bits
DTYPES = tuple(TO_MOJO)
DTYPE_CODES = {d: i for i, d in enumerate(DTYPES)}
_SCHEMA = {"tensor": "Tensor", "int": "int", "float": "float", "bool": "bool"}


class Listed(Declaration):
    """One kind of call: which inputs are numbers, which template values there are, how many dims the outputs have.

    The operator's arguments are the inputs, a list of sizes, what selects code (the outputs' dtypes, the template's
    values), the initial value and the device, if there are any; all by position. Torch takes its time for each
    argument and for each item of a list, so `pack_sizes` and `pack_code` make few of them.
    """

    def __init__(
        self,
        label: str,
        body: str,
        header: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        atomic_outputs: bool,
        kinds: Sequence[str],
        template: Sequence[tuple[str, str]],
        ranks: Sequence[int],
        init: str | None,
        **common: Any,
    ) -> None:
        super().__init__(label, body, header, **common)
        self.input_names = tuple(input_names)
        self.output_names = tuple(output_names)
        self.atomic_outputs = atomic_outputs
        self.kinds = tuple(kinds)
        self.template = tuple(template)
        self.ranks = tuple(ranks)
        self.init = init
        self.has_device = "tensor" not in kinds
        self.is_packed = is_packed([k for _, k in template], len(ranks))

    def _parts(self) -> list[object]:
        return [
            self.input_names,
            self.output_names,
            self.atomic_outputs,
            self.kinds,
            self.template,
            self.ranks,
            self.init,
        ]

    def _schema_text(self) -> str:
        parts = [
            f"{_SCHEMA[k]} {argument(n)}" for n, k in zip(self.input_names, self.kinds, strict=True)
        ]
        parts += ["int[] _sizes", "int _code" if self.is_packed else "int[] _code"]
        if self.init:
            parts.append(f"{self.init} _init")
        if self.has_device:
            parts.append("Device _device")
        returns = ", ".join(["Tensor"] * len(self.ranks))
        return f"({', '.join(parts)}) -> {returns if len(self.ranks) == 1 else f'({returns})'}"

    def in_key(self, index: int) -> bool:
        return index == len(self.kinds) + 1

    def allocations(self, *args: Any, **kwargs: Any) -> list[Allocation]:
        if self.has_device:
            device = args[-1]
        else:
            device = args[self.kinds.index("tensor")].device
        sizes, code = args[len(self.kinds) : len(self.kinds) + 2]
        found: list[Allocation] = []
        at = SIZES
        for rank, dtype in zip(self.ranks, self._unpacked(code), strict=False):
            found.append((sizes[at : at + rank], DTYPES[dtype], device))
            at += rank
        return found

    def _unpacked(self, code: Any) -> list[int]:
        """Return the outputs' dtypes and the template's values as numbers."""
        if not self.is_packed:
            return list(code)
        code, found = int(code), []
        for _ in range(len(self.ranks) + len(self.template)):
            found.append(code % RADIX)
            code //= RADIX
        return found

    def program(
        self,
        values: Sequence[object],
        keys: Sequence[Key],
        outs: Sequence[TensorKey],
        graph: bool = False,
    ) -> Program:
        init = "_init" if self.init else None
        tensors = [
            Tensor(
                name,
                self.dtype_of(name, key),
                key.rank,
                "Output",
                self.is_row_major(key),
                atomic=self.atomic_outputs,
                init=init,
            )
            for name, key in zip(self.output_names, outs, strict=True)
        ]
        inputs = [(n, k) for n, k in zip(self.input_names, keys, strict=False) if k is not None]
        for name, key in inputs:
            assert isinstance(key, TensorKey)
            dtype = self.dtype_of(name, key)
            tensors.append(
                Tensor(
                    name,
                    dtype,
                    key.rank,
                    "Input",
                    self.is_row_major(key),
                    storage=not self.row_contiguous,
                )
            )
        dtypes = [t.dtype for t in tensors if t.kind == "Input"]
        scalars = {
            n: f"Scalar[DType.{TO_MOJO[number_dtype(k, dtypes)]}]"
            for n, k in zip(self.input_names, self.kinds, strict=True)
            if k != "tensor"
        }
        sizes, code = values[len(self.kinds) : len(self.kinds) + 2]
        assert isinstance(sizes, (list, tuple))
        hidden = {}
        if graph:
            x, yz, group = (str(int(n)) for n in sizes[:SIZES])
        else:
            hidden["_sizes"] = f"IndexList[{len(sizes)}]"
            x, yz, group = (f"_sizes[{i}]" for i in range(SIZES))
        if self.init:
            hidden["_init"] = "Float64" if self.init == "float" else "Int64"
        constants = {}
        for (name, kind), value in zip(
            self.template, self._unpacked(code)[len(self.ranks) :], strict=True
        ):
            if kind == "dtype":
                constants[name] = f"DType.{TO_MOJO[DTYPES[value]]}"
            else:
                constants[name] = str(bool(value) if kind == "bool" else value)
        return Program(
            name=f"{self.label}_{self.digest}",
            body=self.body,
            header=self.header,
            tensors=tensors,
            scalars=scalars,
            hidden=hidden,
            constants=constants,
            sizes={},
            grid=[x, f"{yz} & 0xFFFFFFFF", f"{yz} >> 32"],
            threadgroup=[f"{group} & 0xFFFF", f"{group} >> 16 & 0xFFFF", f"{group} >> 32"],
            checked=self.checked,
        )


def pack_sizes(
    grid: Sequence[int], threadgroup: Sequence[int], output_shapes: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """Return the sizes of a call: the grid in two numbers, the threadgroup in one, the outputs' dims."""
    x, y, z = grid
    a, b, c = threadgroup
    return (x, y + z * 2**32, a + b * 2**16 + c * 2**32, *[n for s in output_shapes for n in s])


def is_packed(template: Sequence[str | None], outputs: int) -> bool:
    """Tell whether what selects code fits into one number: dtypes and bools do, ints do not."""
    return "int" not in template and len(template) + outputs <= MOST_PACKED


def pack_code(dtypes: Sequence[torch.dtype], values: Sequence[bool | int | torch.dtype]) -> Any:
    """Return what selects code: a number, or a list of them."""
    codes = [DTYPE_CODES[v] if isinstance(v, torch.dtype) else int(v) for v in (*dtypes, *values)]
    if not is_packed(["int" if type(v) is int else None for v in values], len(dtypes)):
        return tuple(codes)
    packed = 0
    for code in codes[::-1]:
        packed = packed * RADIX + code
    return packed


def number_dtype(kind: str, tensors: Sequence[torch.dtype]) -> torch.dtype:
    """Return the dtype of a Python number among tensors, as torch promotes it.

    A number takes the tensors' dtype unless it is of a higher kind: bool, int, float.
    """
    if not tensors:
        return {"bool": torch.bool, "int": torch.int64, "float": torch.float32}[kind]
    dtype = tensors[0]
    for other in tensors[1:]:
        dtype = torch.promote_types(dtype, other)
    if kind == "float" and not dtype.is_floating_point:
        return torch.float32
    return torch.int64 if kind == "int" and dtype == torch.bool else dtype
