"""Keys: what the router's words say of a call, and the same for example arguments."""

import dataclasses
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from torch_mojo.dispatch import libtorch, plans, standins, symints
from torch_mojo.dispatch.schema import IN_KEY, Arg, Schema

CONTIGUOUS, DENSE, STRIDED, REPEATED = range(4)
_SECOND_STAGE = -1


@dataclass(frozen=True)
class TensorKey:
    """What the key says of one tensor: kernels/torch/layout.mojo writes the same as one word."""

    dtype_code: int
    rank: int
    layout: int
    aligned: bool
    device_type: int
    device_index: int

    @classmethod
    def from_word(cls, word: int) -> "TensorKey":
        return cls(
            word & 255,
            word >> 8 & 255,
            word >> 16 & 15,
            bool(word >> 20 & 1),
            word >> 24 & 255,
            word >> 32 & 255,
        )

    @property
    def word(self) -> int:
        word = (
            self.dtype_code | self.rank << 8 | self.layout << 16 | self.device_type << 24 | 1 << 40
        )
        return word | (int(self.aligned) << 20 | self.device_index << 32 if self.device_type else 0)

    @property
    def dtype(self) -> torch.dtype | None:
        return libtorch.dtype_of_code(self.dtype_code)

    @property
    def device(self) -> torch.device:
        return libtorch.device_of_code(self.device_type, self.device_index)


Key = TensorKey | list["TensorKey | None"] | None


def _layout_class(tensor: torch.Tensor) -> int:
    if tensor.is_contiguous():
        return CONTIGUOUS
    if any(s == 0 and n != 1 for s, n in zip(tensor.stride(), tensor.shape, strict=True)):
        return REPEATED
    return STRIDED


def _device_code(device: torch.device) -> tuple[int, int]:
    """Return libtorch's numbers; an example on the meta device stands for one on the CPU."""
    code, index = libtorch.device_code(torch.device("cpu") if device.type == "meta" else device)
    return code, max(index, 0)


def tensor_key(tensor: torch.Tensor) -> TensorKey:
    """Return the key of an example tensor."""
    device_type, device_index = _device_code(tensor.device)
    dtype = libtorch.dtype_code(tensor.dtype)
    layout = _layout_class(tensor)
    return TensorKey(dtype, tensor.dim(), layout, device_type != 0, device_type, device_index)


def key_of_value(arg: Arg, value: object) -> Key:
    """Return the key of an example argument; None for what is no tensor."""
    if arg.base != "Tensor" or value is None:
        return None
    if arg.is_list:
        assert isinstance(value, (list, tuple))
        return [None if t is None else tensor_key(t) for t in value]
    assert isinstance(value, torch.Tensor)
    return tensor_key(value)


def strided(key: Key) -> Key:
    """Return a key with all tensors of any strides; code for it serves contiguous ones as well."""
    if isinstance(key, list):
        return [None if k is None else dataclasses.replace(k, layout=STRIDED) for k in key]
    return None if key is None else dataclasses.replace(key, layout=STRIDED)


def planned_key(plan: plans.Plan, i: int) -> TensorKey:
    """Return what is known of a planned output."""
    device_type, device_index = _device_code(plan.devices[i])
    layout = CONTIGUOUS if plan.contiguous[i] else STRIDED
    dtype = libtorch.dtype_code(plan.dtypes[i])
    return TensorKey(dtype, plan.ranks[i], layout, device_type != 0, device_type, device_index)


def stand_in(
    trace: symints.Trace, arg: Arg, key: Key, value: object, at: int
) -> tuple[object, int]:
    """Return what the body gets for an argument under trace, and the number of its flat words."""
    if arg.base == "Tensor":
        if isinstance(key, list):
            assert isinstance(value, list)
            items = [
                None if k is None else standins.TensorIn(trace, t, at + 3 * i, k.layout)
                for i, (k, t) in enumerate(zip(key, value, strict=True))
            ]
            return items, 3 * len(items)
        if key is None:
            return None, 0 if arg.is_list else 3
        assert isinstance(value, torch.Tensor)
        return standins.TensorIn(trace, value, at, key.layout), 3
    words = arg.flat_words
    if value is None:
        return None, words
    if arg.is_list:
        assert isinstance(value, list)
        if arg.base == "int":
            return [
                symints.Sym(trace, [symints.ITEM, at, i], n) for i, n in enumerate(value)
            ], words
        if arg.base == "float":
            return [symints.Opaque(v) for v in value], words
        return value, words
    if arg.base == "int":
        assert isinstance(value, int)
        return symints.Sym(trace, [symints.VALUE, at], value), words
    if arg.base == "float":
        assert isinstance(value, (int, float))
        return symints.Opaque(value), words
    return value, words


def key_words(
    schema: Schema,
    keys: Sequence[Key],
    values: Sequence[object],
    in_key: Callable[[int], bool],
) -> list[tuple[int, bool, bool]]:
    """Return the words that the router would push for a call: (word, of a tensor, of one that is written)."""
    found: list[tuple[int, bool, bool]] = []

    def plain(*words: int) -> None:
        found.extend((w, False, False) for w in words)

    def tensor(key: TensorKey | None, written: bool) -> None:
        found.append((key.word if key else 0, True, written))

    for i, (arg, key, value) in enumerate(zip(schema.args, keys, values, strict=True)):
        selects = arg.kind(in_key(i)) & IN_KEY
        if arg.optional:
            plain(int(value is not None))
            if value is None:
                if arg.base == "Tensor" and not arg.is_list:
                    plain(0)
                continue
        items = list(value) if isinstance(value, (list, tuple)) else []
        if arg.is_list:
            plain(len(items))
            if isinstance(key, list):
                for k in key:
                    tensor(k, arg.mutated)
            elif selects:
                plain(*(_value_word(arg, v) for v in items))
        elif arg.base == "Tensor":
            assert not isinstance(key, list)
            tensor(key, arg.mutated)
        elif arg.base == "str":
            text = str(value).encode()
            plain(len(text))
            plain(*(int.from_bytes(text[at : at + 8], "little") for at in range(0, len(text), 8)))
        elif selects:
            plain(_value_word(arg, value))
    return found


def _value_word(arg: Arg, value: object) -> int:
    """Return a value as libtorch puts it on the stack."""
    if isinstance(value, torch.dtype):
        return libtorch.dtype_code(value)
    if arg.base == "Device":
        code, index = libtorch.device_code(torch.device(value))  # type: ignore[call-overload]
        return code << 32 | index & 0xFFFFFFFF
    if arg.base == "float":
        return int.from_bytes(struct.pack("<d", value), "little", signed=True)
    return int(value)  # type: ignore[call-overload]


class KeyReader:
    """Reads the router's key words back, argument by argument, in the order in which it pushes them."""

    def __init__(self, schema: Schema, words: Sequence[int], in_key: Callable[[int], bool]) -> None:
        self._schema = schema
        self._words = words
        self._in_key = in_key
        self._at = 0

    def _next(self) -> int:
        self._at += 1
        return self._words[self._at - 1]

    def _tensor(self) -> TensorKey | None:
        word = self._next()
        return TensorKey.from_word(word) if word else None

    def keys(self, values: Sequence[object]) -> list[Key]:
        return [
            self._key(i, a, v)
            for i, (a, v) in enumerate(zip(self._schema.args, values, strict=True))
        ]

    def _key(self, index: int, arg: Arg, value: object) -> Key:
        if arg.optional:
            present = self._next()
            if not present:
                if arg.base == "Tensor" and not arg.is_list:
                    self._next()
                return None
        in_key = arg.kind(self._in_key(index)) & IN_KEY
        if arg.is_list:
            length = self._next()
            if arg.base == "Tensor":
                return [self._tensor() for _ in range(length)]
            if in_key:
                self._at += length
            return None
        if arg.base == "Tensor":
            return self._tensor()
        if arg.base == "str":
            length = self._next()
            self._at += (length + 7) // 8
        elif in_key:
            self._at += 1
        return None

    def outputs(self) -> list[TensorKey]:
        mark = self._next()
        assert mark == _SECOND_STAGE
        return [TensorKey.from_word(self._next()) for _ in range(self._schema.returns)]
