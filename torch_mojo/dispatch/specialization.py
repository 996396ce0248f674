"""One specialization: the checks of one key, and what the kernel sees."""

import dataclasses
import re
from collections.abc import Sequence

import torch

from torch_mojo.devices import on_host
from torch_mojo.dispatch.binding import Binding
from torch_mojo.dispatch.keys import REPEATED, Key, TensorKey
from torch_mojo.dtypes import FROM_MOJO, TO_MOJO, short
from torch_mojo.errors import SignatureError
from torch_mojo.jit.signature import Argument

_SCALARS = {
    **{f"{k}{w}": f"{k.lower()}{w}" for k in ("Int", "UInt") for w in (8, 16, 32, 64)},
    **{f"Float{w}": f"float{w}" for w in (16, 32, 64)},
    "BFloat16": "bfloat16",
}


class Specialization:
    """The kernel for one key.

    `keys` and `outs` say what the tensors are, `seen` what rank the kernel sees of each argument: that of the
    first output if inputs are broadcast. Without `outs`, only the inputs are checked.
    """

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
        self.seen = [self._broadcast(k) for k in keys]
        self.device = self._device()
        self.env: dict[str, object] = {}
        self._check_dtypes()
        self._unify()

    def _broadcast(self, key: Key) -> Key:
        if not self.binding.broadcast or not self.outs or not isinstance(key, TensorKey):
            return key
        return dataclasses.replace(key, rank=self.outs[0].rank)

    # checks

    def error(self, problem: str, advice: str) -> SignatureError:
        return SignatureError(f"[{self.binding.qualname}] {problem}.\n{advice}")

    def tensors(self) -> list[tuple[str, TensorKey, Argument | None]]:
        """Return (name, key, kernel argument) of every tensor, outputs last."""
        by_name = {a.name: a for a in self.binding.kernel.arguments}
        found: list[tuple[str, TensorKey, Argument | None]] = []
        for arg, key in zip(self.binding.schema.args, self.seen, strict=True):
            if isinstance(key, list):
                found += [
                    (f"{arg.name}[{i}]", k, by_name.get(arg.name)) for i, k in enumerate(key) if k
                ]
            elif key is not None:
                found.append((arg.name, key, by_name.get(arg.name)))
        for argument, key in zip(self.binding.outputs, self.outs, strict=bool(self.outs)):
            found.append((f"output {argument.name}", key, argument))
        return found

    def _device(self) -> torch.device:
        tensors = self.tensors()
        if not tensors:
            return torch.device("cpu")
        first, device = tensors[0][0], tensors[0][1].device
        for name, key, _ in tensors[1:]:
            if key.device != device:
                raise self.error(
                    f"{first} is on {device} and {name} is on {key.device}; a kernel runs on one device",
                    f"Move one of them: {name}.to({str(device)!r}).",
                )
        if not on_host(device) and device.type != "cuda":
            raise self.error(
                f"{first} is on {device}; Mojo kernels run on cpu, cuda and mojo here",
                f"Move the tensors: {first}.to('cpu').",
            )
        return device

    def _check_dtypes(self) -> None:
        for name, key, argument in self.tensors():
            if argument is not None and key.dtype not in TO_MOJO:
                shown = short(key.dtype) if key.dtype else f"number {key.dtype_code}"
                raise self.error(
                    f"{name} has dtype {shown}, which Mojo does not have",
                    f"Convert it to one of {', '.join(short(d) for d in TO_MOJO)}.",
                )
            if argument is not None and argument.io != "Input" and key.layout == REPEATED:
                raise self.error(
                    f"{name} is written, and several of its elements share one place in memory",
                    "Clone the tensor first.",
                )

    def _unify(self) -> None:
        """Solve dtype= and rank= of the tensors for the kernel's parameters; refuse what disagrees."""
        self.env.update(self.binding.constants)
        for name, index in self.binding.parameters.items():
            self.env[name] = self.values[index]
        tensors = [(n, k, a) for n, k, a in self.tensors() if a is not None]
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
                raise self.error(
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

    @property
    def description(self) -> str:
        """Return what is built, for people."""
        parts = []
        for name, key, _ in self.tensors():
            if not name.startswith("output"):
                dtype = short(key.dtype) if key.dtype else "?"
                parts.append(
                    f"{name}: {dtype}[{key.rank}]" + ("" if key.layout == 0 else " strided")
                )
        for name, index in self.binding.parameters.items():
            parts.append(f"{name}={_show(self.values[index])}")
        parts += [f"{name}={_show(value)}" for name, value in self.binding.constants.items()]
        where = "" if on_host(self.device) else f" on {self.device.type}"
        return f"{self.binding.qualname}({', '.join(parts)}){where}"

    def rank(self, argument: Argument, rank: int) -> int:
        """Return the rank that the kernel sees: a 0-d tensor is one element unless 0 is asked for."""
        if rank == 0 and self._literal_rank(argument) != 0:
            return 1
        return rank

    def absent(self, argument: Argument) -> tuple[torch.dtype, int]:
        """Return dtype and rank of the empty tensor that stands for an optional one that was left out."""
        dtype = self.evaluate(argument.constraints.get("dtype", ""))
        if not isinstance(dtype, torch.dtype):
            dtype = next((k.dtype for _, k, _ in self.tensors() if k.dtype), torch.float32)
        rank = self.evaluate(argument.constraints.get("rank", ""))
        return dtype, max(rank, 1) if isinstance(rank, int) else 1

    def packed_ranks(self) -> int:
        """Return the ranks of a broadcast call's tensors, outputs last, in the word that `rank_of` reads."""
        if not self.binding.broadcast:
            return 0
        tensors = [k for k in (*self.keys, *self.outs) if isinstance(k, TensorKey)]
        return sum(k.rank << (4 * i) for i, k in enumerate(tensors))

    def is_single(self, argument: Argument, key: Key) -> bool:
        """Tell whether the kernel sees a 0-d tensor as one element in one dimension."""
        return isinstance(key, TensorKey) and self.rank(argument, key.rank) != key.rank

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

    def scalar_dtype(self, type_: str) -> torch.dtype | None:
        """Return the dtype of a fixed-width number's type, or None."""
        if type_ in _SCALARS:
            return FROM_MOJO[_SCALARS[type_]]
        match = re.fullmatch(r"(?:Scalar\[(.+)\]|SIMD\[(.+?),\s*1\])", type_)
        found = self.evaluate(match[1] or match[2]) if match else None
        return found if isinstance(found, torch.dtype) else None


def _show(value: object) -> str:
    return short(value) if isinstance(value, torch.dtype) else str(value)
