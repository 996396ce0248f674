"""One specialization: the checks of one key, and the Mojo text that the compiler gets for it."""

import json
import re
from collections.abc import Mapping, Sequence

import torch

from torch_mojo.dispatch.binding import STREAM, Binding
from torch_mojo.dispatch.keys import CONTIGUOUS, REPEATED, Key, TensorKey
from torch_mojo.dispatch.schema import Arg
from torch_mojo.dtypes import FROM_MOJO, TO_MOJO, short
from torch_mojo.errors import SignatureError
from torch_mojo.jit.signature import Argument, Parameter

_SCALARS = {
    **{f"{k}{w}": f"{k.lower()}{w}" for k in ("Int", "UInt") for w in (8, 16, 32, 64)},
    **{f"Float{w}": f"float{w}" for w in (16, 32, 64)},
    "BFloat16": "bfloat16",
}


class Specialization:
    """The kernel for one key: checks, and the text that the compiler gets."""

    def __init__(
        self,
        binding: Binding,
        keys: Sequence[Key],
        values: Sequence[object],
        outs: Sequence[TensorKey],
    ) -> None:
        self.binding = binding
        self.keys = keys
        self.values = values
        self.outs = outs
        self.device = self._device()
        self.env: dict[str, object] = {}
        self._check_dtypes()
        self._unify()

    # checks

    def _error(self, problem: str, advice: str) -> SignatureError:
        return SignatureError(f"[{self.binding.qualname}] {problem}.\n{advice}")

    def _tensors(self) -> list[tuple[str, TensorKey, Argument | None]]:
        """Return (name, key, kernel argument) of every tensor, outputs last."""
        by_name = {a.name: a for a in self.binding.kernel.arguments}
        found: list[tuple[str, TensorKey, Argument | None]] = []
        for arg, key in zip(self.binding.schema.args, self.keys, strict=True):
            if isinstance(key, list):
                found += [
                    (f"{arg.name}[{i}]", k, by_name.get(arg.name)) for i, k in enumerate(key) if k
                ]
            elif key is not None:
                found.append((arg.name, key, by_name.get(arg.name)))
        for argument, key in zip(self.binding.outputs, self.outs, strict=True):
            found.append((f"output {argument.name}", key, argument))
        return found

    def _device(self) -> torch.device:
        tensors = self._tensors()
        if not tensors:
            return torch.device("cpu")
        first, device = tensors[0][0], tensors[0][1].device
        for name, key, _ in tensors[1:]:
            if key.device != device:
                raise self._error(
                    f"{first} is on {device} and {name} is on {key.device}; a kernel runs on one device",
                    f"Move one of them: {name}.to({str(device)!r}).",
                )
        if device.type not in ("cpu", "cuda"):
            raise self._error(
                f"{first} is on {device}; Mojo kernels run on cpu and cuda here",
                f"Move the tensors: {first}.to('cpu').",
            )
        return device

    def _check_dtypes(self) -> None:
        for name, key, argument in self._tensors():
            if argument is not None and key.dtype not in TO_MOJO:
                shown = short(key.dtype) if key.dtype else f"number {key.dtype_code}"
                raise self._error(
                    f"{name} has dtype {shown}, which Mojo does not have",
                    f"Convert it to one of {', '.join(short(d) for d in TO_MOJO)}.",
                )
            if argument is not None and argument.io != "Input" and key.layout == REPEATED:
                raise self._error(
                    f"{name} is written, and several of its elements share one place in memory",
                    "Clone the tensor first.",
                )

    def _unify(self) -> None:
        """Solve dtype= and rank= of the tensors for the kernel's parameters; refuse what disagrees."""
        self.env.update(self.binding.constants)
        for name, index in self.binding.parameters.items():
            self.env[name] = self.values[index]
        tensors = [(n, k, a) for n, k, a in self._tensors() if a is not None]
        for _, key, argument in tensors:
            assert argument is not None
            self.env.setdefault(f"{argument.name}.dtype", key.dtype)
            self.env.setdefault(f"{argument.name}.rank", key.rank)
        seen: dict[str, str] = {}
        for what in ("dtype", "rank"):
            for name, key, argument in tensors:
                assert argument is not None
                wanted = argument.constraints.get(what)
                have = key.dtype if what == "dtype" else key.rank
                if wanted is None or wanted == "_":
                    continue
                if wanted.isidentifier() and wanted not in self.env:
                    self.env[wanted] = have
                    seen[wanted] = name
                    continue
                need = self.evaluate(wanted)
                if need is None or need == have:
                    continue
                source = seen.get(wanted) or (wanted if "." in wanted[1:] else "")
                because = f", as {source}" if source and not wanted.startswith("DType") else ""
                raise self._error(
                    f"{name} has {what} {_show(have)}; the kernel takes {what} {_show(need)}{because}",
                    self._advice(what, name, need),
                )

    @staticmethod
    def _advice(what: str, name: str, need: object) -> str:
        if what == "dtype":
            return f"Convert it: {name}.to({need})."
        return f"Reshape it to {need} dimension(s)."

    def evaluate(self, text: str) -> object:
        """Return the dtype or int that a Mojo expression means here, or None."""
        text = text.strip()
        if text in self.env:
            return self.env[text]
        match = re.fullmatch(r"(?:DType)?\.(\w+)", text)
        if match:
            return FROM_MOJO.get(match[1])
        if re.fullmatch(r"\d+", text):
            return int(text)
        match = re.fullmatch(r"(.+?)\s*([+\-*])\s*(\d+)", text)
        if match:
            left = self.evaluate(match[1])
            if isinstance(left, int):
                right = int(match[3])
                return {"+": left + right, "-": left - right, "*": left * right}[match[2]]
        match = re.fullmatch(r"(\w+)\.(dtype|rank)", text.removeprefix("Self."))
        return self.env.get(text.removeprefix("Self.")) if match else None

    # text

    @property
    def description(self) -> str:
        """Return what is built, for people."""
        parts = []
        for name, key, _ in self._tensors():
            if not name.startswith("output"):
                dtype = short(key.dtype) if key.dtype else "?"
                parts.append(
                    f"{name}: {dtype}[{key.rank}]" + ("" if key.layout == 0 else " strided")
                )
        for name, index in self.binding.parameters.items():
            parts.append(f"{name}={_show(self.values[index])}")
        parts += [f"{name}={_show(value)}" for name, value in self.binding.constants.items()]
        where = "" if self.device.type == "cpu" else f" on {self.device.type}"
        return f"{self.binding.qualname}({', '.join(parts)}){where}"

    def text(self) -> str:
        """Return the Mojo text of this specialization."""
        kernel = self.binding.kernel
        lines = ["from std.utils.numerics import inf, nan, neg_inf", "", "from torch.shim import *"]
        if self.binding.context or self.binding.stream:
            lines.append("from torch.context import context, stream")
        if any(a.fused for a in kernel.arguments):
            lines.append("from torch.special import *")
        lines.append(f"from {kernel.module} import {kernel.struct} as Kernel")
        lines += ["", "", "def run(flat: Int) raises:"]
        body, call = [], []
        places = self._places()
        for argument in kernel.arguments:
            name = f"_{argument.name}"
            expression = self._argument(argument, places)
            if argument.fused:
                plain = f"{name}_plain"
                body.append(f"    var {plain} = {expression}")
                spec = f"[{plain}.dtype, {plain}.rank, {plain}.static_spec]({plain})"
                bind = ("input(PlainLoad", "output(PlainStore")[argument.io == "Output"]
                expression = f"{plain}._bind_to_fused_{bind}{spec})"
            body.append(f"    var {name} = {expression}")
            call.append(name)
        struct = self._parameter_text(kernel.struct_parameters, self._struct_extra())
        execute = self._parameter_text(kernel.parameters, {})
        body.append(f"    Kernel{struct}.execute{execute}({', '.join(call)})")
        lines += body
        lines += [
            "",
            "",
            "@export",
            'def tm_run(flat: Int) abi("C") -> Int:',
            "    try:",
            "        run(flat)",
            "        return 0",
            "    except e:",
            "        return failure(String(e))",
            "",
        ]
        return "\n".join(lines)

    def _places(self) -> dict[str, int]:
        """Return where each argument's flat words begin; outputs come last, by their kernel names."""
        at, places = 0, {}
        for arg, key in zip(self.binding.schema.args, self.keys, strict=True):
            places[arg.name] = at
            at += (
                3 * len(key)
                if isinstance(key, list)
                else 0
                if _is_none_list(arg, key)
                else arg.flat_words
            )
        for argument in self.binding.outputs:
            places[argument.name] = at
            at += 3
        return places

    def _argument(self, argument: Argument, places: Mapping[str, int]) -> str:
        if argument.name in self.binding.sources:
            index = self.binding.sources[argument.name]
            arg = self.binding.schema.args[index]
            if arg.base == "Tensor":
                key = self.keys[index]
                assert not isinstance(key, list)
                return self._tensor(argument, key, places[argument.name])
            return self._value(argument, arg, self.values[index], places[argument.name])
        for out, key in zip(self.binding.outputs, self.outs, strict=True):
            if out is argument:
                return self._tensor(argument, key, places[argument.name])
        return "stream(flat)" if STREAM in argument.type else "context(flat)"

    def _rank(self, argument: Argument, rank: int) -> int:
        """Return the rank that the kernel sees: a 0-d tensor is one element unless 0 is asked for."""
        if rank == 0 and self._literal_rank(argument) != 0:
            return 1
        return rank

    def seen_rank(self, argument: Argument, key: Key) -> int | None:
        """Return the rank that the kernel sees in a MAX graph, None if eager shows it another one."""
        if not isinstance(key, TensorKey) or self._rank(argument, key.rank) != key.rank:
            return None
        return key.rank

    def parameters(self) -> dict[str, bool | int | float | str | torch.dtype]:
        """Return the values of the compile-time parameters that the declaration gives."""
        found = dict(self.binding.constants)
        for name, index in self.binding.parameters.items():
            if self.values[index] is not None:
                found[name] = self.values[index]
        for name, index in self.binding.flags.items():
            found[name] = self.values[index] is not None
        return found  # type: ignore[return-value]

    def _literal_rank(self, argument: Argument) -> int | None:
        wanted = argument.constraints.get("rank", "")
        return int(wanted) if wanted.isdigit() else None

    def _tensor(self, argument: Argument, key: TensorKey | None, at: int) -> str:
        io = f"IOSpec.{argument.io}"
        if key is None:
            dtype = self.evaluate(argument.constraints.get("dtype", "")) or self._any_dtype()
            rank = self.evaluate(argument.constraints.get("rank", ""))
            return f"absent[DType.{TO_MOJO[dtype]}, {1 if rank is None else max(int(rank), 1)}, {io}]()"  # type: ignore[call-overload, index]
        assert key.dtype is not None
        dtype = f"DType.{TO_MOJO[key.dtype]}"
        rank = self._rank(argument, key.rank)
        # a GPU wants elements aligned as they are; the CPU takes any address at no cost
        alignment = 1 if self.device.type == "cpu" else 16 if key.aligned else key.dtype.itemsize
        if key.rank == 0 and rank == 1:
            return f"single[{dtype}, {io}, {alignment}](flat, {at})"
        if key.layout == CONTIGUOUS and rank > 0:
            return f"contiguous[{dtype}, {rank}, {io}, {alignment}](flat, {at})"
        alignment = min(alignment, key.dtype.itemsize)
        return f"strided[{dtype}, {rank}, {io}, {alignment}](flat, {at})"

    def _any_dtype(self) -> torch.dtype:
        return next((k.dtype for _, k, _ in self._tensors() if k.dtype), torch.float32)

    def _value(self, argument: Argument, arg: Arg, value: object, at: int) -> str:
        type_ = argument.type
        if arg.is_list:
            return self._list_value(argument, arg, value, at)
        if arg.base == "str":
            return f"string_value(flat, {at})"
        if type_ == "Bool":
            return f"bool_value(flat, {at})"
        if type_ == "Int" and arg.base in ("int", "bool"):
            return f"load(flat, {at})"
        dtype = self.scalar_dtype(type_)
        if dtype is None or arg.base not in ("int", "float", "bool"):
            raise self._error(
                f"{arg.name} is declared as {arg.base}, and the kernel takes {type_}",
                "Take a fixed-width number such as Int64 or Float32, or make it a compile-time parameter.",
            )
        mojo = f"DType.{TO_MOJO[dtype]}"
        if arg.base == "float":
            if not dtype.is_floating_point:
                raise self._error(
                    f"{arg.name} is declared as float, and the kernel takes {type_}",
                    f"Declare {arg.name} as int, or let the kernel take a Float64.",
                )
            return f"float_value(flat, {at}).cast[{mojo}]()"
        if arg.base == "bool":
            return f"Scalar[{mojo}](bool_value(flat, {at}))"
        return f'int_value[{mojo}](flat, {at}, "{arg.name}")'

    def scalar_dtype(self, type_: str) -> torch.dtype | None:
        """Return the dtype of a fixed-width number's type, or None."""
        if type_ in _SCALARS:
            return FROM_MOJO[_SCALARS[type_]]
        match = re.fullmatch(r"(?:Scalar\[(.+)\]|SIMD\[(.+?),\s*1\])", type_)
        found = self.evaluate(match[1] or match[2]) if match else None
        return found if isinstance(found, torch.dtype) else None

    def _list_value(self, argument: Argument, arg: Arg, value: object, at: int) -> str:
        length = len(value) if isinstance(value, (list, tuple)) else 0
        match = re.fullmatch(r"IndexList\[(\w+)(?:,.*)?\]", argument.type)
        if match and arg.base == "int":
            wanted = self.evaluate(match[1])
            if isinstance(wanted, int) and wanted != length:
                raise self._error(
                    f"{arg.name} has {length} item(s); the kernel takes {wanted}",
                    f"Pass {wanted} item(s).",
                )
            return f"index_list[{length}](flat, {at})"
        match = re.fullmatch(r"List\[(.+)\]", argument.type)
        if match and match[1] == "Int" and arg.base == "int":
            return f"int_list(flat, {at})"
        dtype = (
            FROM_MOJO["bool"]
            if match and match[1] == "Bool"
            else self.scalar_dtype(match[1])
            if match
            else None
        )
        if dtype is None or (arg.base == "float" and not dtype.is_floating_point):
            raise self._error(
                f"{arg.name} is declared as a list of {arg.base}, and the kernel takes {argument.type}",
                "Take an IndexList[N], a List[Int], a List[Int64] or a List[Float64].",
            )
        if arg.base == "float":
            return f"float_list[DType.{TO_MOJO[dtype]}](flat, {at})"
        return f"word_list[DType.{TO_MOJO[dtype]}](flat, {at})"

    def _struct_extra(self) -> dict[str, str]:
        """Return the struct parameters that only the tensors can give: Mojo does not infer those."""
        found = {}
        for parameter in self.binding.kernel.struct_parameters:
            value = self.env.get(parameter.name)
            given = (
                parameter.name in self.binding.parameters
                or parameter.name in self.binding.constants
            )
            if not given and value is not None:
                found[parameter.name] = _literal(value)
        return found

    def _parameter_text(self, parameters: Sequence[Parameter], extra: dict[str, str]) -> str:
        found = dict(extra)
        for parameter in parameters:
            name = parameter.name
            if name == "target":
                found[name] = '"cpu"' if self.device.type == "cpu" else '"gpu"'
            elif name in self.binding.constants:
                found[name] = _literal(self.binding.constants[name])
            elif name in self.binding.parameters:
                value = self.values[self.binding.parameters[name]]
                if value is None:
                    continue  # its default
                found[name] = _literal(value)
            elif name in self.binding.flags:
                found[name] = str(self.values[self.binding.flags[name]] is not None)
        return f"[{', '.join(f'{k}={v}' for k, v in found.items())}]" if found else ""


def _is_none_list(arg: Arg, key: Key) -> bool:
    return arg.base == "Tensor" and arg.is_list and key is None


def _literal(value: object) -> str:
    """Return a Python value as Mojo text."""
    if isinstance(value, torch.dtype):
        return f"DType.{TO_MOJO[value]}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            name = "nan" if value != value else "inf" if value > 0 else "neg_inf"
            return f"{name}[DType.float64]()"
        return f"Float64({value!r})"
    return str(value)


def _show(value: object) -> str:
    return short(value) if isinstance(value, torch.dtype) else str(value)
