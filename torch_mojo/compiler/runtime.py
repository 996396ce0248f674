"""Calling a compiled MAX graph with torch tensors."""

from __future__ import annotations

import ctypes
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


def _bind(tensor: torch.Tensor) -> Buffer:
    if tensor.is_cpu:
        return Buffer._from_dlpack(_Exporter(tensor))
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    return Buffer._from_dlpack(to_dlpack(tensor), driver_device(tensor.device), stream)


def _borrow(tensor: torch.Tensor) -> Buffer:
    """Bind a CPU tensor's address, without keeping its memory alive."""
    raw = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    return _bind(torch.frombuffer(raw, dtype=tensor.dtype).view(tensor.shape))


def _take_cpu(buffer: Buffer) -> torch.Tensor:
    return from_dlpack(buffer.__dlpack__())


def _take_cuda(buffer: Buffer) -> torch.Tensor:
    # torch's current stream waits for MAX's; memory that torch frees from now on is safe to reuse.
    return from_dlpack(buffer.__dlpack__(stream=torch.cuda.current_stream().cuda_stream))


def _on_cpu(node: fx.Node) -> bool:
    return node.meta["val"].device.type == "cpu"


def _span(t: torch.Tensor) -> tuple[int, int]:
    return t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()


_address, _size, _strides = torch.Tensor.data_ptr, torch.Tensor.size, torch.Tensor.stride

MOST_KEPT = 16  # places whose Buffers an island keeps


class Executable:
    """A compiled island.

    Called with the island's inputs (tensors and numbers), then the values of its symbols; returns
    its outputs with the dtypes, sizes and strides that torch promised, each in its own memory.

    Binding a tensor costs microseconds. On the CPU, Buffers are therefore kept by address: those of
    parameters, and all of them when all inputs lie where they lay before. Such a Buffer owns
    nothing: the caller's tensor holds the memory during a call, and nothing does afterwards.

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
        self._scalars = imported.scalars
        holders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        (results,) = next(n for n in gm.graph.nodes if n.op == "output").args
        self._indices = [i for i, _, _ in self._tensors]
        self._on_cpu = all(_on_cpu(holders[i]) for i in self._indices)
        fakes = [holders[i].meta["val"] for i in self._indices]
        self._sized = any(isinstance(s, torch.SymInt) for t in fakes for s in t.shape)
        self._takes = [_take_cpu if _on_cpu(n) else _take_cuda for n in results]
        self._inputs = len(holders)
        self._carried = [self._inputs + list(sizes).index(s) for s in imported.carried]
        self._positive = symbols.evaluator(positive, sizes) if positive else None
        finishers = [(i, _finisher(o, sizes)) for i, o in enumerate(imported.outputs)]
        self._finish = [(i, f) for i, f in finishers if f is not None]
        self._risky = risky
        self._parameters: dict[int, tuple[tuple[Any, ...], Buffer]] = {}
        self._places: dict[tuple[Any, ...], list[Buffer] | None] = {}

    def __call__(self, *args: Any) -> Sequence[torch.Tensor]:
        """Run the island."""
        count = self._inputs
        tensors = [args[i] for i in self._indices]
        place = (*map(_address, tensors), *map(_strides, tensors), *args[count:])
        if self._sized:
            place += (*map(_size, tensors),)
        buffers = self._places.get(place)
        if buffers is None or _forked:
            buffers = self._bind_all(args, place)
            if buffers is None:
                return self._eager(*args[:count])
        if self._scalars:
            scalars = [torch.tensor(args[i], dtype=dtype) for i, dtype in self._scalars]
            buffers = [*buffers, *map(_bind, scalars)]
        outputs = [take(b) for take, b in zip(self._takes, self._execute(buffers), strict=True)]
        self._separate(outputs, tensors, place)
        for i, finish in self._finish:
            outputs[i] = finish(outputs[i], args[count:])
        return outputs

    def _bind_all(self, args: tuple[Any, ...], place: tuple[Any, ...]) -> list[Buffer] | None:
        """Bind the inputs, apart from scalars; return None where eager torch has to run."""
        sizes = args[self._inputs :]
        if _forked or (self._positive is not None and 0 in self._positive(*sizes)):
            return None
        again = place in self._places
        lasting = self._on_cpu
        buffers: list[Buffer] = []
        for index, order, static in self._tensors:
            t = args[index]
            if not t.numel():
                return None
            plain = t.permute(order) if order is not None else t
            if not plain.is_contiguous() or plain.is_neg():
                lasting = False
                buffers.append(_bind(plain.contiguous().resolve_neg()))
            elif static:
                buffers.append(self._parameter(index, t, plain))
            else:
                buffers.append(_borrow(plain) if again and lasting else _bind(plain))
        for index in self._carried:
            buffers.append(_bind(torch.empty((args[index], 0), dtype=torch.int8)))
        if lasting:
            # A second call with these addresses makes a third likely.
            if len(self._places) >= MOST_KEPT:
                self._places = {}
            self._places[place] = buffers if again else None
        return buffers

    def _parameter(self, index: int, t: torch.Tensor, plain: torch.Tensor) -> Buffer:
        place = (t.data_ptr(), t.shape, t.stride())
        kept = self._parameters.get(index)
        if kept is None or kept[0] != place:
            # On CUDA the Buffer holds the memory, so that nothing else comes to lie there.
            kept = place, _borrow(plain) if plain.is_cpu else _bind(plain)
            self._parameters[index] = kept
        return kept[1]

    def _separate(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], place: tuple[Any, ...]
    ) -> None:
        """Copy each output that MAX put into an input's or another output's memory."""
        if self._risky:
            taken = [_span(t) for t in inputs]
            for i, t in enumerate(outputs):
                span = _span(t)
                if any(span[0] < end and start < span[1] for start, end in taken):
                    outputs[i] = t.clone()
                taken.append(span)
            return
        seen = set(place[: len(inputs)])
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
