"""What happens when an operator is called, as far as Python has a part in it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from torch_mojo import torch_private
from torch_mojo.dispatch import libtorch, plans, symints
from torch_mojo.dispatch import stack as stacks
from torch_mojo.dispatch.keys import (
    Key,
    KeyReader,
    TensorKey,
    key_of_value,
    planned_key,
    stand_in,
    tensor_key,
)
from torch_mojo.dispatch.load import Built, load
from torch_mojo.errors import SignatureError

if TYPE_CHECKING:
    from torch_mojo.dispatch.register import Declared


class Calls:
    """The router's side of one operator: misses, bodies, gradients.

    Attributes:
        built: the specializations in use, by library and function.
    """

    def __init__(self, op: "Declared") -> None:
        self._op = op
        self.qualname = op.label
        self.arguments = op.arguments
        self.built: dict[tuple[str, int], Built] = {}

    def specialize(self, stack: int, key: Sequence[int], outs: int) -> Built:
        """Build or load the specialization for a key.

        Args:
            stack: the call's arguments.
            key: the router's words.
            outs: 0, or where Python has left the outputs' handles.
        """
        values = stacks.read(self.arguments, stack, steal=False)
        reader = KeyReader(self.arguments, key, self._op.in_key)
        keys = reader.keys(values)
        if outs:
            return self._build(keys, values, reader.outputs())
        plan = self.trace(keys, values)
        if plan is None:
            self._op.check_inputs(values, keys)
            return Built("its body makes the outputs")
        built = self._build(
            keys, values, [planned_key(plan, i) for i in range(self.arguments.returns)]
        )
        built.plan = plan.words
        return built

    def _build(self, keys: list[Key], values: list[object], outs: list[TensorKey]) -> Built:
        built = load(self._op.kernel_for, keys, values, outs)
        self.built[str(built.library), built.function] = built
        return built

    def trace(self, keys: list[Key], values: list[object]) -> plans.Plan | None:
        """Return the plan of the outputs for arguments of these keys, or None if the body must be called."""

        def arguments(trace: symints.Trace) -> tuple[list[object], dict[str, object]]:
            at, found = 0, []
            for arg, key, value in zip(self.arguments.args, keys, values, strict=True):
                seen, words = stand_in(trace, arg, key, value, at)
                found.append(seen)
                at += words
            return stacks.as_call(self.arguments, found)

        return plans.trace(
            self._op.body,
            arguments,
            self.arguments.returns,
            libtorch.dtype_code,
            libtorch.device_code,
        )

    def make_outputs(self, stack: int, outs: int) -> None:
        """Call the body with the real arguments and leave its tensors' handles behind `outs`."""
        values = stacks.read(self.arguments, stack, steal=False)
        made = self.call_body(values)
        stacks.write_tensors(outs, made)

    def call_body(self, values: list[object]) -> list[torch.Tensor]:
        """Return the tensors that the body makes for these arguments.

        Raises:
            SignatureError: if it returns something else, or an argument.
        """
        args, kwargs = stacks.as_call(self.arguments, values)
        with torch.no_grad():
            result = self._op.body(*args, **kwargs)
        made = _as_list(result)
        if len(made) != self.arguments.returns or not all(
            isinstance(t, torch.Tensor) for t in made
        ):
            raise SignatureError(
                f"[{self.qualname}] its body returned {_describe(result)}; the declaration says "
                f"{self.arguments.returns} tensor(s).\nReturn new, empty tensors of the outputs' shapes."
            )
        inputs = [t.untyped_storage()._cdata for t in _tensors(values)]
        for i, tensor in enumerate(made):
            if tensor.untyped_storage()._cdata in inputs:
                raise SignatureError(
                    f"[{self.qualname}] output {i} of its body shares memory with an argument.\n"
                    "Return a new tensor, such as torch.empty_like(x)."
                )
        return made

    def autograd(self, stack: int) -> None:
        """Run a call that needs autograd, or that is no plain one, through torch's Python machinery."""
        values = stacks.read(self.arguments, stack, steal=True)
        args, kwargs = stacks.as_call(self.arguments, values)
        result = self._op.short_autograd(*args, **kwargs)
        made = _as_list(result)
        stacks.write_tensors(stack, made)

    def precompile(self, args: tuple[object, ...], kwargs: dict[str, object]) -> str:
        """Build the specialization for example arguments; return what was built."""
        values, keys, outs = self.example(args, kwargs)
        return self._build(keys, values, outs).description

    def example(
        self, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[list[object], list[Key], list[TensorKey]]:
        """Return the values and keys of example arguments, and the keys of their outputs."""
        bound = self.bind(args, kwargs)
        keys: list[Key] = [
            key_of_value(a, v) for a, v in zip(self.arguments.args, bound, strict=True)
        ]
        plan = self.trace(keys, bound)
        if plan is not None:
            return bound, keys, [planned_key(plan, i) for i in range(self.arguments.returns)]
        fakes = stacks.as_call(self.arguments, bound)
        made = _as_list(self._op.body(*fakes[0], **fakes[1]))
        return bound, keys, [tensor_key(t) for t in made]

    def bind(self, args: tuple[object, ...], kwargs: dict[str, object]) -> list[object]:
        """Return the values of all arguments in schema order, defaults filled in."""
        parsed = torch_private.parse_schema(self.arguments.text)
        values: list[object] = []
        rest = dict(kwargs)
        for i, argument in enumerate(parsed.arguments):
            if i < len(args) and not argument.kwarg_only:
                values.append(args[i])
            elif argument.name in rest:
                values.append(rest.pop(argument.name))
            elif argument.has_default_value():
                values.append(argument.default_value)
            else:
                raise SignatureError(
                    f"[{self.qualname}] {argument.name} is missing.\nPass {argument.name}."
                )
        if rest or len(args) > len(values):
            extra = ", ".join(rest) or f"{len(args) - len(values)} positional"
            raise SignatureError(
                f"[{self.qualname}] got unknown arguments: {extra}.\nSee {self.qualname}'s schema."
            )
        return values


def _as_list(result: Any) -> list[Any]:
    if result is None:
        return []
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _tensors(values: Sequence[object]) -> list[torch.Tensor]:
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += [t for t in value if isinstance(t, torch.Tensor)]
    return found


def _describe(result: object) -> str:
    if isinstance(result, (tuple, list)):
        return f"{len(result)} values"
    return "None" if result is None else type(result).__name__
