"""What of an operator is built: by grids of dtypes and ranks, and by example arguments."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_mojo import torch_private
from torch_mojo.dispatch import libtorch, plans
from torch_mojo.dispatch.keys import (
    CONTIGUOUS,
    DENSE,
    REPEATED,
    STRIDED,
    Key,
    TensorKey,
    key_of_value,
    planned_key,
    tensor_key,
)
from torch_mojo.dispatch.schema import Arg
from torch_mojo.dtypes import short
from torch_mojo.errors import SignatureError
from torch_mojo.op import MojoOp

_SIZE = 4  # of every dimension of an example
_LAYOUTS = (CONTIGUOUS, DENSE, STRIDED, REPEATED)


@dataclass(frozen=True)
class Grid:
    """Specializations for every combination.

    All tensors have the same dtype and rank, except where the kernel names one. Optional arguments are left out and
    others have their defaults, unless `values` says else.

    Attributes:
        dtypes: the tensors' dtypes.
        ranks: the tensors' ranks.
        strided: build for tensors that are not contiguous as well.
        values: for arguments that are no tensors, and select code: their values. For an optional tensor, None or
            True: without it or with it.
    """

    dtypes: Sequence[torch.dtype] = (torch.float32,)
    ranks: Sequence[int] = (1, 2, 3, 4)
    strided: bool = False
    values: Mapping[str, Sequence[object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what is no list of the right kind.

        Raises:
            ValueError: naming the value.
        """
        if not _is_list(self.dtypes, torch.dtype):
            raise ValueError(
                f"Grid: dtypes is {self.dtypes!r}.\nGive a list of torch dtypes: dtypes=[torch.float32]."
            )
        if not _is_list(self.ranks, int) or any(r < 0 for r in self.ranks):
            raise ValueError(
                f"Grid: ranks is {self.ranks!r}.\nGive a list of numbers of dimensions: ranks=[1, 2]."
            )
        right = isinstance(self.values, Mapping)
        for name, values in self.values.items() if right else [("values", self.values)]:
            if not right or not _is_list(values, object):
                raise ValueError(
                    f"Grid: values for {name} are {values!r}.\n"
                    "Give a list for each argument: values={'K': [1, 2]}."
                )


def _is_list(values: object, kind: type) -> bool:
    """Tell whether these are values of a kind, in a list or the like; a bool is no number here."""
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
        return False
    return kind is object or all(isinstance(v, kind) and not isinstance(v, bool) for v in values)


class Example:
    """A specialization for arguments like these; tensors on the meta device stand for contiguous ones."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs


Wanted = Grid | Example


@dataclass
class Case:
    """One call that will be served: the values of its arguments, its keys, its outputs and how they are made."""

    values: list[object]
    keys: list[Key]
    outs: list[TensorKey]
    plan: plans.Plan | None

    def on(self, device_type: int) -> "Case":
        """Return the same call on CPU (0) or CUDA (1).

        CUDA's contiguous tensors are taken to be aligned to 16 bytes; code for any strides asks for no alignment.
        """
        flat = [
            k for key in (*self.keys, *self.outs) for k in (key if isinstance(key, list) else [key])
        ]
        aligned = bool(device_type) and all(k is None or k.layout == CONTIGUOUS for k in flat)

        def moved(key: Any) -> Any:
            if isinstance(key, list):
                return [moved(k) for k in key]
            if key is None:
                return None
            return dataclasses.replace(
                key, device_type=device_type, device_index=0, aligned=aligned
            )

        return Case(self.values, moved(self.keys), moved(self.outs), self.plan)


def cases(op: MojoOp, wanted: Wanted) -> list[Case]:
    """Return the calls that a grid or an example means, those that the kernel takes.

    Raises:
        SignatureError: if there is none, with the kernel's reason.
    """
    if isinstance(wanted, Example):
        values = op.calls.bind(wanted.args, wanted.kwargs)
        keys = [key_of_value(a, v) for a, v in zip(op.arguments.args, values, strict=True)]
        return [_case(op, values, keys)]
    found, refused = [], None
    for values, keys in _points(op, wanted):
        try:
            found.append(_case(op, values, keys))
        except SignatureError as e:
            refused = e
    if not found:
        raise refused or SignatureError(
            f"[{op.qualname}] the grid is empty.\nGive at least one dtype and one rank."
        )
    return found


def _case(op: MojoOp, values: list[object], keys: list[Key]) -> Case:
    op.check_inputs(values, keys)
    plan = op.calls.trace(keys, values)
    if plan is not None:
        outs = [planned_key(plan, i) for i in range(op.arguments.returns)]
        return Case(values, keys, outs, plan)
    try:
        made = op.calls.call_body(values)
    except Exception as e:
        raise SignatureError(
            f"[{op.qualname}] its body refuses example arguments of size {_SIZE}: {e}\n"
            "Give torch_mojo.build.Example(...) with arguments that it takes."
        ) from e
    return Case(values, keys, [tensor_key(t) for t in made], None)


def _points(op: MojoOp, grid: Grid) -> Iterator[tuple[list[object], list[Key]]]:
    unknown = set(grid.values) - {a.name for a in op.arguments.args}
    if unknown:
        raise SignatureError(
            f"[{op.qualname}] has no argument {', '.join(sorted(unknown))}; it has "
            f"{', '.join(a.name for a in op.arguments.args)}.\nCorrect the names in values=."
        )
    parsed = torch_private.parse_schema(op.arguments.text).arguments
    lists: list[Sequence[object]] = []
    tensors = []
    for arg, known in zip(op.arguments.args, parsed, strict=True):
        choices = grid.values.get(arg.name)
        if arg.base == "Tensor" and not arg.is_list:
            present = choices or ([None] if arg.optional else [True])
            lists.append(present)
            tensors.append(arg.name)
        elif choices is not None:
            lists.append(choices)
        elif known.has_default_value():
            value = known.default_value
            code = arg.base == "ScalarType" and isinstance(value, int)
            lists.append([libtorch.dtype_of_code(value) if code else value])
        else:
            lists.append(_standard(op, arg, grid.dtypes))
    count = len(tensors)
    layouts: list[tuple[int, ...]] = [(CONTIGUOUS,) * count]
    if grid.strided:
        every = itertools.product(_LAYOUTS, repeat=count)
        layouts = list(every) if count <= 2 else [(c,) * count for c in _LAYOUTS]
    ranks: list[tuple[int, ...]] = [(r,) * count for r in grid.ranks]
    if op.broadcasts:  # one build serves several ranks
        ranks = list(itertools.product(grid.ranks, repeat=count))
    for dtype, rank, layout, values in itertools.product(
        grid.dtypes, ranks, layouts, itertools.product(*lists)
    ):
        point = _point(
            op, dtype, dict(zip(tensors, zip(rank, layout, strict=True), strict=True)), values
        )
        if point is not None:
            yield point


def _point(
    op: MojoOp, dtype: torch.dtype, given: Mapping[str, tuple[int, int]], values: Sequence[object]
) -> tuple[list[object], list[Key]] | None:
    made: list[object] = []
    keys: list[Key] = []
    for arg, value in zip(op.arguments.args, values, strict=True):
        if arg.name in given and value is not None:
            rank, layout = given[arg.name]
            own, fixed = op.fixed(arg.name)
            value = _tensor(own or dtype, rank if fixed is None else fixed, layout)
            if value is None:
                return None
            key = dataclasses.replace(tensor_key(value), layout=layout)
            made.append(value)
            keys.append(key)
        else:
            made.append(value)
            keys.append(None)
    return made, keys


def _tensor(dtype: torch.dtype, rank: int, layout: int) -> torch.Tensor | None:
    """Return a tensor of a layout class, or None if there is none of this rank."""
    shape = (_SIZE,) * rank
    if layout == CONTIGUOUS:
        return torch.empty(shape, dtype=dtype)
    if rank == 0 or (rank == 1 and layout == DENSE):
        return None
    if layout == DENSE:
        return torch.empty(shape, dtype=dtype).transpose(0, -1)
    if layout == STRIDED:
        return torch.empty((*shape[:-1], 2 * _SIZE), dtype=dtype)[..., ::2]
    return torch.empty((*shape[:-1], 1), dtype=dtype).expand(shape)


def _standard(op: MojoOp, arg: Arg, dtypes: Sequence[torch.dtype]) -> list[object]:
    """Return the values of an argument without a default."""
    if arg.optional:
        return [None]
    if not arg.is_list:
        standard: dict[str, list[object]] = {
            "int": [1],
            "float": [1.0],
            "bool": [False, True],
            "ScalarType": list(dtypes),
            "Device": [torch.device("cpu")],
        }
        if arg.base in standard:
            return standard[arg.base]
    raise SignatureError(
        f"[{op.qualname}] a grid has no value for {arg.name}.\n"
        f"Give values={{{arg.name!r}: [...]}}, or torch_mojo.build.Example(...)."
    )


def described(op: MojoOp, case: Case) -> str:
    """Return a case for people: `x: float32[2], bias: None`."""
    parts = []
    for arg, key, value in zip(op.arguments.args, case.keys, case.values, strict=True):
        if isinstance(key, TensorKey):
            dtype = short(key.dtype) if key.dtype else "?"
            strided = " strided" if key.layout != CONTIGUOUS else ""
            parts.append(f"{arg.name}: {dtype}[{key.rank}]{strided}")
        elif arg.name in op.parameters or (arg.base == "Tensor" and value is None):
            parts.append(
                f"{arg.name}={short(value) if isinstance(value, torch.dtype) else value!r}"
            )
    return ", ".join(parts)
