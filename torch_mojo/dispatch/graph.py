"""A declared operator as a node of a MAX graph: the same kernel, named as MAX names it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torch_mojo.dispatch import libtorch
from torch_mojo.dispatch.binding import Binding
from torch_mojo.dispatch.keys import CONTIGUOUS, TensorKey
from torch_mojo.dispatch.specialization import Specialization
from torch_mojo.dtypes import TO_MOJO
from torch_mojo.errors import SignatureError
from torch_mojo.jit.cache import cache
from torch_mojo.jit.sources import Source


@dataclass(frozen=True)
class GraphKernel:
    """What `max.graph.ops.custom` needs.

    Attributes:
        name: the registered name.
        path: the kernel library: a package folder, a `.mojo` file or a `.mojoc`.
        operands: in the kernel's order, `("arg", key, single)` with the position or the keyword of a tensor argument,
            `("scalar", value, dtype name)`, or `("absent", dtype name, rank)` for an optional tensor.
        singles: for each result, whether the kernel writes it as one element in one dimension, as it sees a
            `single` operand.
        broadcast: operands are expanded to the shape of the first result.
        parameters: compile-time parameters; dtypes are torch's.
    """

    name: str
    path: Path
    operands: tuple[tuple[object, ...], ...]
    parameters: Mapping[str, bool | int | float | str | torch.dtype]
    singles: tuple[bool, ...] = ()
    broadcast: bool = False


def fake_keys(values: Sequence[object]) -> list[Any]:
    """Return the keys of fake tensors in a MAX graph, where all are row-major; None for what is no tensor."""
    return [_fake_key(v) if isinstance(v, torch.Tensor) else None for v in values]


def _fake_key(tensor: torch.Tensor) -> TensorKey:
    code, index = libtorch.device_code(tensor.device)
    dtype = libtorch.dtype_code(tensor.dtype)
    return TensorKey(dtype, tensor.dim(), CONTIGUOUS, False, code, max(index, 0))


def graph_kernel(
    binding: Binding,
    source: Source,
    values: Sequence[object],
    outs: Sequence[torch.Tensor],
) -> GraphKernel | None:
    """Return the kernel as a graph node, or None if MAX cannot run it inside a graph.

    Args:
        binding: the declaration and its kernel.
        source: where the kernel comes from.
        values: one per argument of the schema; tensors may be fake.
        outs: fakes of the outputs.
    """
    schema = binding.schema
    if schema.mutable or source.include or source.flags or binding.stream or not schema.returns:
        return None
    tensors = [v for v in values if isinstance(v, torch.Tensor)] + list(outs)
    if any(t.dtype not in TO_MOJO for t in tensors):
        return None
    try:
        special = Specialization(binding, fake_keys(values), values, fake_keys(outs))
    except SignatureError:
        return None  # eager says what is wrong
    operands: list[tuple[object, ...]] = []
    for argument in binding.kernel.arguments:
        if argument.name not in binding.sources:
            continue
        index = binding.sources[argument.name]
        arg, value = schema.args[index], values[index]
        if arg.base == "Tensor":
            if value is None:
                absent, rank = special.absent(argument)
                operands.append(("absent", TO_MOJO[absent], rank))
                continue
            single = special.is_single(argument, special.seen[index])
            operands.append(("arg", arg.name if arg.kwarg_only else index, single))
            continue
        dtype = special.scalar_dtype(argument.type)
        if dtype is None or not isinstance(value, (int, float)):
            return None
        operands.append(("scalar", value, TO_MOJO[dtype]))
    singles = tuple(
        special.is_single(argument, key)
        for argument, key in zip(binding.outputs, special.outs, strict=True)
    )
    path = source.library_path(binding.kernel, cache().root / "sources")
    if path is None:
        return None
    return GraphKernel(
        binding.kernel.name,
        path,
        tuple(operands),
        special.parameters(),
        singles,
        binding.broadcast,
    )
