"""`kernel`: a kernel whose body is a Python string, run for every thread of a grid."""

import os
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast, overload

import torch

from torch_mojo.errors import SignatureError
from torch_mojo.inline import tuning
from torch_mojo.inline.listed_kernel import ListedKernel
from torch_mojo.inline.named import Named
from torch_mojo.inline.operands import check_name
from torch_mojo.inline.operator import InlineOp, operator, ready
from torch_mojo.inline.shapes import Grid, Parameter
from torch_mojo.inline.tuning import Tuning
from torch_mojo.loader import ShippedOp, caller


class NamedKernel:
    """An inline kernel that knows its operands: call it with its inputs.

    The parameters may be given by keyword. It returns the output, or a tuple of them; None if it only mutates.

    Attributes:
        op: the operator behind it.
    """

    def __init__(self, declaration: Named) -> None:
        self._declaration = declaration
        self._tuned: dict[str, Parameter] = {}
        self.op = operator(declaration)
        self.__name__ = declaration.label

    def __repr__(self) -> str:
        return f"<torch_mojo.kernel {self.op.schema}>"

    def __call__(self, *args: Any, **params: Any) -> Any:
        if self._tuned:
            params = self._tuned | params
        return self.op(*args, **params)

    def as_op(self, qualname: str) -> InlineOp | ShippedOp:
        """Return the kernel as the torch operator `qualname`: `torch.ops.NAMESPACE.NAME`.

        If a library with the operator lies beside the calling file (`torch_mojo.build`), what was built is taken
        from it; without a compiler the operator is a `ShippedOp`, which has nothing else.

        Raises:
            SignatureError: if the name is an operator that torch_mojo did not define.
        """
        frame = cast(types.FrameType, caller(1))
        file, module = frame.f_code.co_filename, frame.f_globals.get("__name__")
        return ready(qualname, self._declaration, file) or InlineOp(
            qualname, self._declaration, module
        )

    def generated(self, *args: Any, **params: Any) -> str:
        """Return the Mojo text for inputs like these; tensors on the meta device stand for CPU tensors."""
        return self.op.generated(args, self._tuned | params)

    def tune(
        self,
        params: Mapping[str, Sequence[Parameter]],
        example: Sequence[Any] | torch.Tensor,
        *,
        repeat: int = 20,
    ) -> Tuning:
        """Measure the kernel with all combinations of parameters, and call it with the fastest from now on.

        What the kernel writes is copied first. The result is kept on disk for this kernel, device and inputs of
        these dtypes and shapes: another process finds it there.

        Args:
            params: the values to try of each parameter.
            example: the inputs.
            repeat: how often each combination is measured.

        Raises:
            SignatureError: if a parameter is none of the kernel's.
        """
        args = (example,) if isinstance(example, torch.Tensor) else tuple(example)
        unknown = [n for n in params if n not in self._declaration.params]
        if unknown:
            raise self._declaration.error(
                f"it has no parameter {', '.join(unknown)}",
                f"It has {', '.join(self._declaration.params) or 'none'}.",
            )
        written = [
            i for i, o in enumerate(self._declaration.inputs) if o.name in self._declaration.mutates
        ]

        def run(values: Mapping[str, Any], scratch: Sequence[Any]) -> object:
            return self.op(*scratch, **values)

        found = tuning.tune(self._declaration, run, params, args, written, repeat)
        self._tuned = dict(found.best)
        return found


@overload
def kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: str,
    header: str = ...,
    ensure_row_contiguous: bool = ...,
    atomic_outputs: bool = ...,
    *,
    include: Sequence[str | os.PathLike[str]] = ...,
    options: Sequence[str] = ...,
    bounds_check: bool = ...,
) -> ListedKernel: ...


@overload
def kernel(
    name: str,
    *,
    source: str,
    outputs: Mapping[str, str] = ...,
    inputs: Mapping[str, str] = ...,
    grid: Grid,
    threadgroup: Grid | None = ...,
    params: Mapping[str, Parameter] = ...,
    init: Mapping[str, float] = ...,
    atomic: Sequence[str] = ...,
    mutates: Sequence[str] = ...,
    header: str = ...,
    ensure_row_contiguous: bool = ...,
    include: Sequence[str | os.PathLike[str]] = ...,
    options: Sequence[str] = ...,
    bounds_check: bool = ...,
) -> NamedKernel: ...


def kernel(
    name: str,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    source: str | None = None,
    header: str = "",
    ensure_row_contiguous: bool = True,
    atomic_outputs: bool = False,
    *,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    params: Mapping[str, Parameter] | None = None,
    grid: Grid | None = None,
    threadgroup: Grid | None = None,
    init: Mapping[str, float] | None = None,
    atomic: Sequence[str] = (),
    mutates: Sequence[str] = (),
    include: Sequence[str | os.PathLike[str]] = (),
    options: Sequence[str] = (),
    bounds_check: bool = False,
) -> NamedKernel | ListedKernel:
    """Make a kernel of a body in Mojo, which runs once for every thread of a grid, on the CPU or a GPU.

    There are two ways. With `inputs` and `outputs` the operands say their dtypes and dims once, and the kernel is
    called with its inputs. With `input_names` and `output_names` each call says shapes, dtypes and grid, as MLX's
    `metal_kernel` takes them. Nothing is built before the first call.

    In the body an operand is read and written as `x[i]`, elements counted in row-major order, or as `x[i, j]`, one
    index for each dimension; `x_shape`, `x_strides` and `x_ndim` describe it, `thread_position_in_grid` and its
    like the thread. Compile-time names (dtypes, parameters) and sizes are there under their own names.

    Args:
        name: for messages; it need not be unique.
        input_names, output_names: the operands, for calls that say the rest.
        source: the body.
        header: Mojo text before the body: imports, functions.
        ensure_row_contiguous: `x[i]` counts elements, whatever the strides. False: it counts places in memory, for
            bodies that use `elem_to_loc(i, x_shape, x_strides, x_ndim)`. Nothing is copied either way.
        atomic_outputs: all outputs are written with `y.atomic_add(i, value)` and its like.
        inputs, outputs: for each name a dtype and dims, `T[n, w // 2, 3]`: a capital letter stands for any dtype,
            `...` for any dims. An input without dims, `f32`, is a number.
        params: compile-time ints, bools and dtypes, with their defaults.
        grid: one to three sizes, as ints and expressions over dims, params and `y.size`, `y.shape[0]`.
        threadgroup: likewise; default: 256 threads.
        init: what an output is filled with before the kernel runs.
        atomic: the outputs, and the inputs among mutates, that are written atomically.
        mutates: the inputs that the body may write as well.
        include: folders in which the header's imports are looked up.
        options: more options for the compiler, such as `("-D", "WIDTH=4")`.
        bounds_check: check every index, and raise an error that names the operand (TORCH_MOJO_DEBUG does, too).

    Raises:
        SignatureError: for a declaration that does not fit together.
    """
    frame = cast(types.FrameType, caller(1))
    label = check_name("kernel", name, "the name")
    common: dict[str, Any] = {
        "row_contiguous": ensure_row_contiguous,
        "bounds_check": bounds_check,
        "include": [Path(p).expanduser().absolute() for p in include],
        "options": tuple(options),
        "file": frame.f_code.co_filename,
    }
    if not isinstance(source, str) or not source.strip():
        raise SignatureError(f"[{label}] has no source.\nGive the body's text as source=.")
    listed = input_names is not None or output_names is not None
    named = {
        "inputs": inputs,
        "outputs": outputs,
        "params": params,
        "grid": grid,
        "threadgroup": threadgroup,
        "init": init,
        "atomic": atomic or None,
        "mutates": mutates or None,
    }
    if listed:
        extra = [n for n, v in named.items() if v is not None]
        if extra or input_names is None or output_names is None:
            raise SignatureError(
                f"[{label}] mixes the two ways to declare a kernel: input_names and output_names"
                f"{' with ' + ', '.join(extra) if extra else ' go together'}.\n"
                "Give input_names and output_names, or inputs and outputs."
            )
        return ListedKernel(
            label, source, header, list(input_names), list(output_names), atomic_outputs, **common
        )
    if atomic_outputs:
        raise SignatureError(f"[{label}] has atomic_outputs.\nName the outputs: atomic=('y',).")
    if grid is None:
        raise SignatureError(
            f"[{label}] has no grid.\nSay how many threads there are, such as grid='y.size'."
        )
    return NamedKernel(
        Named(
            label,
            source,
            header,
            inputs or {},
            outputs or {},
            params or {},
            grid,
            threadgroup,
            init or {},
            _names(atomic),
            _names(mutates),
            **common,
        )
    )


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
