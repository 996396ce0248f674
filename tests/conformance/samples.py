"""Samples of torch's own operator database, as functions of their tensors."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

LOOKED_AT = 60  # of the database's samples, at most
LARGEST = 20_000  # elements of a sample

Values = tuple[torch.Tensor, ...]


@dataclass
class Probe:
    """One sample of one operator.

    Attributes:
        op: the database's name, with the variant.
        number: of the sample in the database.
        run: from `tensors` to all results that are tensors, or to the gradients.
    """

    op: str
    number: int
    run: Callable[..., Values]
    tensors: Values


def database() -> list[Any]:
    """Return torch's operators as its tests know them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    for module in list(sys.modules.values()):
        if module.__name__.startswith("torch.testing._internal") and hasattr(
            module, "wrapper_set_seed"
        ):
            module.wrapper_set_seed = _unseeded
    return list(op_db)


def _unseeded(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Stand in for the database's function that sets a seed at each call; a graph cannot hold that."""
    return op(*args, **kwargs)


def title(op: Any) -> str:
    """Return the name of a database entry, with its variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def supports(op: Any, dtype: torch.dtype, gradient: bool) -> bool:
    """Say whether the database has samples of a dtype on the CPU."""
    if not gradient:
        return dtype in op.supported_dtypes("cpu")
    return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")


def probes(op: Any, dtype: torch.dtype, gradient: bool, most: int) -> Iterator[Probe]:
    """Return some of the database's samples of an operator, spread over what it has."""
    torch.manual_seed(0)
    samples = list(
        itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=gradient), LOOKED_AT)
    )
    for number, sample in _spread(samples, most):
        made = _probe(op, number, sample, gradient)
        if made is not None:
            yield made


def _spread(items: Sequence[Any], most: int) -> list[tuple[int, Any]]:
    if len(items) <= most:
        return list(enumerate(items))
    step = (len(items) - 1) / max(most - 1, 1)
    return [(i, items[i]) for i in sorted({round(k * step) for k in range(most)})]


def _probe(op: Any, number: int, sample: Any, gradient: bool) -> Probe | None:
    given, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, v in enumerate(given) if isinstance(v, torch.Tensor)]
    tensors = tuple(given[i].detach() for i in places)
    if not tensors or sum(t.numel() for t in tensors) > LARGEST:
        return None
    if any(t.layout != torch.strided or t.is_quantized for t in tensors):
        return None
    wanted = [given[i].requires_grad and gradient for i in places]

    def run(*values: torch.Tensor) -> Values:
        mine = [v.detach().requires_grad_(w) for v, w in zip(values, wanted, strict=True)]
        full = list(given)
        for i, v in zip(places, mine, strict=True):
            full[i] = v
        input, args, kwargs = tree_unflatten(full, spec)
        result = op.op(input, *args, **kwargs)
        if gradient:
            result = sample.output_process_fn_grad(result)
        made = [t for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]
        if not gradient:
            return tuple(made)
        leaves = [v for v in mine if v.requires_grad]
        ends = [t for t in made if t.requires_grad]
        if not leaves or not ends:
            return ()
        # not constant: the gradient of a sum hides mistakes
        weights = [torch.linspace(0.5, 1.5, t.numel()).view(t.shape).to(t.dtype) for t in ends]
        found = torch.autograd.grad(ends, leaves, weights, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return Probe(title(op), number, run, tensors)
