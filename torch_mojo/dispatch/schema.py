"""The arguments of a torch schema, in the form that the router's slots and the kernels need."""

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from torch_mojo import torch_private
from torch_mojo.errors import SignatureError

# The bits that kernels/torch/router.mojo knows.
TENSOR, STRING, VALUE = 1, 2, 3
LIST, OPTIONAL, OPTIONAL_ITEMS, IN_KEY, MUTATED = 16, 32, 64, 128, 256

_BASES = {
    "Tensor": TENSOR,
    "str": STRING,
    "int": VALUE,
    "float": VALUE,
    "bool": VALUE,
    "ScalarType": VALUE,
    "Device": VALUE,
}
# Few values each, and a body may well branch on them: they always stand in the key.
_ALWAYS_IN_KEY = ("bool", "ScalarType", "Device")


@dataclass(frozen=True)
class Arg:
    """One argument of a schema."""

    name: str
    base: str  # Tensor, int, float, bool, str, ScalarType, Device
    is_list: bool
    optional: bool
    optional_items: bool
    mutated: bool
    kwarg_only: bool

    def kind(self, in_key: bool) -> int:
        """Return the router's bits for this argument."""
        bits = _BASES[self.base]
        if self.is_list:
            bits |= LIST
        if self.optional:
            bits |= OPTIONAL
        if self.optional_items:
            bits |= OPTIONAL_ITEMS
        if self.mutated:
            bits |= MUTATED
        if in_key or self.base in _ALWAYS_IN_KEY:
            bits |= IN_KEY
        return bits

    @property
    def flat_words(self) -> int:
        """Return how many words the router hands on; a list of tensors has three for each."""
        if self.base == "Tensor":
            return 3
        return 2 if self.is_list or self.base == "str" else 1


@dataclass(frozen=True)
class Schema:
    """A whole schema: `text` is what torch_mojo defines, without the namespace."""

    text: str
    args: tuple[Arg, ...]
    returns: int

    @property
    def mutable(self) -> bool:
        return any(a.mutated for a in self.args)

    def kinds(self, in_key: Callable[[int], bool]) -> list[int]:
        """Return the router's bits of every argument."""
        return [a.kind(in_key(i)) for i, a in enumerate(self.args)]

    @property
    def dynamic(self) -> bool:
        """Whether calls have keys of different lengths."""
        return any(a.is_list or a.base == "str" for a in self.args)

    @property
    def need(self) -> int:
        """How many words a call's key, and its flat words, have at most without lists and strings."""
        return 8 + 5 * (len(self.args) + self.returns)

    def index(self, name: str) -> int | None:
        return next((i for i, a in enumerate(self.args) if a.name == name), None)


def _resolved(
    qualname: str, function: Callable[..., object], names: Mapping[str, object]
) -> Callable[..., object]:
    """Return the function with annotations that are text turned into types.

    `names` are the local names where it was declared: torch may be imported only there.
    """
    annotations = dict(function.__annotations__)
    if not isinstance(function, types.FunctionType):
        return function
    for parameter, annotation in annotations.items():
        if isinstance(annotation, str):
            cells = dict(
                zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            )
            free = {n: c.cell_contents for n, c in cells.items() if n != function.__name__}
            try:
                annotations[parameter] = eval(annotation, function.__globals__, {**names, **free})
            except Exception as e:
                raise SignatureError(
                    f"[{qualname}] the annotation of {parameter}, {annotation!r}, cannot be read: {e}\n"
                    "Import what it names at the top of the file, or where the operator is declared."
                ) from e
    copy = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = annotations
    return copy


def infer(
    qualname: str,
    function: Callable[..., object],
    mutates_args: str | Sequence[str],
    names: Mapping[str, object] | None = None,
) -> Schema:
    """Return the schema of a declaration, as `torch.library.infer_schema` reads it.

    Raises:
        SignatureError: naming the operator and the annotation that torch cannot read.
    """
    try:
        text = torch.library.infer_schema(
            _resolved(qualname, function, names or {}),
            mutates_args=mutates_args,
            op_name=qualname.split("::")[1],
        )
    except (ValueError, NameError, TypeError, RuntimeError) as e:
        raise SignatureError(
            f"[{qualname}] the annotations of {function.__name__} make no operator schema: {e}\n"
            "Annotate every parameter and the return with torch.Tensor, int, float, bool, str, "
            "torch.dtype, torch.device, lists or optionals of them."
        ) from e
    return parse(qualname, text)


def parse(qualname: str, text: str) -> Schema:
    """Return the parts of a schema text such as `f(Tensor x, *, int k=1) -> Tensor`.

    Raises:
        SignatureError: for a type that no kernel can take or return.
    """
    parsed = torch_private.parse_schema(text)
    args = tuple(_arg(qualname, a) for a in parsed.arguments)
    for i, result in enumerate(parsed.returns):
        if not isinstance(result.type, torch.TensorType):
            raise SignatureError(
                f"[{qualname}] return {i} has type {result.type}; a kernel returns tensors only.\n"
                "Return a 0-d tensor and call .item() on it, or a tuple of tensors."
            )
    return Schema(text, args, len(parsed.returns))


def _arg(qualname: str, argument: torch.Argument) -> Arg:
    declared = argument.real_type  # `type` folds dtypes into int
    optional = isinstance(declared, torch.OptionalType)
    if optional:
        declared = declared.getElementType()
    is_list = isinstance(declared, torch.ListType)
    if is_list:
        declared = declared.getElementType()
    optional_items = is_list and isinstance(declared, torch.OptionalType)
    if optional_items:
        declared = declared.getElementType()
    base = str(declared)
    if base not in _BASES:
        raise SignatureError(
            f"[{qualname}] {argument.name} has type {argument.real_type}, which cannot reach a kernel.\n"
            "Use torch.Tensor, int, float, bool, str, torch.dtype, torch.device, lists or optionals "
            "of them; for a number of either kind, take a float."
        )
    mutated = argument.alias_info is not None and argument.alias_info.is_write
    return Arg(argument.name, base, is_list, optional, optional_items, mutated, argument.kwarg_only)
