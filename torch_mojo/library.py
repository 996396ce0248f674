"""`CustomOpLibrary`: MAX's interface to a file or package of custom ops, on the native path."""

import hashlib
import inspect
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torch_mojo.dispatch import schema as schemas
from torch_mojo.errors import KernelNotFoundError, SignatureError
from torch_mojo.jit.signature import Argument, Kernel
from torch_mojo.jit.sources import from_path
from torch_mojo.op import MojoOp

Parameter = bool | int | float | str | torch.dtype

_NUMBERS = re.compile(r"^(?:(U?Int\d*)|(B?Float\d+)|(Bool)|Scalar\[.*\]|SIMD\[.*\])$")


class CustomOpLibrary:
    """The kernels of a `.mojo` file, a folder or a `.mojoc`, each as an attribute.

    The same interface as `max.experimental.torch.CustomOpLibrary`: an operator takes its outputs first and
    writes them in place, then its inputs, and returns None. Numbers may be passed as well.

    Args:
        kernel_library: the path, or a `max.graph.KernelLibrary` with one path.

    Raises:
        KernelNotFoundError: if nothing is there, or for an attribute that is no kernel.
    """

    def __init__(self, kernel_library: str | os.PathLike[str] | Any) -> None:
        paths = getattr(kernel_library, "library_paths", None)
        if callable(paths):
            found = [Path(p) for p in paths()]
            if len(found) != 1:
                raise KernelNotFoundError(
                    f"The KernelLibrary has {len(found)} paths; CustomOpLibrary takes one.\n"
                    "Make one CustomOpLibrary for each path."
                )
            kernel_library = found[0]
        self.source = from_path(Path(kernel_library), ())
        self._ops: dict[str, CustomOp] = {}
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> "CustomOp":
        if name.startswith("__"):
            raise AttributeError(name)
        with self._lock:
            if name not in self._ops:
                self._ops[name] = CustomOp(self, self.source.kernel(name))
            return self._ops[name]

    def __dir__(self) -> Iterator[str]:
        yield from super().__dir__()
        yield from self.source.kernels

    def __iter__(self) -> Iterator[str]:
        return iter(self.source.kernels)


class CustomOp:
    """One kernel of a library. `op[{"NAME": value}]` sets compile-time parameters."""

    def __init__(
        self,
        library: CustomOpLibrary,
        kernel: Kernel,
        parameters: Mapping[str, Parameter] | None = None,
    ) -> None:
        self.library = library
        self.name = kernel.name
        self.parameters = parameters
        self._kernel = kernel
        self._lock = threading.Lock()
        self._variants: dict[tuple[tuple[str, Parameter], ...], CustomOp] = {}
        self._declared: MojoOp | None = None
        if parameters is not None or all(
            p.inferred or p.default is not None or p.name == "target"
            for p in kernel.all_parameters.values()
        ):
            self._declared = self._declare()

    def __getitem__(self, parameters: Mapping[str, Parameter]) -> "CustomOp":
        if self.parameters is not None:
            raise TypeError(
                f"{self.name} has its parameters already: {dict(self.parameters)}.\n"
                "Index the operator itself."
            )
        key = tuple(sorted(parameters.items()))
        with self._lock:
            if key not in self._variants:
                self._variants[key] = CustomOp(self.library, self._kernel, dict(key))
            return self._variants[key]

    def __call__(self, *args: object, **kwargs: object) -> None:
        if self._declared is None:  # what it lacks is told here
            with self._lock:
                self._declared = self._declared or self._declare()
        self._declared(*args, **kwargs)

    @property
    def num_outputs(self) -> int:
        """The number of leading arguments that are written."""
        return sum(a.io == "Output" for a in self._kernel.arguments)

    @property
    def torch_signature(self) -> inspect.Signature:
        """The operator's signature: outputs first, then inputs."""
        return inspect.Signature(
            [
                inspect.Parameter(
                    a.name,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    annotation=torch.Tensor if a.io else _python_type(a),
                )
                for a in self._arguments()
            ],
            return_annotation=None,
        )

    def op(self, *args: Any, result_types: Sequence[Any]) -> list[Any]:
        """Add the kernel to the MAX graph that is being built.

        Args:
            args: the inputs, as `max.graph.TensorValue`s.
            result_types: the outputs' `max.graph.TensorType`s.
        """
        from max.graph import DeviceRef, ops

        where = next((a.type.device for a in args), None) or next(
            (t.device for t in result_types), DeviceRef.CPU()
        )
        return ops.custom(
            self.name, where, list(args), out_types=list(result_types), parameters=self.parameters
        )

    def _arguments(self) -> list[Argument]:
        found = [a for a in self._kernel.arguments if "Device" not in a.type]
        return sorted(found, key=lambda a: a.io != "Output")

    def _declare(self) -> MojoOp:
        parts = [_schema_part(i, a, self.name) for i, a in enumerate(self._arguments())]
        variant = "_".join(
            re.sub(r"\W", "_", f"{k}_{v}") for k, v in sorted((self.parameters or {}).items())
        )
        digest = hashlib.sha256(str(self.library.source.origin).encode()).hexdigest()[:8]
        safe = re.sub(r"\W", "_", self.name)
        name = f"{safe}_{variant}" if variant else safe
        stem = re.sub(r"\W", "_", self.library.source.origin.stem)
        qualname = f"torch_mojo_{stem}_{digest}::{name}"
        schema = schemas.parse(qualname, f"{name}({', '.join(parts)}) -> ()")

        def body(*args: object, **kwargs: object) -> None:
            """Writes its first arguments."""

        return MojoOp(qualname, self.library.source, schema, body, self.name, self.parameters)


def _python_type(argument: Argument) -> type:
    match = _NUMBERS.match(argument.type)
    if match is None:
        raise SignatureError(
            f"{argument.name} has type {argument.type}, which CustomOpLibrary cannot pass.\n"
            "Declare the kernel with torch_mojo.mojo_op."
        )
    if match[3]:
        return bool
    return float if match[2] or "loat" in argument.type else int


def _schema_part(position: int, argument: Argument, kernel: str) -> str:
    if argument.io == "Input":
        return f"Tensor {argument.name}"
    if argument.io is not None:
        return f"Tensor(a{position}!) {argument.name}"
    type_ = _python_type(argument)
    return f"{ {bool: 'bool', float: 'float', int: 'SymInt'}[type_] } {argument.name}"
