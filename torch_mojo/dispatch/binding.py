"""How a declaration and a kernel's `execute` fit together, checked once."""

import re
from collections.abc import Mapping

from torch_mojo.dispatch.schema import Arg, Schema
from torch_mojo.errors import SignatureError
from torch_mojo.jit.signature import Argument, Kernel, Parameter

_CONTEXT = "DeviceContext"
STREAM = "DeviceStream"


class Binding:
    """A schema bound to a kernel, checked once when an operator is declared.

    Raises:
        SignatureError: naming the argument and both sides.
    """

    def __init__(
        self,
        qualname: str,
        schema: Schema,
        kernel: Kernel,
        constants: Mapping[str, object] | None = None,
        place: str = "",
        broadcast: bool = False,
    ) -> None:
        self.qualname = qualname
        self.constants = dict(constants or {})
        self.place = place
        self.broadcast = broadcast
        self.schema = schema
        self.kernel = kernel
        names = {a.name: i for i, a in enumerate(schema.args)}
        self.outputs: list[Argument] = []  # in return order
        self.sources: dict[str, int] = {}  # kernel argument -> schema argument
        self.context = False
        self.stream = False
        for argument in kernel.arguments:
            if argument.name in names:
                self.sources[argument.name] = names[argument.name]
            elif argument.io == "Output":
                self.outputs.append(argument)
            elif _CONTEXT in argument.type:
                self.context = True
            elif STREAM in argument.type:
                self.stream = True
            else:
                raise self._error(
                    f"the kernel takes {argument.name}: {argument.type}, and the declaration has no "
                    f"argument of that name; it has {', '.join(names) or 'none'}",
                    "Rename one of the two.",
                )
        self._check_outputs()
        parameters = kernel.all_parameters
        self.parameters = {n: names[n] for n in parameters if n in names and n not in self.sources}
        self.flags = {
            n: names[n.removeprefix("has_")]
            for n in parameters
            if n.startswith("has_") and n.removeprefix("has_") in names and n not in names
        }
        for name in self.constants:
            if name not in parameters:
                raise self._error(
                    f"the kernel has no compile-time parameter {name}; it has {', '.join(parameters) or 'none'}",
                    "Correct the name.",
                )
        for arg in schema.args:
            self._check_argument(arg)
        for name, parameter in parameters.items():
            self._check_parameter(name, parameter)

    def _error(self, problem: str, advice: str) -> SignatureError:
        where = self.place or self.kernel.name
        return SignatureError(
            f"[{self.qualname}] {problem}.\n  declared: {self.schema.text}\n"
            f"  kernel:   {self.kernel.signature} ({where})\n{advice}"
        )

    def _check_outputs(self) -> None:
        if len(self.outputs) != self.schema.returns:
            have = ", ".join(a.name for a in self.outputs) or "none"
            raise self._error(
                f"the declaration returns {self.schema.returns} tensor(s), and the kernel has "
                f"{len(self.outputs)} output(s) of its own: {have}",
                "Return one tensor for each OutputTensor that is no argument of the declaration.",
            )

    def _check_argument(self, arg: Arg) -> None:
        bound = next((a for a in self.kernel.arguments if a.name == arg.name), None)
        if bound is None:
            if arg.mutated:
                raise self._error(
                    f"{arg.name} is declared as mutated, and the kernel has no argument of that name",
                    "Rename one of the two, or leave it out of mutates_args.",
                )
            return
        if arg.base == "Tensor" and bound.io is None:
            raise self._error(
                f"{arg.name} is a tensor, and the kernel takes {bound.type}",
                f"Declare {arg.name} as a number, or make the kernel take an InputTensor.",
            )
        if arg.base != "Tensor" and bound.io is not None:
            raise self._error(
                f"{arg.name} is declared as {arg.base}, and the kernel takes {bound.type}",
                f"Declare {arg.name} as torch.Tensor.",
            )
        if bound.io in ("Output", "MutableInput") and not arg.mutated:
            raise self._error(
                f"the kernel writes {arg.name}, and the declaration does not say so",
                f'Add mutates_args=("{arg.name}",).',
            )
        if bound.io == "Input" and arg.mutated:
            raise self._error(
                f"{arg.name} is declared as mutated, and the kernel only reads it",
                "Make the kernel take a MutableInputTensor or an OutputTensor.",
            )
        if arg.base == "Tensor" and (bound.many or arg.is_list):
            raise self._error(
                f"{arg.name} is {'a list of tensors' if arg.is_list else 'one tensor'}, and the kernel takes "
                f"{bound.type}; a kernel cannot be given a list of tensors yet",
                "Give the kernel a fixed number of tensors.",
            )
        if arg.optional and f"has_{arg.name}" not in self.kernel.all_parameters:
            raise self._error(
                f"{arg.name} may be None, and the kernel cannot tell",
                f"Give `execute` a compile-time parameter has_{arg.name}: Bool.",
            )

    def _check_parameter(self, name: str, parameter: Parameter) -> None:
        known = name in {*self.parameters, *self.flags, *self.constants, "target"}
        if known or parameter.inferred or parameter.default is not None:
            return
        if parameter in self.kernel.struct_parameters and name not in self._inferable():
            raise self._error(
                f"the compile-time parameter {name}: {parameter.type} has no value",
                f"Declare an argument named {name}.",
            )
        types = " ".join(a.type for a in self.kernel.arguments)
        if not re.search(rf"\b{name}\b", types):
            raise self._error(
                f"the compile-time parameter {name}: {parameter.type} has no value",
                f"Declare an argument named {name}.",
            )

    def _inferable(self) -> set[str]:
        return {v for a in self.kernel.arguments for v in a.constraints.values()}

    def in_key(self, index: int) -> bool:
        """Tell whether the value of this argument makes another specialization."""
        return index in self.parameters.values()
