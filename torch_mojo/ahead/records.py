"""What is in a library: which calls it serves, with which functions, and how these are compiled."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_mojo.ahead import cases as calls
from torch_mojo.ahead.cases import Case, Wanted
from torch_mojo.ahead.targets import Target
from torch_mojo.dispatch.keys import CONTIGUOUS, STRIDED, Key, TensorKey, strided
from torch_mojo.dispatch.shim import Shim, together
from torch_mojo.dispatch.shipped import digest_of
from torch_mojo.dispatch.specialization import Specialization
from torch_mojo.errors import SignatureError
from torch_mojo.jit.build import Job
from torch_mojo.jit.sources import Source
from torch_mojo.op import MojoOp

TOGETHER = (
    8  # functions of one kernel in one compilation: most of its time goes into what they share
)


@dataclass
class Record:
    """One call that is served by one function."""

    case: Case
    target: Target
    function: str
    digest: str
    any_layout: bool
    ranks: int
    context: bool
    text: str
    fenced: bool = False


@dataclass(frozen=True)
class Function:
    """One function, to be compiled; those of one family and target share a compilation."""

    special: Specialization
    source: Source
    target: Target
    family: object


@dataclass
class Operator:
    """One operator of a library."""

    op: MojoOp
    records: list[Record] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)


Functions = dict[str, Function]


def collect(
    op: MojoOp, wanted: Sequence[Wanted], targets: Sequence[Target], functions: Functions
) -> Operator:
    """Return an operator's records, and add their functions, by name.

    Raises:
        SignatureError: if the kernel takes nothing of what is wanted.
    """
    found = Operator(op)
    every = _without_repeats([c for w in wanted for c in calls.cases(op, w)])
    refused: SignatureError | None = None
    for target in targets:
        for case, any_layout in every:
            moved = case.on(int(target.gpu))
            try:
                record = _record(op, moved, target, any_layout, functions, found.sources)
            except SignatureError as e:
                refused = e
                continue
            found.records.append(record)
    if not found.records:
        raise refused or SignatureError(
            f"[{op.qualname}] nothing of it is asked for.\nGive a Grid or an Example."
        )
    return found


def _record(
    op: MojoOp,
    case: Case,
    target: Target,
    any_layout: bool,
    functions: Functions,
    fingerprints: list[str],
) -> Record:
    binding, source = op.kernel_for(case.values, case.keys, case.outs)
    special = Specialization(binding, case.keys, case.values, case.outs)
    ranks = special.packed_ranks()
    if not all(
        k.layout == CONTIGUOUS for _, k, _ in special.tensors()
    ):  # one text for all mixtures
        keys, outs = [strided(k) for k in case.keys], [strided(k) for k in case.outs]
        binding, source = op.kernel_for(case.values, keys, outs)  # type: ignore[arg-type]
        special = Specialization(binding, keys, case.values, outs)  # type: ignore[arg-type]
    fingerprint = source.fingerprint()
    if fingerprint not in fingerprints:
        fingerprints.append(fingerprint)
    digest = digest_of(Shim(special).text(), fingerprint)
    name = f"tm_{digest}_{re.sub(r'[^0-9a-z]', '_', target.name)}"
    kernel = binding.kernel
    family = op.qualname if op.is_inline else (fingerprint, kernel.module, kernel.struct)
    functions.setdefault(name, Function(special, source, target, family))
    return Record(
        case,
        target,
        name,
        digest,
        any_layout or op.broadcasts,
        ranks,
        binding.context,
        calls.described(op, case),
    )


def jobs(functions: Functions) -> Iterator[tuple[list[str], Job]]:
    """Return what is to be compiled: names of functions, and the job that makes them."""
    groups: dict[Any, list[str]] = {}
    for name, function in functions.items():
        groups.setdefault((function.family, function.target), []).append(name)
    for names in groups.values():
        for i in range(0, len(names), TOGETHER):
            some = names[i : i + TOGETHER]
            yield some, job({n: functions[n] for n in some})


def job(functions: Mapping[str, Function]) -> Job:
    """Return the job that compiles functions of one family for one target."""
    first = next(iter(functions.values()))
    others = {f.source.folder: f.source for f in functions.values()}
    source = first.source
    if len(others) > 1:  # an inline kernel has a text for each key
        roots = {name: path for s in others.values() for name, path in s.roots.items()}
        include = [*list(others)[1:], *source.include]
        source = Source(source.folder, roots, include, source.place, flags=source.flags)
    what = first.special.description
    if len(functions) > 1:
        what = f"{first.special.binding.qualname}, {len(functions)} specializations"
    return Job(
        f"{what} for {first.target.name}",
        together({name: Shim(f.special) for name, f in functions.items()}),
        source,
        accelerator=first.target.accelerator,
        cpu=first.target.cpu,
        linked=False,
    )


def _unlaid(key: Key, layout: int = CONTIGUOUS) -> Any:
    """Return a key with all tensors of one layout."""
    if isinstance(key, list):
        return tuple(_unlaid(k, layout) for k in key)
    return None if key is None else key.word & ~(15 << 16) | layout << 16


def _without_repeats(every: Sequence[Case]) -> list[tuple[Case, bool]]:
    """Return the cases, and whether their plan serves all layouts; then two layouts are enough."""
    groups: dict[Any, list[Case]] = {}
    for case in every:
        values = tuple(
            repr(v)
            for v, k in zip(case.values, case.keys, strict=True)
            if not isinstance(v, torch.Tensor) and k is None
        )
        groups.setdefault((tuple(_unlaid(k) for k in case.keys), values), []).append(case)
    found = []
    for group in groups.values():
        plans = {tuple(c.plan.words) if c.plan else () for c in group}
        if len(plans) > 1 or plans == {()}:
            found += [(c, False) for c in group]
            continue
        seen = set()
        for case in group:
            layouts = [k.layout for k in case.keys if isinstance(k, TensorKey)]
            contiguous = all(x == CONTIGUOUS for x in layouts)
            if contiguous or all(x == STRIDED for x in layouts):
                if contiguous not in seen:
                    found.append((case, True))
                seen.add(contiguous)
        if not seen:
            found += [(c, False) for c in group]
    return found
