"""What the two ways to declare an inline kernel have in common."""

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch

from torch_mojo import config
from torch_mojo.dispatch.keys import CONTIGUOUS, Key, TensorKey
from torch_mojo.dtypes import TO_MOJO
from torch_mojo.inline.operands import ONLY_GPU
from torch_mojo.inline.shapes import Labelled
from torch_mojo.inline.text import Program, words
from torch_mojo.jit.sources import PythonPlace, place_of


class Declaration(Labelled):
    """An inline kernel as it was declared.

    Attributes:
        file: the Python file with its text, if it is known.
        has_device: whether the operator's last argument is the device.
    """

    has_device = False

    def __init__(
        self,
        label: str,
        body: str,
        header: str,
        *,
        row_contiguous: bool,
        bounds_check: bool,
        include: Sequence[Path],
        options: Sequence[str],
        file: str | None,
    ) -> None:
        Labelled.__init__(self, label)
        self.body = body
        self.header = header
        self.row_contiguous = row_contiguous
        self.bounds_check = bounds_check
        self.include = tuple(include)
        self.options = tuple(options)
        self.file = file
        self.used = words(body)

    def in_key(self, index: int) -> bool:
        """Tell whether the value of this argument makes another text."""
        raise NotImplementedError

    def fixed(self, name: str) -> tuple[torch.dtype | None, int | None]:
        """Return dtype and rank of an input, as far as they are the same in every call."""
        return None, None

    def program(
        self,
        values: Sequence[object],
        keys: Sequence[Key],
        outs: Sequence[TensorKey],
        graph: bool = False,
    ) -> Program:
        """Return the text's parts for one key; in a MAX graph all sizes are known."""
        raise NotImplementedError

    def _parts(self) -> list[object]:
        """Return what else than header and body makes this another kernel."""
        raise NotImplementedError

    @property
    def checked(self) -> bool:
        return self.bounds_check or config.debug()

    @property
    def digest(self) -> str:
        """A hash of all that was declared."""
        parts = [self.label, self.body, self.header, self.row_contiguous, self.checked]
        parts += [*map(str, self.include), self.options, *self._parts()]
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:12]

    def refuse_on_cpu(self) -> None:
        """Refuse a body that needs a GPU.

        Raises:
            SignatureError: naming what it uses.
        """
        found = [w for w in ONLY_GPU if w in self.used | words(self.header)]
        if found:
            raise self.error(
                f"the body uses {', '.join(found)}, which a CPU does not have",
                "Call it with CUDA tensors, or write the body for single threads.",
            )

    def check_used(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Refuse inputs and outputs that the body does not mention."""
        for what, names in (("input", inputs), ("output", outputs)):
            for name in names:
                if not any(
                    n in self.used
                    for n in (name, f"{name}_shape", f"{name}_strides", f"{name}_ndim")
                ):
                    raise self.error(
                        f"the {what} {name} is not used in the body",
                        f"Use it, or leave it out of the {what}s.",
                    )

    def place(self, program: Program) -> PythonPlace | None:
        """Return where the generated text's lines stand in the Python file."""
        if self.file is None:
            return None
        texts = [self.header] * (len(program.pieces) - 1) + [self.body]
        pieces = []
        for (first, last, _), text in zip(program.pieces, texts, strict=True):
            found = place_of(text, self.file)
            for a, b, line in found.pieces if found else ():
                pieces.append((first + a - 1, min(first + b - 1, last), line))
        return PythonPlace(self.file, tuple(pieces), whole=False)

    def dtype_of(self, name: str, key: TensorKey) -> torch.dtype:
        """Return a tensor's dtype.

        Raises:
            SignatureError: if Mojo does not have it.
        """
        if key.dtype not in TO_MOJO:
            raise self.error(
                f"{name} has dtype {key.dtype}, which Mojo does not have", "Convert it first."
            )
        return key.dtype

    def is_row_major(self, key: TensorKey) -> bool:
        return key.layout == CONTIGUOUS


def number(value: bool | int | float) -> str:
    """Return a Python number as a Mojo scalar that can be cast."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return f"SIMD[DType.float64, 1]({value!r})".replace("(nan)", "(0) / 0")
        return f"Float64({value!r})"
    if isinstance(value, bool):
        return f"Scalar[DType.bool]({value})"
    return f"Int64({value})" if value < 2**63 else f"UInt64({value})"
