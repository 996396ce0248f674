"""The Mojo text of one specialization: takes the flat words apart and calls the kernel."""

import json
import re
from collections.abc import Callable, Mapping, Sequence

import torch

from torch_mojo.devices import on_host
from torch_mojo.dispatch.binding import STREAM
from torch_mojo.dispatch.keys import CONTIGUOUS, Key, TensorKey
from torch_mojo.dispatch.schema import Arg
from torch_mojo.dispatch.specialization import Specialization
from torch_mojo.dtypes import FROM_MOJO, TO_MOJO
from torch_mojo.jit.signature import Argument, Parameter


class Shim:
    """Writes the text for a specialization."""

    def __init__(self, specialization: Specialization) -> None:
        self._of = specialization
        self._alias = "Kernel"

    def text(self, name: str = "tm_run") -> str:
        """Return the Mojo text of this specialization, with the name of its C function."""
        return together({name: self})

    def imports(self) -> list[str]:
        """Return the first lines of the text."""
        kernel = self._of.binding.kernel
        lines = ["from std.utils.numerics import inf, nan, neg_inf", "", "from torch.shim import *"]
        if self._of.binding.context or self._of.binding.stream:
            lines.append("from torch.context import context, stream")
        if any(a.fused for a in kernel.arguments):
            lines.append("from torch.special import *")
        return lines

    def number(self, aliases: dict[tuple[str, str], str]) -> None:
        """Call the kernel what it is called in `aliases`, by module and struct; add it if it is not there."""
        kernel = self._of.binding.kernel
        alias = f"Kernel{len(aliases) or ''}"
        self._alias = aliases.setdefault((kernel.module, kernel.struct), alias)

    def functions(self, name: str, run: str) -> list[str]:
        """Return the C function `name`, and what it calls under names that begin with `run`."""
        places = self._places()
        if self._of.binding.broadcast:
            flat, expanded = f"{run}_flattened", f"{run}_expanded"
            lines = self._function(flat, places, self._flattened)
            lines += self._function(expanded, places, self._expanded)
            lines += ["", "", f"def {run}(flat: Int) raises:"]
            lines += [f"    if {self._same_places(places)}:", f"        {flat}(flat)"]
            lines += ["    else:", f"        {expanded}(flat)"]
        else:
            lines = self._function(run, places, self._tensor)
        return [
            *lines,
            "",
            "",
            "@export",
            f'def {name}(flat: Int) abi("C") -> Int:',
            "    try:",
            f"        {run}(flat)",
            "        return 0",
            "    except e:",
            "        return failure(String(e))",
        ]

    def _function(
        self, name: str, places: Mapping[str, int], tensor: Callable[..., str]
    ) -> list[str]:
        """Return a function that calls the kernel with its tensors as `tensor` writes them."""
        kernel = self._of.binding.kernel
        body, call = ["", "", f"def {name}(flat: Int) raises:"], []
        for argument in kernel.arguments:
            name = f"_{argument.name}"
            expression = self._argument(argument, places, tensor)
            if argument.fused:
                plain = f"{name}_plain"
                body.append(f"    var {plain} = {expression}")
                whole = tensor == self._flattened
                spec = f"[{plain}.dtype, {plain}.rank, {plain}.static_spec, {whole}]({plain})"
                bind = ("input(PlainLoad", "output(PlainStore")[argument.io == "Output"]
                expression = f"{plain}._bind_to_fused_{bind}{spec})"
            body.append(f"    var {name} = {expression}")
            call.append(name)
        struct = self._parameter_text(kernel.struct_parameters, self._struct_extra())
        execute = self._parameter_text(kernel.parameters, {})
        body.append(f"    {self._alias}{struct}.execute{execute}({', '.join(call)})")
        return body

    # Broadcast kernels: the text does not depend on layouts, and hardly on ranks.

    def _position(self, argument: Argument) -> int:
        """Return the position of a tensor among those whose ranks the router packs."""
        names = [
            a.name for a, k in zip(self._of.binding.schema.args, self._of.keys, strict=True) if k
        ]
        return [*names, *(a.name for a in self._of.binding.outputs)].index(argument.name)

    def _same_places(self, places: Mapping[str, int]) -> str:
        """Return the condition under which all tensors can be walked in the order of their memory."""
        out, *_ = self._of.binding.outputs
        like = f"{places[out.name]}, rank_of(flat, {self._position(out)})"
        conditions = [f"is_dense(flat, {like})"]
        for argument in self._of.binding.kernel.arguments:
            if argument.io and argument is not out and self._key(argument) is not None:
                own = f"{places[argument.name]}, rank_of(flat, {self._position(argument)})"
                conditions.append(f"same_places(flat, {own}, {like})")
        return " and ".join(conditions)

    def _key(self, argument: Argument) -> TensorKey | None:
        if argument.name in self._of.binding.sources:
            found = self._of.keys[self._of.binding.sources[argument.name]]
        else:
            found = self._of.outs[self._of.binding.outputs.index(argument)]
        assert not isinstance(found, list)
        return found

    def _flattened(self, argument: Argument, key: TensorKey | None, at: int) -> str:
        if key is None:
            return self._tensor(argument, key, at)
        parameters = f"{_mojo_dtype(key)}, IOSpec.{argument.io}, {self._alignment(key)}"
        return f"flattened[{parameters}](flat, {at}, rank_of(flat, {self._position(argument)}))"

    def _expanded(self, argument: Argument, key: TensorKey | None, at: int) -> str:
        if key is None:
            return self._tensor(argument, key, at)
        assert key.dtype is not None
        out, *_ = self._of.binding.outputs
        rank = self._of.outs[0].rank
        seen = 2 if rank <= 2 else 4 if rank <= 4 else rank  # few builds serve all ranks
        alignment = min(self._alignment(key), key.dtype.itemsize)
        parameters = f"{_mojo_dtype(key)}, {seen}, IOSpec.{argument.io}, {alignment}"
        own = f"{at}, rank_of(flat, {self._position(argument)})"
        like = f"{self._places()[out.name]}, rank_of(flat, {self._position(out)})"
        return f"expanded[{parameters}](flat, {own}, {like})"

    def _places(self) -> dict[str, int]:
        """Return where each argument's flat words begin; outputs come last, by their kernel names."""
        at, places = 0, {}
        for arg, key in zip(self._of.binding.schema.args, self._of.keys, strict=True):
            places[arg.name] = at
            at += (
                3 * len(key)
                if isinstance(key, list)
                else 0
                if _is_none_list(arg, key)
                else arg.flat_words
            )
        for argument in self._of.binding.outputs:
            places[argument.name] = at
            at += 3
        return places

    def _argument(
        self, argument: Argument, places: Mapping[str, int], tensor: Callable[..., str]
    ) -> str:
        if argument.name in self._of.binding.sources:
            index = self._of.binding.sources[argument.name]
            arg = self._of.binding.schema.args[index]
            if arg.base == "Tensor":
                key = self._of.keys[index]
                assert not isinstance(key, list)
                return tensor(argument, key, places[argument.name])
            return self._value(argument, arg, self._of.values[index], places[argument.name])
        for out, key in zip(self._of.binding.outputs, self._of.outs, strict=True):
            if out is argument:
                return tensor(argument, key, places[argument.name])
        return "stream(flat)" if STREAM in argument.type else "context(flat)"

    def _tensor(self, argument: Argument, key: TensorKey | None, at: int) -> str:
        io = f"IOSpec.{argument.io}"
        if key is None:
            absent, rank = self._of.absent(argument)
            return f"absent[DType.{TO_MOJO[absent]}, {rank}, {io}]()"
        assert key.dtype is not None
        dtype = _mojo_dtype(key)
        rank = self._of.rank(argument, key.rank)
        alignment = self._alignment(key)
        if key.rank == 0 and rank == 1:
            return f"single[{dtype}, {io}, {alignment}](flat, {at})"
        if key.layout == CONTIGUOUS and rank > 0:
            return f"contiguous[{dtype}, {rank}, {io}, {alignment}](flat, {at})"
        alignment = min(alignment, key.dtype.itemsize)
        return f"strided[{dtype}, {rank}, {io}, {alignment}](flat, {at})"

    def _alignment(self, key: TensorKey) -> int:
        """A GPU wants elements aligned as they are; the CPU takes any address at no cost."""
        assert key.dtype is not None
        return 1 if on_host(self._of.device) else 16 if key.aligned else key.dtype.itemsize

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
        dtype = self._of.scalar_dtype(type_)
        if dtype is None or arg.base not in ("int", "float", "bool"):
            raise self._of.error(
                f"{arg.name} is declared as {arg.base}, and the kernel takes {type_}",
                "Take a fixed-width number such as Int64 or Float32, or make it a compile-time parameter.",
            )
        mojo = f"DType.{TO_MOJO[dtype]}"
        if arg.base == "float":
            if not dtype.is_floating_point:
                raise self._of.error(
                    f"{arg.name} is declared as float, and the kernel takes {type_}",
                    f"Declare {arg.name} as int, or let the kernel take a Float64.",
                )
            return f"float_value(flat, {at}).cast[{mojo}]()"
        if arg.base == "bool":
            return f"Scalar[DType.bool](bool_value(flat, {at})).cast[{mojo}]()"
        return f'int_value[{mojo}](flat, {at}, "{arg.name}")'

    def _list_value(self, argument: Argument, arg: Arg, value: object, at: int) -> str:
        length = len(value) if isinstance(value, (list, tuple)) else 0
        match = re.fullmatch(r"IndexList\[(\w+)(?:,.*)?\]", argument.type)
        if match and arg.base == "int":
            wanted = self._of.evaluate(match[1])
            if isinstance(wanted, int) and wanted != length:
                raise self._of.error(
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
            else self._of.scalar_dtype(match[1])
            if match
            else None
        )
        if dtype is None or (arg.base == "float" and not dtype.is_floating_point):
            raise self._of.error(
                f"{arg.name} is declared as a list of {arg.base}, and the kernel takes {argument.type}",
                "Take an IndexList[N], a List[Int], a List[Int64] or a List[Float64].",
            )
        if arg.base == "float":
            return f"float_list[DType.{TO_MOJO[dtype]}](flat, {at})"
        return f"word_list[DType.{TO_MOJO[dtype]}](flat, {at})"

    def _struct_extra(self) -> dict[str, str]:
        """Return the struct parameters that only the tensors can give: Mojo does not infer those."""
        found = {}
        for parameter in self._of.binding.kernel.struct_parameters:
            value = self._of.env.get(parameter.name)
            given = (
                parameter.name in self._of.binding.parameters
                or parameter.name in self._of.binding.constants
            )
            if not given and value is not None:
                found[parameter.name] = _literal(value)
        return found

    def _parameter_text(self, parameters: Sequence[Parameter], extra: dict[str, str]) -> str:
        found = dict(extra)
        for parameter in parameters:
            name = parameter.name
            if name == "target":
                found[name] = '"cpu"' if on_host(self._of.device) else '"gpu"'
            elif name in self._of.binding.constants:
                found[name] = _literal(self._of.binding.constants[name])
            elif name in self._of.binding.parameters:
                value = self._of.values[self._of.binding.parameters[name]]
                if value is None:
                    continue  # its default
                found[name] = _literal(value)
            elif name in self._of.binding.flags:
                found[name] = str(self._of.values[self._of.binding.flags[name]] is not None)
        return f"[{', '.join(f'{k}={v}' for k, v in found.items())}]" if found else ""


def together(shims: Mapping[str, Shim]) -> str:
    """Return one text for several specializations, by the names of their C functions."""
    lines = list(dict.fromkeys(line for s in shims.values() for line in s.imports()))
    aliases: dict[tuple[str, str], str] = {}
    functions = []
    for i, (name, shim) in enumerate(shims.items()):
        shim.number(aliases)
        functions += shim.functions(name, f"run{i}" if i else "run")
    lines += [
        f"from {module} import {struct} as {alias}" for (module, struct), alias in aliases.items()
    ]
    return "\n".join([*lines, *functions, ""])


def _mojo_dtype(key: TensorKey) -> str:
    assert key.dtype is not None
    return f"DType.{TO_MOJO[key.dtype]}"


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
