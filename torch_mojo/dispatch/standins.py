"""Stand-ins for tensors and for torch itself, under which a declaration's body is traced."""

import contextlib
import types
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from torch_mojo.dispatch.symints import SIZE, STRIDE, Sym, Trace, Untraceable

ROW_MAJOR, STRIDED, LIKE = range(3)  # kinds of outputs in kernels/torch/plan.mojo


class Shape(tuple):
    """Sizes; what `torch.Size` has beyond a tuple."""

    def numel(self) -> Any:
        total: Any = 1
        for size in self:
            total = total * size
        return total

    def __add__(self, other: Any) -> "Shape":
        return Shape(tuple.__add__(self, tuple(other)))

    def __getitem__(self, key: Any) -> Any:
        found = tuple.__getitem__(self, key)
        return Shape(found) if isinstance(key, slice) else found


class TensorIn:
    """Stands for a tensor argument: metadata only. `flat` is where its flat words begin."""

    is_sparse = False
    is_quantized = False
    requires_grad = False
    layout = torch.strided

    def __init__(self, trace: Trace, real: torch.Tensor, flat: int, layout_class: int) -> None:
        self._trace = trace
        self.flat = flat
        self._class = layout_class
        self.dtype = real.dtype
        self.device = real.device
        self.itemsize = real.dtype.itemsize
        self.shape = Shape(Sym(trace, [SIZE, flat, d], n) for d, n in enumerate(real.shape))
        self._strides = tuple(Sym(trace, [STRIDE, flat, d], n) for d, n in enumerate(real.stride()))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def is_cpu(self) -> bool:
        return self.device.type == "cpu"

    def dim(self) -> int:
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        return self._strides if dim is None else self._strides[dim]

    def numel(self) -> Any:
        return self.shape.numel()

    def element_size(self) -> int:
        return self.itemsize

    def is_contiguous(self) -> bool:
        return self._class == 0

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self.dtype.is_complex

    def get_device(self) -> int:
        return -1 if self.device.index is None else self.device.index

    def example(self) -> torch.Tensor:
        """Return a tensor of the same dtype that is 0-d if this one is."""
        return torch.empty((1,) * min(len(self.shape), 1), dtype=self.dtype, device="meta")

    def _new(self, *size: Any, **how: Any) -> "TensorOut":
        how.setdefault("dtype", self.dtype)
        how.setdefault("device", self.device)
        return _empty(*size, **how)

    new_empty = new_zeros = new_ones = _new

    def new_full(self, size: Any, fill_value: object, **how: Any) -> "TensorOut":
        return self._new(size, **how)

    def new_empty_strided(self, size: Any, stride: Any, **how: Any) -> "TensorOut":
        how.setdefault("dtype", self.dtype)
        how.setdefault("device", self.device)
        return _empty_strided(size, stride, **how)

    def __getattr__(self, name: str) -> object:
        raise Untraceable(f"Tensor.{name}")


class TensorOut:
    """What the body returns."""

    def __init__(
        self,
        kind: int,
        dtype: torch.dtype,
        device: torch.device,
        sizes: Sequence[object],
        strides: Sequence[object] = (),
        like: TensorIn | None = None,
    ) -> None:
        self.kind = kind
        self.dtype = dtype
        self.device = device
        self.shape = Shape(sizes)
        self.strides = strides
        self.like = like

    @property
    def contiguous(self) -> bool:
        """Tell whether the output is surely row-major."""
        if self.kind == LIKE:
            assert self.like is not None
            return self.like._class == 0
        return self.kind == ROW_MAJOR

    def __getattr__(self, name: str) -> object:
        raise Untraceable(f"{name} of a new tensor")


_PASSIVE = {"requires_grad", "pin_memory", "layout"}


def _check_how(how: dict[str, Any]) -> None:
    for name, value in how.items():
        if name not in _PASSIVE or value not in (None, False, torch.strided):
            raise Untraceable(f"{name}={value!r}")


def _device(device: object) -> torch.device:
    if device is None:
        return torch.get_default_device()
    found = torch.device(device) if isinstance(device, (str, int)) else device
    if not isinstance(found, torch.device):
        raise Untraceable("a device that is none")
    if found.type != "cpu" and found.index is None:
        raise Untraceable("the current device")
    return found


def _sizes(size: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = tuple(size[0])
    for n in size:
        if not isinstance(n, (int, Sym)) or isinstance(n, bool):
            raise Untraceable("a size that is no int")
    return size


def _empty(
    *size: Any,
    dtype: torch.dtype | None = None,
    device: object = None,
    memory_format: torch.memory_format = torch.contiguous_format,
    **how: Any,
) -> TensorOut:
    _check_how(how)
    if memory_format is not torch.contiguous_format:
        raise Untraceable("a memory format")
    dtype = dtype or torch.get_default_dtype()
    return TensorOut(ROW_MAJOR, dtype, _device(device), _sizes(size or ((),)))


def _full(
    size: Any, fill_value: object, *, dtype: torch.dtype | None = None, **how: Any
) -> TensorOut:
    if dtype is None:
        raise Untraceable("torch.full without a dtype")
    return _empty(size, dtype=dtype, **how)


def _empty_strided(
    size: Any,
    stride: Any,
    *,
    dtype: torch.dtype | None = None,
    device: object = None,
    **how: Any,
) -> TensorOut:
    _check_how(how)
    dtype = dtype or torch.get_default_dtype()
    return TensorOut(
        STRIDED, dtype, _device(device), _sizes((tuple(size),)), _sizes((tuple(stride),))
    )


def _empty_like(
    tensor: object,
    *,
    dtype: torch.dtype | None = None,
    device: object = None,
    memory_format: torch.memory_format = torch.preserve_format,
    **how: Any,
) -> TensorOut:
    _check_how(how)
    if not isinstance(tensor, TensorIn):
        raise Untraceable("empty_like of something else")
    dtype = dtype or tensor.dtype
    where = tensor.device if device is None else _device(device)
    if memory_format is torch.contiguous_format:
        return TensorOut(ROW_MAJOR, dtype, where, tensor.shape)
    if memory_format is not torch.preserve_format or tensor._class > 1:
        raise Untraceable("strides that torch works out by itself")
    return TensorOut(LIKE, dtype, where, tensor.shape, like=tensor)


def _full_like(tensor: object, fill_value: object, **how: Any) -> TensorOut:
    return _empty_like(tensor, **how)


def _broadcast_shapes(*shapes: Iterable[Any]) -> Shape:
    """Broadcast as torch does; sizes that differ are refused by the real function."""
    rows = [(s,) if isinstance(s, (int, Sym)) else tuple(s) for s in shapes]
    rank = max((len(r) for r in rows), default=0)
    out: list[Any] = [1] * rank
    for row in rows:
        for d, size in enumerate(row, start=rank - len(row)):
            if size == 1 or (out[d] is not size and out[d] == size):
                continue
            if out[d] is not size:
                if not out[d] == 1:
                    raise Untraceable("shapes that do not broadcast")
                out[d] = size
    return Shape(out)


def _example(value: Any) -> Any:
    return value.example() if isinstance(value, TensorIn) else value


def _result_type(first: Any, second: Any) -> torch.dtype:
    """Promote as torch does: that depends on dtypes and on which tensors are 0-d, and both stand in the key."""
    return torch.result_type(_example(first), _example(second))


class _Torch(types.ModuleType):
    """`torch`, as a body under trace sees it."""

    empty = zeros = ones = staticmethod(_empty)
    full = staticmethod(_full)
    empty_strided = staticmethod(_empty_strided)
    empty_like = zeros_like = ones_like = staticmethod(_empty_like)
    full_like = staticmethod(_full_like)
    broadcast_shapes = staticmethod(_broadcast_shapes)
    result_type = staticmethod(_result_type)

    @staticmethod
    def _check(condition: bool, message: object = None) -> None:
        if not condition:
            raise Untraceable("a failed check")

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)


_TORCH = _Torch("torch")


def under_trace(
    function: types.FunctionType, known: dict[int, types.FunctionType] | None = None
) -> types.FunctionType:
    """Return the function with `torch` replaced where it is a global or a closure variable, in what it calls as well.

    Of what it calls, the plain functions that it names are followed; a method sees torch itself.
    """
    known = {} if known is None else known
    if id(function) in known:
        return known[id(function)]
    seen = dict(function.__globals__)
    cells = function.__closure__ and tuple(types.CellType() for _ in function.__closure__)
    traced = types.FunctionType(
        function.__code__, seen, function.__name__, function.__defaults__, cells
    )
    traced.__kwdefaults__ = function.__kwdefaults__
    known[id(function)] = traced

    def replaced(value: Any) -> Any:
        if value is torch:
            return _TORCH
        followed = isinstance(value, types.FunctionType) and _uses_torch(value)
        return under_trace(value, known) if followed else value

    seen |= {n: replaced(seen[n]) for n in _names(function.__code__) if n in seen}
    for cell, own in zip(cells or (), function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # empty
            cell.cell_contents = replaced(own.cell_contents)
    return traced


def _names(code: types.CodeType) -> set[str]:
    """Return the globals that a function names, or functions inside it."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _uses_torch(function: types.FunctionType) -> bool:
    """Tell whether a function is one of torch's users rather than of torch."""
    return not function.__module__.startswith("torch.") and any(
        value is torch for value in function.__globals__.values()
    )
