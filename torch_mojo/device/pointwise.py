"""Registers the table's operators for the device, and answers the native side: a dtype's library, a slow call."""

import ctypes
from typing import Any

import torch

from torch_mojo import torch_private
from torch_mojo.device import elementwise, fallback, native
from torch_mojo.device.rows import BY_NAME, FLOAT, ROWS, Row
from torch_mojo.dispatch import libtorch
from torch_mojo.dispatch.pending import keep
from torch_mojo.dtypes import short
from torch_mojo.errors import NotBuiltError

aten = torch.ops.aten
_TENSOR, _NUMBER, _OUT, _IGNORED, _BOTH, _BOUND = range(1, 7)
_FLOATS, _TEST, _MASKED, _ANYWHERE, _MIXED, _FILLS = 1, 2, 4, 8, 16, 32
_DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8),
)
_UNSUPPORTED = 1
_CPU = torch.device("cpu")
_SCALAR_TAGS = {0: "double", 1: "int", 3: "complex", 4: "bool"}

# Operators that are made of a row by another name.
_NEW = {
    "relu": "_relu",
    "abs": "abs.out",
    **{f"logical_{n}": f"logical_{n}.out" for n in ("and", "or", "xor", "not")},
    "where.self": "where.self_out",
    "hardswish": "hardswish.out",
    "hardtanh": "hardtanh.out",
    "hardtanh_backward": "hardtanh_backward.grad_input",
    "hardswish_backward": "_hardswish_backward",
    "isnan": "_isnan",
    "floor_divide": "floor_divide.out",
}
_IN_PLACE = {
    "relu_": "_relu",
    "hardswish_": "hardswish.out",
    "hardtanh_": "hardtanh.out",
    "fill_.Scalar": "_fill",
    "zero_": "_fill",
}
_OUT_BY_ANOTHER = {"pow.Tensor_Scalar_out": "_pow_by", "pow.Scalar_out": "_power_of_number"}

_operators: list[Any] = []
_keep: list[object] = []
_not_built: set[torch.dtype] = set()  # that TORCH_MOJO_BUILD=never has no library of
_tables = (ctypes.c_int64 * 128)()

_MISS = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
_SLOW = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_void_p
)


def register() -> None:
    """Register every operator of the table."""
    for dtype in (*_DTYPES, torch.complex64, torch.complex128, torch.complex32):
        _tables[64 + libtorch.dtype_code(dtype)] = dtype.itemsize
    miss, slow = _MISS(_miss), _SLOW(_slow)
    _keep.extend((miss, slow))
    native.set_word(native.TABLES, ctypes.addressof(_tables))
    native.set_word(native.LAZY, torch_private.keyset("Conjugate", "Negative"))
    native.set_word(native.MISS, ctypes.cast(miss, ctypes.c_void_p).value or 0)
    native.set_word(native.SLOW, ctypes.cast(slow, ctypes.c_void_p).value or 0)
    for row in ROWS:
        if not row.name.startswith("_"):
            _register(row.name, row.name, native.OUT_ROW)
            _register_plain(row.name)
    for name, row_name in _OUT_BY_ANOTHER.items():
        _register(name, row_name, native.OUT_ROW)
    for name, row_name in _NEW.items():
        _register(name, row_name, native.NEW_ROW)
    for name, row_name in _IN_PLACE.items():
        _register(name, row_name, native.OUT_ROW, flags=_FILLS * (row_name == "_fill"))
    _register_reductions()
    for name in ("mm.out", "addmm.out"):
        _register(name, None, native.PRODUCT)
    for name in ("bmm.out", "baddbmm.out"):
        _register(name, None, native.PRODUCT, batched=True)
    _register("_copy_from", "_copy", native.COPY, flags=_ANYWHERE, kinds=[_TENSOR, _OUT])
    _register("gelu.out", "_gelu", native.GELU, kinds=[_TENSOR, _OUT], other="_gelu_tanh")
    _register(
        "gelu_backward.grad_input",
        "_gelu_backward",
        native.GELU_BACKWARD,
        kinds=[_TENSOR, _TENSOR, _OUT],
        other="_gelu_tanh_backward",
    )


def _register(
    name: str,
    row_name: str | None,
    which: int,
    flags: int = 0,
    kinds: list[int] | None = None,
    other: str | None = None,
    batched: bool = False,
    inner: tuple[int, ...] = (),
) -> None:
    overload = torch_private.find_overload(f"aten::{name}")
    assert overload is not None, name
    if kinds is None:
        kinds = [_kind(a, i) for i, a in enumerate(overload._schema.arguments)]
    number = int(batched)
    if row_name is not None:
        number = BY_NAME[row_name]
        row = ROWS[number]
        flags |= _FLOATS * (row.kind == FLOAT) | _TEST * row.test | _MASKED * row.masked
    packed = sum(kind << (4 * i) for i, kind in enumerate(kinds))
    words = (
        len(_operators),
        len(kinds),
        packed,
        flags,
        number,
        BY_NAME[other] if other else 0,
        *inner,
    )
    plain = row_name is not None and not flags & _ANYWHERE
    _operators.append((overload, kinds, ROWS[number] if plain else None))
    native.implement(f"aten::{name}", which, words)


# Operators that promote: torch.result_type says what they are computed in.
_PROMOTE = frozenset(
    ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge")
)


def _register_plain(name: str) -> None:
    """Register the overloads without `out` that torch would make of this one and of a meta function."""
    of_out = torch_private.find_overload(f"aten::{name}")
    assert of_out is not None, name
    wanted = [
        (a.name, str(a.real_type))
        for a in of_out._schema.arguments
        if not (a.alias_info and a.alias_info.is_write)
    ]
    base = name.partition(".")[0]
    for packet, which in ((base, native.PLAIN), (f"{base}_", native.WRITTEN)):
        packets = getattr(aten, packet, None)
        for overload in packets.overloads() if packets is not None else ():
            found = getattr(packets, overload)
            arguments = [(a.name, str(a.real_type)) for a in found._schema.arguments]
            if arguments == wanted and torch_private.is_structured(found.name()):
                inner = torch_private.kernel_words(found.name(), "PrivateUse1")
                flags = _MIXED * (base in _PROMOTE)
                if all(inner):
                    _register(found.name()[6:], name, which, flags, inner=inner)


# by their arguments: operator, number of its operation, whether it is a mean
_REDUCE = {
    native.SUM: [("sum.IntList_out", 0, False), ("mean.out", 0, True)],
    native.AMAX: [("amax.out", 2, False), ("amin.out", 3, False)],
    native.ARGMAX: [("argmax.out", 6, False), ("argmin.out", 7, False)],
    native.ANY: [("any.out", 4, False), ("all.out", 5, False)],
    native.PROD: [("prod.int_out", 1, False)],
    native.ANY_ALL: [("any.all_out", 4, False), ("all.all_out", 5, False)],
}


def _register_reductions() -> None:
    for which, rows in _REDUCE.items():
        for name, operation, mean in rows:
            overload = torch_private.find_overload(f"aten::{name}")
            assert overload is not None
            count = len(overload._schema.arguments)
            words = (len(_operators), count, operation, int(mean))
            _operators.append((overload, None, None))
            native.implement(f"aten::{name}", which, words)


def _of_reduction(overload: Any, words: Any) -> list[Any]:
    """Return a reduction's arguments out of the native side's six words."""
    self, out = (torch_private.tensor_from_handle(libtorch.new_handle(words[i])) for i in range(2))
    count = words[3]
    dims = (
        None
        if count < 0
        else list((ctypes.c_int64 * count).from_address(words[2]))
        if count
        else []
    )
    values: list[Any] = []
    for argument in overload._schema.arguments[1:-1]:
        if argument.name == "dim":
            single = "List" not in str(argument.real_type)
            values.append(dims[0] if dims and single else dims)
        elif argument.name == "keepdim":
            values.append(bool(words[4]))
        else:
            values.append(libtorch.dtype_of_code(words[5] & 255) if words[5] >> 8 else None)
    return [self, *values, out]


def _kind(argument: Any, index: int) -> int:
    if argument.alias_info is not None and argument.alias_info.is_write:
        return _BOTH if index == 0 else _OUT
    kinds = {"Tensor": _TENSOR, "number": _NUMBER, "bool": _IGNORED, "Optional[number]": _BOUND}
    kind = kinds.get(str(argument.real_type))
    assert kind is not None, argument
    return kind


def _miss(code: int) -> int:
    try:
        if fallback.printing():
            return _UNSUPPORTED  # this time
        dtype = libtorch.dtype_of_code(code % 32)
        found = _UNSUPPORTED
        served = code < 96 or dtype != torch.bool
        if dtype in _DTYPES and served:
            opened, table = elementwise.LIBRARIES[code // 32](short(dtype))
            array = (ctypes.c_int64 * len(table))(*table)
            _keep.extend((opened, array))
            found = ctypes.addressof(array)
        _tables[code] = found
        return found
    except NotBuiltError:
        if dtype is not None:
            _not_built.add(dtype)
        return _UNSUPPORTED
    except BaseException as e:
        return keep(e) | 1


def _number(address: int) -> complex | bool:
    words = (ctypes.c_int64 * 4).from_address(address)
    tag = _SCALAR_TAGS.get(words[0] & 0xFFFFFFFF)
    if tag == "int":
        return words[2]
    if tag == "bool":
        return bool(words[2] & 1)
    parts = (ctypes.c_double * 2).from_address(address + 16)
    return parts[0] if tag == "double" else complex(parts[0], parts[1])


def _argument(word: int, kind: int) -> Any:
    if kind == _NUMBER:
        return _number(word)
    if kind == _IGNORED:
        return bool(word & 255)
    if kind == _BOUND:
        return _number(word) if ctypes.c_uint8.from_address(word + 32).value else None
    return torch_private.tensor_from_handle(libtorch.new_handle(word))


def _note(overload: Any, values: list[Any]) -> None:
    """Note an operator that may have been served, had its library been built."""
    if _not_built and any(getattr(v, "dtype", None) in _not_built for v in values):
        fallback.not_built(overload)


def _alike(row: Row, overload: Any, values: list[Any]) -> list[Any] | None:
    """Return a call's arguments with inputs of one dtype on the device, or None if they are that or cannot be."""
    arguments = overload._schema.arguments
    places = [
        i
        for i, (a, v) in enumerate(zip(arguments, values, strict=False))
        if isinstance(v, torch.Tensor) and not a.is_out
    ]
    tensors = [values[i] for i in places]
    device = next((t.device for t in tensors if t.device != _CPU), _CPU)
    if any(t.device != device and (t.device != _CPU or t.dim() > 0) for t in tensors):
        return None
    inputs = places[1:] if row.masked else places
    if not 1 <= len(inputs) <= 2:
        return None
    dtype = torch.result_type(values[inputs[0]], values[inputs[-1]])
    out = values[-1] if arguments[len(values) - 1].is_out else None
    if row.kind == FLOAT and not dtype.is_floating_point and out is not None:
        dtype = out.dtype if out.dtype.is_floating_point else dtype
    if dtype not in _DTYPES:
        return None
    made = [v.to(device) if i in places else v for i, v in enumerate(values)]
    for i in inputs:
        made[i] = made[i].to(dtype)
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))
    resized = out is not None and out.shape != shape
    if out is not None and resized:
        torch_private.resized_output(out, shape)
    return made if resized or any(a is not b for a, b in zip(made, values, strict=True)) else None


def _reduced_again(overload: Any, values: list[Any]) -> bool:
    """Reduce a copy that the native side takes: in the dtype that is asked for, or with its elements in order."""
    self, dtype = values[0], values[-2]
    wanted = dtype if isinstance(dtype, torch.dtype) and dtype in _DTYPES else self.dtype
    ordered = self.is_contiguous() or "arg" not in overload.name()
    dims, keep = (values[1], values[2]) if len(values) > 3 else (None, False)
    shape = torch.empty(self.shape, device="meta").sum(dims, keep).shape
    resized = values[-1].shape != shape
    if self.dtype not in _DTYPES or (wanted == self.dtype and ordered and not resized):
        return False
    if resized:
        torch_private.resized_output(values[-1], shape)
    copy = self.to(wanted).contiguous()
    _call(overload, [copy, *values[1:]])
    return True


def _call(overload: Any, values: list[Any]) -> Any:
    named = {a.name: v for a, v in zip(overload._schema.arguments, values, strict=False)}
    positional = [named.pop(a.name) for a in overload._schema.arguments if not a.kwarg_only]
    return overload(*positional, **named)


def _again(row: Row | None, overload: Any, values: list[Any]) -> Any:
    """Call an operator with arguments that its row takes, or return NotImplemented."""
    given = None if row is None else _alike(row, overload, values)
    if given is None:
        return NotImplemented
    return _call(overload, given)


def _slow(functor: int, arguments: Any, result: int | None) -> int:
    try:
        words = (ctypes.c_int64 * 8).from_address(functor)
        overload, kinds, row = _operators[words[2]]
        if kinds is None:
            reduced = _of_reduction(overload, arguments)
            _note(overload, reduced)
            if not _reduced_again(overload, reduced):
                fallback.run_slow(overload, reduced)
            return 0
        values: list[Any] = [_argument(arguments[i], kind) for i, kind in enumerate(kinds)]
        if overload._schema.arguments[len(kinds) - 1].name == "approximate":
            values.insert(len(kinds) - 1, "tanh" if result == words[7] else "none")
        _note(overload, values)
        made = _again(row, overload, values)
        if made is NotImplemented:
            made = fallback.run_slow(overload, values)
        if result and _OUT not in kinds and _BOTH not in kinds:
            ctypes.c_int64.from_address(result).value = torch_private.handle_of_tensor(made)
        return 0
    except BaseException as e:
        return keep(e)
