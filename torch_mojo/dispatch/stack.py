"""The dispatcher's C stack, read and written from Python: for misses, bodies and gradients, not for hot calls."""

import ctypes
import functools
import struct
from collections.abc import Sequence

import torch

from torch_mojo import torch_private
from torch_mojo.dispatch import libtorch
from torch_mojo.dispatch.schema import Arg, Schema


def _words(address: int, count: int) -> ctypes.Array[ctypes.c_int64]:
    return _array_type(count).from_address(address)


@functools.cache
def _array_type(count: int) -> type[ctypes.Array[ctypes.c_int64]]:
    return ctypes.c_int64 * count


def read(schema: Schema, stack: int, steal: bool) -> list[object]:
    """Return the arguments on the stack as Python objects.

    Args:
        schema: the operator's schema.
        stack: the address of the words.
        steal: take over the handles (the stack is then empty) or leave them.
    """
    words = _words(stack, len(schema.args))
    return [_read(a, words[i], steal) for i, a in enumerate(schema.args)]


def _read(arg: Arg, word: int, steal: bool) -> object:
    if arg.optional:
        if word == 0:
            return None
        cell = word
        word = _words(cell, 1)[0]
        value = _read_list(arg, word, steal) if arg.is_list else _read_item(arg, word, steal)
        if steal:
            libtorch.delete_cell(cell)
        return value
    return _read_list(arg, word, steal) if arg.is_list else _read_item(arg, word, steal)


def _read_list(arg: Arg, handle: int, steal: bool) -> list[object]:
    values: list[object] = []
    for word in libtorch.list_words(handle):
        # a list hands out its tensors as new handles, which are ours
        if arg.optional_items:
            if word == 0:
                values.append(None)
                continue
            cell, word = word, _words(word, 1)[0]
            libtorch.delete_cell(cell)
        values.append(_read_item(arg, word, True))
    if steal:
        libtorch.call("torch_delete_list", handle)
    return values


def _read_item(arg: Arg, word: int, steal: bool) -> object:
    match arg.base:
        case "Tensor":
            if not steal:
                word = libtorch.new_handle(word)
            return torch_private.tensor_from_handle(word)
        case "str":
            text = libtorch.string_text(word)
            if steal:
                libtorch.call("torch_delete_string", word)
            return text
        case "int":
            return word
        case "float":
            return struct.unpack("<d", struct.pack("<q", word))[0]
        case "bool":
            return word & 0xFF != 0
        case "ScalarType":
            return libtorch.dtype_of_code(word & 0xFFFFFFFF)
        case "Device":
            index = ctypes.c_int32(word & 0xFFFFFFFF).value
            return libtorch.device_of_code(word >> 32, index)
    raise AssertionError(arg.base)


def write_tensors(address: int, tensors: Sequence[torch.Tensor]) -> None:
    """Write new handles of these tensors to the words behind `address`."""
    words = _words(address, len(tensors))
    for i, tensor in enumerate(tensors):
        words[i] = torch_private.handle_of_tensor(tensor)


def as_call(schema: Schema, values: Sequence[object]) -> tuple[list[object], dict[str, object]]:
    """Split values in schema order into positional and keyword-only ones."""
    args = [v for a, v in zip(schema.args, values, strict=True) if not a.kwarg_only]
    kwargs = {a.name: v for a, v in zip(schema.args, values, strict=True) if a.kwarg_only}
    return args, kwargs
