"""Calling a compiled MAX graph with torch tensors."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import torch
from max.driver import Buffer
from torch import fx

from torch_mojo.device.native import as_cpu, as_mojo
from torch_mojo.devices import on_host
from torch_mojo.errors import KernelError

from . import symbols
from ._private import from_dlpack, to_dlpack
from .importer import Imported, Output, TensorInput
from .types import driver_device, order

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
    if on_host(tensor.device):
        return Buffer._from_dlpack(_Exporter(tensor if tensor.is_cpu else as_cpu(tensor)))
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    return Buffer._from_dlpack(to_dlpack(tensor), driver_device(tensor.device), stream)


_NOTHING = torch.UntypedStorage(0)


def _borrow(tensor: torch.Tensor) -> Buffer:
    """Bind a tensor's address, without keeping its memory alive."""
    alias = tensor.data  # detach() would share the version that set_() raises
    if not alias.is_cpu:
        alias = as_cpu(alias)
    buffer = _bind(alias)
    with torch.inference_mode(alias.is_inference()):
        alias.set_(_NOTHING)  # the Buffer has the address; what it keeps alive is empty now
    return buffer


def _take_cpu(buffer: Buffer) -> torch.Tensor:
    return from_dlpack(buffer.__dlpack__())


def _take_cuda(buffer: Buffer) -> torch.Tensor:
    # torch's current stream waits for MAX's; memory that torch frees from now on is safe to reuse.
    return from_dlpack(buffer.__dlpack__(stream=torch.cuda.current_stream().cuda_stream))


def _take_mojo(index: int) -> Callable[[Buffer], torch.Tensor]:
    """Return how results become tensors of a host device, in the memory that MAX gave them."""
    return lambda buffer: as_mojo(_take_cpu(buffer), index)


def _take(node: fx.Node) -> Callable[[Buffer], torch.Tensor]:
    device = node.meta["val"].device
    if device.type == "mojo":
        return _take_mojo(device.index or 0)
    return _take_cpu if device.type == "cpu" else _take_cuda


def _of_kernel(text: str) -> str:
    """Return what a kernel said of an error that MAX reports, without MAX's own words."""
    said = re.search(r'kernel named "[^"]*":\n(.*?)(\n\n|$)', text, re.DOTALL)
    return said[1] if said else text


def _on_cpu(node: fx.Node) -> bool:
    return on_host(node.meta["val"].device)


def _span(t: torch.Tensor) -> tuple[int, int]:
    return t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()


_address, _size, _strides = torch.Tensor.data_ptr, torch.Tensor.size, torch.Tensor.stride
_is_neg = torch.Tensor.is_neg

Bound = tuple[torch.Tensor, Buffer]

MOST_KEPT = 16  # places whose Buffers an island keeps
MOST_BUFFERS = 2048  # that it keeps for its inputs, each by itself


class _Input:
    """A tensor that an island takes, and Buffers of it.

    Args:
        slot: where it is among the arguments, and the order of its dims in memory.
        fake: what torch traced.
        static: it is a parameter or a buffer.
        guarded: strides are as traced.
        most: how many Buffers that own nothing to keep; 0 where a GPU may read after the call.

    Attributes:
        kept: Buffers by address and, if it varies, sizes and strides; None for what was met once.
        sized: sizes vary from call to call.
        varies: sizes or strides do.
    """

    __slots__ = ("_checked", "_most", "_order", "_static", "index", "kept", "sized", "varies")

    def __init__(
        self, slot: TensorInput, fake: torch.Tensor, static: bool, guarded: bool, most: int
    ) -> None:
        """See the class."""
        self._most = most
        self.index = slot.index
        self.sized = any(isinstance(s, torch.SymInt) for s in fake.shape)
        self.varies = self.sized or not guarded
        self._order = slot.order
        self._static = static
        self._checked = not guarded or order(fake.shape, fake.stride()) is None
        self.kept: dict[Any, Buffer | None] = {}

    def plain(self, t: torch.Tensor) -> torch.Tensor:
        """Return the tensor with its dims in the order of its memory."""
        return t if self._order is None else t.permute(self._order)

    def bind(self, t: torch.Tensor, key: Any) -> Buffer | None:
        """Return a new Buffer of the tensor, or None if its memory is not dense as it was traced.

        Args:
            t: the tensor.
            key: its address and, if it varies, what tells its sizes and strides.
        """
        plain = self.plain(t)
        if self._checked and (not plain.is_contiguous() or plain.is_neg()):
            return None
        if not self._most:
            buffer = _bind(plain)
            if self._static:
                # The Buffer holds the memory, so that nothing else comes to lie there.
                self.kept = {key: buffer}
            return buffer
        lasts = self._static or key in self.kept
        if len(self.kept) >= self._most:
            self.kept = {}
        buffer = _borrow(plain) if lasts else _bind(plain)
        self.kept[key] = buffer if lasts else None
        return buffer


class Executable:
    """A compiled island.

    Called with the island's inputs (tensors and numbers), then the values of its symbols; returns
    its outputs with the dtypes, sizes and strides that torch promised, each in its own memory.

    Binding a tensor costs microseconds. On the CPU, Buffers are therefore kept by address, from an
    input's second call at one on, and the list of them when all inputs lie where they lay before.
    Such a Buffer owns nothing: the caller's tensor holds the memory during a call, and nothing
    does afterwards.

    Args:
        imported: the graph's description.
        execute: runs the compiled model on a list of Buffers.
        gm: the same island for eager torch, for empty tensors and forked children.
        static: arguments that are parameters or buffers, whose MAX side is kept between calls.
        guarded: arguments whose strides Dynamo's guards have checked in each call.
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
        guarded: set[int],
        sizes: Sequence[Any],
        positive: Sequence[torch.SymInt],
        risky: bool,
    ) -> None:
        """See the class."""
        self._execute = execute
        self._eager = gm.forward
        self._scalars: list[tuple[int, torch.dtype, dict[Any, Bound]]]
        self._scalars = [(i, dtype, {}) for i, dtype in imported.scalars]
        holders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        (results,) = next(n for n in gm.graph.nodes if n.op == "output").args
        indices = [s.index for s in imported.tensors]
        self._on_cpu = all(_on_cpu(n) for n in (*(holders[i] for i in indices), *results))
        most = max(MOST_KEPT, MOST_BUFFERS // max(len(indices), 1)) if self._on_cpu else 0
        self._tensors = [
            _Input(s, holders[s.index].meta["val"], s.index in static, s.index in guarded, most)
            for s in imported.tensors
        ]
        self._inputs = len(holders)
        self._pick = _picker(indices, self._inputs)
        loose = [i for i in indices if i not in guarded]
        self._loose = _picker(loose, self._inputs) if loose else None
        fakes = [holders[i].meta["val"] for i in indices]
        self._sized = not set(symbols.free(s for t in fakes for s in t.shape)) <= set(sizes)
        takes = [_take(n) for n in results]
        self._takes = None if all(t is _take_cpu for t in takes) else takes
        self._carried = [self._inputs + list(sizes).index(s) for s in imported.carried]
        self._positive = symbols.evaluator(positive, sizes) if positive else None
        finishers = [(i, _finisher(o, sizes)) for i, o in enumerate(imported.outputs)]
        self._finish = [(i, f) for i, f in finishers if f is not None]
        self._risky = risky
        self._places: dict[tuple[Any, ...], tuple[list[Buffer], frozenset[int]] | None] = {}

    def __call__(self, *args: Any) -> Sequence[torch.Tensor]:
        """Run the island."""
        count = self._inputs
        tensors = self._pick(args)
        place = (*map(_address, tensors), *args[count:])
        if self._loose is not None:
            loose = self._loose(args)
            place += (*map(_strides, loose), *map(_is_neg, loose))
        if self._sized:
            place += (*map(_size, tensors),)
        found = self._places.get(place)
        if found is None or _forked:
            found = self._bind_all(args, place)
            if found is None:
                return self._eager(*args[:count])
        buffers, addresses = found
        if self._scalars:
            scalars = [_scalar(args[i], dtype, kept) for i, dtype, kept in self._scalars]
            buffers = [*buffers, *(b for _, b in scalars)]
            tensors = (*tensors, *(t for t, _ in scalars))
            addresses = frozenset(map(_address, tensors))
        try:
            results = self._execute(buffers)
        except ValueError as e:
            raise KernelError(_of_kernel(str(e))) from e
        if self._takes is None:
            outputs = [from_dlpack(b.__dlpack__()) for b in results]
        else:
            outputs = [take(b) for take, b in zip(self._takes, results, strict=True)]
        if self._risky:
            self._separate(outputs, tensors)
        else:
            pointers = [*map(_address, outputs)]
            if not addresses.isdisjoint(pointers) or len(set(pointers)) < len(pointers):
                self._separate(outputs, tensors)
        for i, finish in self._finish:
            outputs[i] = finish(outputs[i], args[count:])
        return outputs

    def _bind_all(
        self, args: tuple[Any, ...], place: tuple[Any, ...]
    ) -> tuple[list[Buffer], frozenset[int]] | None:
        """Bind the inputs, apart from scalars; return None where eager torch has to run."""
        sizes = args[self._inputs :]
        if _forked or (self._positive is not None and 0 in self._positive(*sizes)):
            return None
        rest = place[len(self._tensors) :]
        buffers: list[Buffer | None] = []
        for address, slot in zip(place, self._tensors, strict=False):
            key = (address, rest) if slot.varies else address
            buffer = slot.kept.get(key)
            if buffer is None:
                t = args[slot.index]
                if slot.sized and not t.numel():
                    return None
                buffer = slot.bind(t, key)
            buffers.append(buffer)
        lasting = self._on_cpu and None not in buffers
        for i, slot in enumerate(self._tensors):
            if buffers[i] is None:
                plain = slot.plain(args[slot.index])
                buffers[i] = _bind(plain.contiguous().resolve_neg())
        for index in self._carried:
            buffers.append(_bind(torch.empty((args[index], 0), dtype=torch.int8)))
        found = buffers, frozenset(place[: len(self._tensors)])
        if lasting:
            # A second call with these addresses makes a third likely.
            again = place in self._places
            if len(self._places) >= MOST_KEPT:
                self._places = {}
            self._places[place] = found if again else None
        return found  # type: ignore[return-value]

    def _separate(self, outputs: list[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        """Copy each output that MAX put into an input's or another output's memory."""
        taken = [_span(t) for t in inputs]
        for i, t in enumerate(outputs):
            span = _span(t)
            if any(span[0] < end and start < span[1] for start, end in taken):
                outputs[i] = t.clone()
            taken.append(span)


def _picker(indices: list[int], count: int) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return a function that takes these of the first `count` arguments."""
    if indices == list(range(count)):
        return itemgetter(slice(count))
    if len(indices) > 1:
        return itemgetter(*indices)
    return lambda args: tuple(args[i] for i in indices)


def _scalar(value: Any, dtype: torch.dtype, kept: dict[Any, Bound]) -> Bound:
    """Return a number as a 0-d tensor, and bound; the last few are kept."""
    bound = kept.get(value)
    if bound is None or not value:  # 0.0 and -0.0 are one key
        if len(kept) >= MOST_KEPT:
            kept.clear()
        tensor = torch.tensor(value, dtype=dtype)
        kept[value] = bound = tensor, _bind(tensor)
    return bound


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
