"""Calling a compiled MAX graph with torch tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from max.driver import Buffer
from torch import fx

from . import symbols
from ._private import from_dlpack, to_dlpack
from .importer import Imported, Output
from .types import driver_device

_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


# MAX's threads do not live on in a forked child; there, islands run in eager torch.
os.register_at_fork(after_in_child=_after_fork)


class _Exporter:
    """Hands a tensor to MAX past torch's Python side of DLPack, which refuses requires_grad."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **_: object) -> object:
        return to_dlpack(self.tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def _bind_cpu(tensor: torch.Tensor) -> Buffer:
    return Buffer._from_dlpack(_Exporter(tensor))


def _bind_cuda(tensor: torch.Tensor) -> Buffer:
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    return Buffer._from_dlpack(to_dlpack(tensor), driver_device(tensor.device), stream)


def _take_cpu(buffer: Buffer) -> torch.Tensor:
    return from_dlpack(buffer.__dlpack__())


def _take_cuda(buffer: Buffer) -> torch.Tensor:
    # torch's current stream waits for MAX's; memory that torch frees from now on is safe to reuse.
    return from_dlpack(buffer.__dlpack__(stream=torch.cuda.current_stream().cuda_stream))


def _spans(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    return [(t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in tensors]


class Executable:
    """A compiled island.

    Called with the island's inputs (tensors and numbers), then the values of its symbols; returns
    its outputs with the dtypes, sizes and strides that torch promised, each in its own memory.

    Args:
        imported: the graph's description.
        execute: runs the compiled model on a list of Buffers.
        gm: the same island for eager torch, for empty tensors and forked children.
        static: arguments that are parameters or buffers, whose MAX side is kept between calls.
        sizes: the island's symbols, in the order of the arguments.
        positive: sizes inside the graph that must not be zero.
        risky: an output may be part of an input's or of another output's memory.
    """

    def __init__(
        self,
        imported: Imported,
        execute: Callable[[list[Buffer]], list[Buffer]],
        gm: fx.GraphModule,
        *,
        static: set[int],
        sizes: Sequence[Any],
        positive: Sequence[torch.SymInt],
        risky: bool,
    ) -> None:
        """See the class."""
        self._execute = execute
        self._eager = gm.forward
        self._tensors = [(s.index, s.order, s.index in static) for s in imported.tensors]
        self._kept: dict[int, tuple[int, Buffer]] = {}
        self._scalars = imported.scalars
        on_cpu = imported.device.type == "cpu"
        self._bind = _bind_cpu if on_cpu else _bind_cuda
        self._take = _take_cpu if on_cpu else _take_cuda
        self._inputs = sum(n.op == "placeholder" for n in gm.graph.nodes)
        self._carried = [self._inputs + list(sizes).index(s) for s in imported.carried]
        self._positive = symbols.evaluator(positive, sizes) if positive else None
        self._finish = [_finisher(o, sizes) for o in imported.outputs]
        self._risky = risky

    def __call__(self, *args: Any) -> Sequence[torch.Tensor]:
        """Run the island."""
        count = self._inputs
        if _forked or (self._positive is not None and 0 in self._positive(*args[count:])):
            return self._eager(*args[:count])
        buffers: list[Buffer] = []
        bound: list[torch.Tensor] = []
        for index, order, static in self._tensors:
            t = args[index]
            if static and (kept := self._kept.get(index)) is not None and kept[0] == t.data_ptr():
                buffers.append(kept[1])
                bound.append(t)
                continue
            if not t.numel():
                return self._eager(*args[:count])
            plain = t.permute(order) if order is not None else t
            if not plain.is_contiguous():
                plain = plain.contiguous()
            if plain.is_neg():
                plain = plain.resolve_neg()
            buffer = self._bind(plain)
            if static and plain.data_ptr() == t.data_ptr():
                # The Buffer keeps the memory alive, so that no other tensor can come to lie at its
                # address.
                self._kept[index] = (t.data_ptr(), buffer)
            buffers.append(buffer)
            bound.append(plain)
        for index, dtype in self._scalars:
            buffers.append(_bind_cpu(torch.tensor(args[index], dtype=dtype)))
        for index in self._carried:
            buffers.append(_bind_cpu(torch.empty((args[index], 0), dtype=torch.int8)))
        outputs = [self._take(b) for b in self._execute(buffers)]
        self._separate(outputs, bound)
        symbols_ = args[count:]
        return [
            t if finish is None else finish(t, symbols_)
            for t, finish in zip(outputs, self._finish, strict=True)
        ]

    def _separate(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> None:
        """Copy each output that MAX put into an input's or another output's memory."""
        if self._risky:
            taken = _spans(inputs)
            for i, t in enumerate(outputs):
                (span,) = _spans([t])
                if any(span[0] < end and start < span[1] for start, end in taken):
                    outputs[i] = t.clone()
                taken.append(span)
            return
        seen = {t.data_ptr() for t in inputs}
        for i, t in enumerate(outputs):
            pointer = t.data_ptr()
            if pointer in seen:
                outputs[i] = t.clone()
            seen.add(pointer)


def _finisher(
    plan: Output, names: Sequence[Any]
) -> Callable[[torch.Tensor, Sequence[int]], torch.Tensor] | None:
    if plan.inverse is None and plan.expand is None and plan.strides is None:
        return None
    sizes = symbols.evaluator(plan.expand, names) if plan.expand is not None else None
    copied = (
        (symbols.evaluator(plan.strides[0], names), symbols.evaluator(plan.strides[1], names))
        if plan.strides is not None
        else None
    )

    def finish(t: torch.Tensor, values: Sequence[int]) -> torch.Tensor:
        if plan.inverse is not None:
            t = t.permute(plan.inverse)
        if copied is not None:
            held = torch.empty_strided(
                copied[0](*values), copied[1](*values), dtype=t.dtype, device=t.device
            )
            t = held.copy_(t)
        return t if sizes is None else t.expand(sizes(*values))

    return finish
