"""Output plans: a declaration's body, run once on symbolic sizes, as a program that the router runs.

The body sees stand-ins for the tensors and ints of the call. Sizes come out as expressions; a comparison is
answered from the first call's sizes and kept as a guard. What the stand-ins cannot follow makes the body
untraceable: then it is called with the real arguments every time, which is right and slower.
"""

import traceback
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_mojo import config
from torch_mojo.dispatch.standins import LIKE, TensorOut, under_trace
from torch_mojo.dispatch.symints import END, Trace, Untraceable, symbolic


class Plan:
    """One body's plan for one key.

    Attributes:
        words: the program, as the router reads it.
        places: which words say on what device the outputs are: the type, and behind it the index.
        dtypes, ranks, contiguous: what is known of each output when its specialization is made.
    """

    def __init__(self, words: list[int], places: list[int], outs: Sequence[TensorOut]) -> None:
        self.words = words
        self.places = places
        self.dtypes = [o.dtype for o in outs]
        self.ranks = [len(o.shape) for o in outs]
        self.contiguous = [o.contiguous for o in outs]
        self.devices = [o.device for o in outs]


def trace(
    function: Callable[..., object],
    make_arguments: Callable[[Trace], tuple[list[object], dict[str, object]]],
    returns: int,
    dtype_code: Callable[[torch.dtype], int],
    device_code: Callable[[torch.device], tuple[int, int]],
) -> Plan | None:
    """Return the plan of a body, or None if the body has to be called each time."""
    if not isinstance(function, types.FunctionType):
        return None
    state = Trace()
    try:
        args, kwargs = make_arguments(state)
        result = under_trace(function)(*args, **kwargs)
        outs = _outs(result, returns)
        words = [len(state.guards)]
        for guard in state.guards:
            words += [*guard, END]
        words.append(len(outs))
        places = []
        for out in outs:
            places.append(len(words) + 2)
            words += [out.kind, dtype_code(out.dtype), *device_code(out.device), len(out.shape)]
            if out.kind == LIKE:
                assert out.like is not None
                words.append(out.like.flat)
                continue
            for size in (*out.shape, *out.strides):
                words += [*symbolic(state, size).code, END]
    except Exception:
        if config.debug():
            traceback.print_exc()
        # Whatever went wrong goes wrong again, and is told, when the body is called with the real arguments.
        return None
    return Plan(words, places, outs)


def _outs(result: Any, returns: int) -> list[TensorOut]:
    outs = [] if result is None else list(result) if isinstance(result, (tuple, list)) else [result]
    if len(outs) != returns or not all(isinstance(o, TensorOut) for o in outs):
        raise Untraceable("the body returns something else")
    return outs
