"""An inline kernel that is told shapes, dtypes and grid in each call."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torch_mojo import torch_private
from torch_mojo.errors import SignatureError
from torch_mojo.inline import tuning
from torch_mojo.inline.listed import DTYPE_CODES, Listed, pack_code, pack_sizes
from torch_mojo.inline.operands import check_name
from torch_mojo.inline.operator import InlineOp, operator
from torch_mojo.inline.tuning import Tuning
from torch_mojo.op import original

Template = Sequence[tuple[str, bool | int | torch.dtype]]
Meaning = tuple[InlineOp, tuple[int, ...], Any]  # operator, sizes and code of a call
Call = tuple[InlineOp, Callable[..., Any], bool, tuple[int, ...], Any]  # and what is called
REMEMBERED = 1024  # calls of one kernel
GRID_LIMITS = (2**62, 2**31, 2**31)
THREADGROUP_LIMITS = (2**16, 2**16, 2**16)


class ListedKernel:
    """An inline kernel that is told shapes, dtypes and grid in each call, as MLX's `metal_kernel`."""

    def __init__(
        self,
        label: str,
        body: str,
        header: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        atomic_outputs: bool,
        **common: Any,
    ) -> None:
        self.__name__ = label
        self._declared = (
            label,
            body,
            header,
            tuple(input_names),
            tuple(output_names),
            atomic_outputs,
        )
        self._common = common
        self._calls: dict[Any, Call] = {}
        self._ops: dict[Any, InlineOp] = {}
        self._tuned: dict[str, Any] = {}
        names = [(n, "input") for n in input_names] + [(n, "output") for n in output_names]
        for name, what in names:
            check_name(label, name, f"the {what}")
            if [n for n, _ in names].count(name) > 1:
                raise self._error(f"{name} is declared twice", "Give each its own name.")
        if not output_names:
            raise self._error("it has no output", "Name what it writes in output_names.")
        self._declaration(
            ["tensor"] * len(input_names), (), [1] * len(output_names), None
        ).check_used(input_names, output_names)
        _listed[id(self)] = self

    def __repr__(self) -> str:
        label, _, _, inputs, outputs, _ = self._declared
        return f"<torch_mojo.kernel {label}({', '.join(inputs)}) -> {', '.join(outputs)}>"

    def _error(self, problem: str, advice: str) -> SignatureError:
        return SignatureError(f"[{self.__name__}] {problem}.\n{advice}")

    def _declaration(
        self,
        kinds: Sequence[str],
        template: Sequence[tuple[str, str]],
        ranks: Sequence[int],
        init: str | None,
    ) -> Listed:
        return Listed(*self._declared, kinds, template, ranks, init, **self._common)

    def __call__(
        self,
        *,
        inputs: Sequence[torch.Tensor | float],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[torch.dtype],
        template: Template = (),
        init_value: float | None = None,
        verbose: bool = False,
        device: torch.device | str | None = None,
    ) -> list[torch.Tensor]:
        """Run the body once for every thread of the grid.

        Args:
            inputs: a tensor or a number for each input name. A number takes the dtype that torch gives it among the
                tensors; without tensors bool, int64 or float32.
            grid: how many threads there are, in three dimensions.
            threadgroup: how many of them form a group; no dimension counts more than the grid's. At most 1024.
            output_shapes, output_dtypes: one for each output name.
            template: names and compile-time values for the body: ints, bools, dtypes.
            init_value: what all outputs are filled with first.
            verbose: print the Mojo text when it is built.
            device: where to run if no input is a tensor; default: torch's default device.

        Returns:
            the outputs, on the inputs' device.

        Raises:
            SignatureError: for arguments that do not fit.
            KernelError: for a grid or threadgroup that no device takes.
        """
        if torch.compiler.is_compiling():
            op = self._traced(inputs, output_shapes, template, init_value)
            values = [v for _, v in self._full(template)]
            args = [*inputs, pack_sizes(grid, threadgroup, output_shapes)]
            args += [pack_code(output_dtypes, values), *self._ends(op, init_value, device)]
            made = op.overload(*args)
            return [made] if isinstance(made, torch.Tensor) else list(made)
        key = (
            *(grid, threadgroup, type(init_value), *map(type, inputs)),
            *(*output_shapes, *output_dtypes, *template),
        )
        try:
            op, entry, plain, sizes, code = self._calls[key]
        except (KeyError, TypeError):
            op, sizes, code = self._resolve(
                inputs, grid, threadgroup, output_shapes, output_dtypes, template, init_value
            )
            entry, plain = op.entry, init_value is None and not op.declaration.has_device
            self._remember(key, template, (op, entry, plain, sizes, code))
        try:
            if plain and not verbose:
                made = entry(*inputs, sizes, code)
            else:
                made = self._call(
                    op, verbose, *inputs, sizes, code, *self._ends(op, init_value, device)
                )
        except RuntimeError as e:
            raise original(e) from None
        return list(made) if made.__class__ is tuple else [made]

    @staticmethod
    def _call(op: InlineOp, verbose: bool, *args: Any) -> Any:
        op.verbose = verbose
        try:
            return op.entry(*args)
        finally:
            op.verbose = False

    @staticmethod
    def _ends(
        op: InlineOp, init_value: float | None, device: torch.device | str | None
    ) -> list[Any]:
        """Return the last arguments of a call."""
        found: list[Any] = [] if init_value is None else [init_value]
        if op.declaration.has_device:
            found.append(torch.get_default_device() if device is None else torch.device(device))
        return found

    def _remember(self, key: Any, template: Template, call: Call) -> None:
        """Keep what a call means, if the next one like it can be told from all others: True equals 1."""
        if any(not isinstance(v, torch.dtype) for _, v in template):
            return
        if len(self._calls) >= REMEMBERED:
            self._calls.clear()
        with contextlib.suppress(TypeError):  # lists are no keys
            self._calls[key] = call

    def _kinds(
        self,
        inputs: Sequence[object],
        output_shapes: Sequence[object],
        output_dtypes: Sequence[object],
        template: Template,
        init_value: float | None,
    ) -> tuple[list[str], list[tuple[str, str]], str | None]:
        """Check a call's arguments, and return the kinds of inputs, of template values, of the initial value."""
        _, _, _, names, outputs, _ = self._declared
        for what, given, wanted in (
            ("inputs", inputs, names),
            ("output_shapes", output_shapes, outputs),
            ("output_dtypes", output_dtypes, outputs),
        ):
            if len(given) != len(wanted):
                raise self._error(
                    f"{what} has {len(given)} item(s) for {len(wanted)} name(s): {', '.join(wanted)}",
                    "Give one for each name.",
                )
        for name, dtype in zip(outputs, output_dtypes, strict=True):
            if dtype not in DTYPE_CODES:
                raise self._error(
                    f"the dtype of {name} is {dtype!r}", "Give a torch.dtype that Mojo has."
                )
        kinds = []
        for name, value in zip(names, inputs, strict=True):
            kind = _kind(value)
            if kind is None or kind == "dtype":
                raise self._error(
                    f"the input {name} is {value!r}", "Give a tensor, an int, a float or a bool."
                )
            kinds.append(kind)
        values = []
        for item in template:
            if not (isinstance(item, tuple) and len(item) == 2):
                raise self._error(f"template has {item!r}", "Give pairs (name, value).")
            name, value = item
            check_name(self.__name__, name, "the template name")
            if name in (*names, *outputs) or [n for n, _ in template].count(name) > 1:
                raise self._error(f"{name} is declared twice", "Give each its own name.")
            kind = _kind(value)
            if kind not in ("bool", "int", "dtype") or (
                kind == "dtype" and value not in DTYPE_CODES
            ):
                raise self._error(
                    f"the template value {name} is {value!r}; it may be an int, a bool or a torch.dtype",
                    "Pass other values as inputs.",
                )
            values.append((name, kind))
        init = None if init_value is None else _kind(init_value)
        if init_value is not None and init not in ("bool", "int", "float"):
            raise self._error(f"init_value is {init_value!r}", "Give a number.")
        return kinds, values, "int" if init == "bool" else init

    def _resolve(
        self,
        inputs: Sequence[object],
        grid: Sequence[int],
        threadgroup: Sequence[int],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[torch.dtype],
        template: Template,
        init_value: float | None,
    ) -> Meaning:
        """Return what a call means."""
        for what, value in (("grid", grid), ("threadgroup", threadgroup)):
            if not isinstance(value, Sequence) or len(value) != 3:
                raise self._error(
                    f"the {what} is {value!r}; it takes three ints",
                    f"Give the {what} as (x, y, z).",
                )
            limits = GRID_LIMITS if what == "grid" else THREADGROUP_LIMITS
            if not all(0 <= n < limit for n, limit in zip(value, limits, strict=True)):
                raise self._error(
                    f"the {what} is {value!r}; no size may be negative, or reach {limits}",
                    "Give other sizes.",
                )
        template = self._full(template)
        kinds, values, init = self._kinds(
            inputs, output_shapes, output_dtypes, template, init_value
        )
        op = self._op((tuple(kinds), tuple(values), tuple(map(len, output_shapes)), init))
        code = pack_code(output_dtypes, [v for _, v in template])
        return op, pack_sizes(grid, threadgroup, output_shapes), code

    def _full(self, template: Template) -> Template:
        """Return the template with what was tuned."""
        if not self._tuned:
            return template
        given = [n for n, _ in template]
        return [*template, *[(n, v) for n, v in self._tuned.items() if n not in given]]

    def _op(self, key: Any) -> InlineOp:
        if key not in self._ops:
            self._ops[key] = operator(self._declaration(*key))
        return self._ops[key]

    def _traced(
        self,
        inputs: Sequence[object],
        output_shapes: Sequence[Sequence[int]],
        template: Template,
        init_value: float | None,
    ) -> InlineOp:
        """Return the operator for such calls, in steps that Dynamo can follow."""
        kinds = tuple([_kind(v) for v in inputs])
        values = tuple([(n, _kind(v)) for n, v in self._full(template)])
        ranks = tuple([len(s) for s in output_shapes])
        init = None if init_value is None else _kind(init_value)
        key = (kinds, values, ranks, "int" if init == "bool" else init)
        _define(id(self), key)
        return self._ops[key]

    def generated(self, **call: Any) -> str:
        """Return the Mojo text for a call with these keyword arguments."""
        call.setdefault("template", ())
        op, args = self._arguments(**call)
        return op.generated(args, {})

    def _arguments(
        self,
        *,
        inputs: Sequence[Any],
        grid: Sequence[int],
        threadgroup: Sequence[int],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[torch.dtype],
        template: Template,
        init_value: float | None = None,
        device: torch.device | str | None = None,
        verbose: bool = False,
    ) -> tuple[InlineOp, list[Any]]:
        op, sizes, code = self._resolve(
            inputs, grid, threadgroup, output_shapes, output_dtypes, template, init_value
        )
        args: list[Any] = [*inputs, sizes, code]
        if init_value is not None:
            args.append(init_value)
        if op.declaration.has_device:
            args.append(torch.get_default_device() if device is None else torch.device(device))
        return op, args

    def tune(
        self,
        params: Mapping[str, Sequence[Any]],
        example: Mapping[str, Any],
        *,
        repeat: int = 20,
    ) -> Tuning:
        """Measure the kernel with all combinations of parameters; later calls need not name the fastest.

        The result is kept on disk for this kernel, device and inputs of these dtypes and shapes: another process
        finds it there.

        Args:
            params: the values to try of each template name.
            example: the keyword arguments of a call, without those names in its template.
            repeat: how often each combination is measured.
        """
        call = dict(example)
        fixed = list(call.pop("template", ()))
        inputs = list(call.pop("inputs"))

        def run(values: Mapping[str, Any], scratch: Sequence[Any]) -> object:
            return self(inputs=scratch, template=[*fixed, *values.items()], **call)

        sample = self._declaration(["tensor"] * len(inputs), (), [1], None)
        found = tuning.tune(sample, run, params, inputs, (), repeat)
        self._calls.clear()
        self._tuned = dict(found.best)
        return found


_listed: dict[int, ListedKernel] = {}


@torch_private.assume_constant_result
def _define(kernel: int, key: Any) -> bool:
    """Register the operator for a kind of call while Dynamo traces one: it cannot follow that itself."""
    _listed[kernel]._op(key)
    return True


def _kind(value: object) -> str | None:
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, torch.dtype):
        return "dtype"
    if isinstance(value, (bool, torch.SymBool)):
        return "bool"
    if isinstance(value, (int, torch.SymInt)):
        return "int"
    return "float" if isinstance(value, (float, torch.SymFloat)) else None
