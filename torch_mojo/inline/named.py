"""An inline kernel declared with named operands: shapes, dtypes, grid and checks follow from it."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torch_mojo.dispatch.keys import Key, TensorKey
from torch_mojo.dtypes import TO_MOJO
from torch_mojo.inline.declaration import Declaration, number
from torch_mojo.inline.operands import REST, Operand, argument
from torch_mojo.inline.shapes import Grid, Parameter, Shapes
from torch_mojo.inline.text import Program, Tensor


class Named(Shapes, Declaration):
    """A declaration by names."""

    def __init__(
        self,
        label: str,
        body: str,
        header: str,
        inputs: Mapping[str, str],
        outputs: Mapping[str, str],
        params: Mapping[str, Parameter],
        grid: Grid,
        threadgroup: Grid | None,
        init: Mapping[str, float],
        atomic: Sequence[str],
        mutates: Sequence[str],
        **common: Any,
    ) -> None:
        Declaration.__init__(self, label, body, header, **common)
        Shapes.__init__(
            self, label, inputs, outputs, params, grid, threadgroup, init, atomic, mutates
        )
        self.check_used([o.name for o in self.inputs], [o.name for o in self.outputs])

    def _parts(self) -> list[object]:
        return [
            [(o.name, o.text) for o in self.inputs],
            [(o.name, o.text) for o in self.outputs],
            [(n, type(v).__name__, v) for n, v in self.params.items()],
            [e.text for e in self.grid],
            [e.text for e in self.threadgroup],
            sorted((n, repr(v)) for n, v in self.init.items()),
            self.atomic,
            self.mutates,
        ]

    def fixed(self, name: str) -> tuple[torch.dtype | None, int | None]:
        (operand,) = [o for o in self.inputs if argument(o.name) == name]
        dtype = operand.dtype if isinstance(operand.dtype, torch.dtype) else None
        dims = operand.dims or ()
        return dtype, None if REST in dims else len(dims)

    def in_key(self, index: int) -> bool:
        return index >= len(self.inputs)

    def program(
        self,
        values: Sequence[object],
        keys: Sequence[Key],
        outs: Sequence[TensorKey],
        graph: bool = False,
    ) -> Program:
        params = dict(zip(self.params, values[len(self.inputs) :], strict=True))
        tensors: list[Tensor] = []
        for operand, key in zip(self.outputs, outs, strict=True):
            tensors.append(self._tensor(operand, key, "Output"))
        for operand, found in zip(self.inputs, keys, strict=False):
            if isinstance(found, TensorKey):
                kind = "MutableInput" if operand.name in self.mutates else "Input"
                tensors.append(self._tensor(operand, found, kind))
        dtypes = self.dtypes(
            [
                (o, self.dtype_of(o.name, k))
                for o, k in zip(self.inputs, keys, strict=False)
                if isinstance(k, TensorKey)
            ],
            params,
        )
        constants = {n: f"DType.{TO_MOJO[d]}" for n, d in dtypes.items()}
        constants |= {n: str(v) for n, v in params.items() if not isinstance(v, torch.dtype)}
        ranks = {t.name: t.rank for t in tensors}
        sizes = {
            n: f"{tensor}.shape[{at if at >= 0 else ranks[tensor] + at}]"
            for n, (tensor, at) in self.dims.items()
        }
        scalars = {o.name: _mojo_type(o.dtype) for o in self.inputs if o.is_scalar}
        ints = {n: v for n, v in params.items() if isinstance(v, int)}
        most = None
        if all(not e.tensors and e.names <= set(ints) for e in self.threadgroup):
            most = 1
            for expression in self.threadgroup:
                most *= int(expression.evaluate(ints))
            if not 1 <= most <= 1024:
                most = None  # the call is refused
        return Program(
            name=f"{self.label}_{self.digest}",
            body=self.body,
            header=self.header,
            tensors=tensors,
            scalars=scalars,
            hidden={},
            constants=constants,
            sizes=sizes,
            grid=[f"Int({e.mojo(ranks)})" for e in self.grid],
            threadgroup=[f"Int({e.mojo(ranks)})" for e in self.threadgroup],
            most=most,
            checked=self.checked,
        )

    def _tensor(self, operand: Operand, key: TensorKey, kind: str) -> Tensor:
        init = self.init.get(operand.name)
        return Tensor(
            operand.name,
            self.dtype_of(operand.name, key),
            key.rank,
            kind,
            self.is_row_major(key),
            storage=not self.row_contiguous,
            atomic=operand.name in self.atomic,
            init=None if init is None else number(init),
        )


def _mojo_type(dtype: torch.dtype | str) -> str:
    assert isinstance(dtype, torch.dtype)
    return "Bool" if dtype == torch.bool else f"Scalar[DType.{TO_MOJO[dtype]}]"
