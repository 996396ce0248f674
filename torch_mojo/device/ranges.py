"""Ranges, triangles, turned lines and masks of the device: Python around kernels/torch/places.mojo."""

import ctypes
import math
from typing import Any

import torch

from torch_mojo import torch_private
from torch_mojo.device.composed import composed
from torch_mojo.device.fallback import run_on_cpu
from torch_mojo.device.libraries import bits, opened, words

aten = torch.ops.aten
NUMBERS = (  # as in places.mojo
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8),
)


def _filled(
    op: torch._ops.OpOverload, out: torch.Tensor, first: Any, step: Any, last: Any = None
) -> torch.Tensor | None:
    """Fill an output with first + step * i, seen from `last` in its second half; None if that cannot be."""
    native = opened("places", op)
    if native is None or out.dtype not in NUMBERS:
        return None
    goal = (
        out if out.is_contiguous() else torch.empty(out.shape, dtype=out.dtype, device=out.device)
    )
    floating = last is not None or out.dtype.is_floating_point
    told = bits if floating else int
    native.tm_numbers(
        words(
            *(NUMBERS.index(out.dtype), goal.numel(), goal.data_ptr(), floating),
            *(told(first), told(step), last is not None, bits(last or 0)),
        )
    )
    return out if goal is out else out.copy_(goal)


@composed("arange.start_out")
def _arange(start: Any, end: Any, step: Any = 1, *, out: torch.Tensor) -> torch.Tensor:
    op = aten.arange.start_out
    plain = not any(isinstance(v, complex) or not math.isfinite(v) for v in (start, end, step))
    if not plain or step == 0 or (end - start) * step < 0:  # torch says what is wrong
        return run_on_cpu(op, start, end, step, out=out)
    if out.dtype == torch.int64:
        begin, stop, by = int(start), int(end), int(step)
        if by == 0:
            return run_on_cpu(op, start, end, step, out=out)
        count = max(0, -((begin - stop) // by) if by > 0 else -((stop - begin) // -by))
    else:
        count = math.ceil((float(end) - float(start)) / step)
    if out.numel() != count:
        torch_private.resized_output(out, [count])
    made = _filled(op, out, start, step)
    return run_on_cpu(op, start, end, step, out=out) if made is None else made


@composed("linspace.out")
def _linspace(start: Any, end: Any, steps: int, *, out: torch.Tensor) -> torch.Tensor:
    op = aten.linspace.out
    if isinstance(start, complex) or isinstance(end, complex) or steps < 0:
        return run_on_cpu(op, start, end, steps, out=out)
    if out.numel() != steps:
        torch_private.resized_output(out, [steps])
    if not out.dtype.is_floating_point:
        start, end = int(start), int(end)
    step = (end - start) / (steps - 1) if steps > 1 else 0.0
    made = _filled(op, out, float(start), step, float(end if steps > 1 else start))
    return run_on_cpu(op, start, end, steps, out=out) if made is None else made


@composed("eye.out", "eye.m_out")
def _eye(n: int, m: int | None = None, *, out: torch.Tensor) -> torch.Tensor:
    m = n if m is None else m
    if n < 0 or m < 0:
        return run_on_cpu(aten.eye.m_out, n, m, out=out)
    torch_private.resized_output(out, [n, m]).zero_()
    out.diagonal().fill_(1)
    return out


# triangles


def _triangle(
    op: torch._ops.OpOverload, self: torch.Tensor, diagonal: int, out: torch.Tensor
) -> torch.Tensor:
    native = opened("places", op)
    if native is None or self.dim() < 2 or self.dtype != out.dtype:
        return run_on_cpu(op, self, diagonal, out=out)
    torch_private.resized_output(out, self.shape)
    source = self.contiguous()
    goal = out if out.is_contiguous() else torch.empty_like(source)
    rows, columns = self.shape[-2:]
    diagonal = max(-(rows + 1), min(diagonal, columns + 1))
    native.tm_triangles(
        words(
            *(self.element_size(), math.prod(self.shape[:-2]), rows, columns, diagonal),
            *(op is aten.triu.out, source.data_ptr(), goal.data_ptr()),
        )
    )
    return out if goal is out else out.copy_(goal)


@composed("tril.out")
def _tril(self: torch.Tensor, diagonal: int = 0, *, out: torch.Tensor) -> torch.Tensor:
    return _triangle(aten.tril.out, self, diagonal, out)


@composed("triu.out")
def _triu(self: torch.Tensor, diagonal: int = 0, *, out: torch.Tensor) -> torch.Tensor:
    return _triangle(aten.triu.out, self, diagonal, out)


def _places_of(lower: bool, row: int, col: int, offset: int, given: dict[str, Any]) -> torch.Tensor:
    whole = torch.ones(row, col, dtype=torch.bool, device=given.get("device") or "mojo")
    kept = whole.tril(offset) if lower else whole.triu(offset)
    return kept.nonzero().t().to(given.get("dtype") or torch.int64)


@composed("tril_indices")
def _tril_indices(row: int, col: int, offset: int = 0, **given: Any) -> torch.Tensor:
    return _places_of(True, row, col, offset, given)


@composed("triu_indices")
def _triu_indices(row: int, col: int, offset: int = 0, **given: Any) -> torch.Tensor:
    return _places_of(False, row, col, offset, given)


# lines in another order


def _turned(native: Any, x: torch.Tensor, dim: int, start: int, by: int) -> torch.Tensor:
    made = torch.empty_like(x)
    along, inner = x.shape[dim], math.prod(x.shape[dim + 1 :]) * x.element_size()
    native.tm_turn(
        words(
            *(0, along, inner, start, by, made.data_ptr(), x.data_ptr()),
            math.prod(x.shape[:dim]),
        )
    )
    return made


def _known(dims: Any, rank: int) -> list[int] | None:
    """Return dimensions from 0 on, or None if one is not there or comes twice."""
    found = [d + rank if d < 0 else d for d in dims]
    right = len(set(found)) == len(found) and all(0 <= d < rank for d in found)
    return found if right else None


@composed("roll")
def _roll(self: torch.Tensor, shifts: list[int], dims: list[int] = ()) -> torch.Tensor:  # type: ignore[assignment]
    native, rank = opened("places", aten.roll.default), self.dim()
    if not dims and len(shifts) == 1 and native is not None and rank > 0:
        return _roll(self.reshape(-1), shifts, [0]).reshape(self.shape)
    if native is None or rank == 0 or not dims or len(shifts) != len(dims):
        return run_on_cpu(aten.roll.default, self, shifts, dims)
    if not all(-rank <= d < rank for d in dims):
        return run_on_cpu(aten.roll.default, self, shifts, dims)
    made = self.contiguous()
    if made.numel() == 0:
        return made.clone()
    for shift, dim in zip(shifts, dims, strict=True):
        dim %= rank
        made = _turned(native, made, dim, -shift % made.shape[dim], 1)
    return made


@composed("flip")
def _flip(self: torch.Tensor, dims: list[int]) -> torch.Tensor:
    native, known = opened("places", aten.flip.default), _known(dims, max(self.dim(), 1))
    if native is None or known is None:
        return run_on_cpu(aten.flip.default, self, dims)
    made = self.contiguous()
    if made.numel() < 2 or not known:
        return made.clone()
    for dim in known:
        made = _turned(native, made, dim, made.shape[dim] - 1, -1)
    return made


# masks


def mask_of(self: torch.Tensor) -> torch.Tensor:
    """Return what is not zero, as bytes side by side."""
    return (self if self.dtype == torch.bool else self.ne(0)).contiguous()


def _shape(op: torch._ops.OpOverload, mask: torch.Tensor) -> tuple[Any, int] | None:
    """Return the library and how many elements of a mask are not zero."""
    native = opened("places", op)
    return (
        None if native is None else (native, native.tm_count(words(mask.data_ptr(), mask.numel())))
    )


@composed("nonzero")
def _nonzero(self: torch.Tensor) -> torch.Tensor:
    mask = mask_of(self)
    counted = _shape(aten.nonzero.default, mask)
    if counted is None:
        return run_on_cpu(aten.nonzero.default, self)
    native, found = counted
    places = torch.empty(self.dim(), found, dtype=torch.int64, device=self.device)
    sizes = words(*self.shape)
    native.tm_nonzero(
        words(
            *(mask.data_ptr(), mask.numel(), self.dim(), ctypes.addressof(sizes), found),
            places.data_ptr(),
        )
    )
    return places.t()


@composed("masked_select")
def _masked_select(self: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    op = aten.masked_select.default
    if mask.dtype != torch.bool or mask.device != self.device:
        return run_on_cpu(op, self, mask)
    source, wanted = (t.contiguous() for t in torch.broadcast_tensors(self, mask))
    counted = _shape(op, wanted)
    if counted is None:
        return run_on_cpu(op, self, mask)
    native, found = counted
    made = torch.empty(found, dtype=self.dtype, device=self.device)
    native.tm_select(
        words(
            *(wanted.data_ptr(), wanted.numel(), self.element_size()),
            *(source.data_ptr(), made.data_ptr()),
        )
    )
    return made
