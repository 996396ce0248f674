"""Stand-ins for tensors, ints and torch itself, under which a declaration's body is traced."""

import operator
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

# Opcodes and kinds of kernels/torch/plan.mojo.
END, CONST, SIZE, STRIDE, VALUE, ITEM = range(6)
ADD, SUB, MUL, FLOORDIV, MOD, MIN, MAX, EQ, NE, LT, LE = range(6, 17)
ROW_MAJOR, STRIDED, LIKE = range(3)
_DEPTH = 32

_PYTHON: dict[int, Callable[[int, int], int]] = {
    ADD: operator.add,
    SUB: operator.sub,
    MUL: operator.mul,
    FLOORDIV: operator.floordiv,
    MOD: operator.mod,
    MIN: min,
    MAX: max,
    EQ: operator.eq,
    NE: operator.ne,
    LT: operator.lt,
    LE: operator.le,
}


class Untraceable(Exception):
    """The body does something that cannot become a plan."""


class Trace:
    """The guards of one trace."""

    def __init__(self) -> None:
        self.guards: list[list[int]] = []


class Sym:
    """An int that is not known before the call: its program, and its value in the first call."""

    __slots__ = ("code", "depth", "trace", "value")

    def __init__(self, trace: Trace, code: list[int], value: int, depth: int = 1) -> None:
        self.trace = trace
        self.code = code
        self.value = value
        self.depth = depth
        if depth > _DEPTH:
            raise Untraceable("an expression is too deep")

    def _combine(self, op: int, a: object, b: object) -> "Sym":
        left, right = symbolic(self.trace, a), symbolic(self.trace, b)
        if op in (FLOORDIV, MOD) and right.value == 0:
            raise ZeroDivisionError
        return Sym(
            self.trace,
            [*left.code, *right.code, op],
            int(_PYTHON[op](left.value, right.value)),
            max(left.depth, right.depth + 1),
        )

    def _compare(self, op: int, a: object, b: object, swap: bool = False) -> bool:
        if swap:
            a, b = b, a
        condition = self._combine(op, a, b)
        holds = bool(condition.value)
        self.trace.guards.append(condition.code if holds else [*condition.code, CONST, 0, EQ])
        return holds

    def __add__(self, other: object) -> "Sym":
        return self._combine(ADD, self, other)

    def __radd__(self, other: object) -> "Sym":
        return self._combine(ADD, other, self)

    def __sub__(self, other: object) -> "Sym":
        return self._combine(SUB, self, other)

    def __rsub__(self, other: object) -> "Sym":
        return self._combine(SUB, other, self)

    def __mul__(self, other: object) -> "Sym":
        return self._combine(MUL, self, other)

    def __rmul__(self, other: object) -> "Sym":
        return self._combine(MUL, other, self)

    def __floordiv__(self, other: object) -> "Sym":
        return self._combine(FLOORDIV, self, other)

    def __rfloordiv__(self, other: object) -> "Sym":
        return self._combine(FLOORDIV, other, self)

    def __mod__(self, other: object) -> "Sym":
        return self._combine(MOD, self, other)

    def __rmod__(self, other: object) -> "Sym":
        return self._combine(MOD, other, self)

    def __neg__(self) -> "Sym":
        return self._combine(SUB, 0, self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (int, Sym)) and self._compare(EQ, self, other)

    def __ne__(self, other: object) -> bool:
        return not isinstance(other, (int, Sym)) or self._compare(NE, self, other)

    def __lt__(self, other: object) -> bool:
        return self._compare(LT, self, other)

    def __le__(self, other: object) -> bool:
        return self._compare(LE, self, other)

    def __gt__(self, other: object) -> bool:
        return self._compare(LT, self, other, swap=True)

    def __ge__(self, other: object) -> bool:
        return self._compare(LE, self, other, swap=True)

    def __bool__(self) -> bool:
        return self._compare(NE, self, 0)

    def __int__(self) -> int:
        return self.__index__()

    def __index__(self) -> int:
        self._compare(EQ, self, self.value)
        return self.value

    def __hash__(self) -> int:
        return hash(self.__index__())


def symbolic(trace: Trace, value: object) -> Sym:
    """Return an int, known or not, as a symbolic one."""
    if isinstance(value, Sym):
        return value
    if isinstance(value, int):
        return Sym(trace, [CONST, int(value)], int(value))
    raise Untraceable(f"{type(value).__name__} in a size")


class Opaque(float):
    """A float whose value the body may hand on but not look at: it is no part of the key."""


def _refuse(self: object, *args: object) -> Any:
    raise Untraceable("the body looks at the value of a float")


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow eq ne lt le gt ge "
    "bool int float trunc floor ceil round abs neg pos hash divmod rdivmod repr str format"
).split():
    setattr(Opaque, f"__{_name}__", _refuse)


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


class _Torch(types.ModuleType):
    """`torch`, as a body under trace sees it."""

    empty = zeros = ones = staticmethod(_empty)
    full = staticmethod(_full)
    empty_strided = staticmethod(_empty_strided)
    empty_like = zeros_like = ones_like = staticmethod(_empty_like)
    full_like = staticmethod(_full_like)
    broadcast_shapes = staticmethod(_broadcast_shapes)

    @staticmethod
    def _check(condition: bool, message: object = None) -> None:
        if not condition:
            raise Untraceable("a failed check")

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)


_TORCH = _Torch("torch")


def under_trace(function: types.FunctionType) -> types.FunctionType:
    """Return the function with `torch` replaced wherever it is a global or a closure variable."""
    names = {n: _TORCH for n, v in function.__globals__.items() if v is torch}
    cells = function.__closure__
    if cells is not None:
        cells = tuple(types.CellType(_TORCH) if _content(c) is torch else c for c in cells)
    traced = types.FunctionType(
        function.__code__,
        function.__globals__ | names,
        function.__name__,
        function.__defaults__,
        cells,
    )
    traced.__kwdefaults__ = function.__kwdefaults__
    return traced


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None
