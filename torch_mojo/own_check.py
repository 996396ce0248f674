"""What a release asks of the kernels that `python -m torch_mojo build --own` has built: each called, and compared."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import rms_norm

from torch_mojo import functional as F
from torch_mojo import own
from torch_mojo.dispatch import shipped
from torch_mojo.dtypes import short
from torch_mojo.errors import MojoError
from torch_mojo.jit import manifest
from torch_mojo.jit.manifest import CPU_LEVELS
from torch_mojo.op import declared

_TOLERANCES = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}
_LARGEST = 4  # of whole numbers, which are indices


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


_REFERENCES: dict[Any, Callable[..., Any]] = {
    F.silu_mul: lambda x, y: torch.nn.functional.silu(x) * y,
    F.rms_norm: rms_norm,
    F.layer_norm: torch.nn.functional.layer_norm,
    F.add_rms_norm: lambda x, r, w, eps: (rms_norm(x + r, w.shape, w, eps), x + r),
    F.softmax: torch.softmax,
    F.log_softmax: torch.log_softmax,
    F.topk: torch.topk,
    F.ceil: torch.ceil,
    F.gelu_backward: torch.ops.aten.gelu_backward,
    F.rotary_embedding: _rotated,
    F.cross_entropy: torch.nn.functional.cross_entropy,
    F.scaled_dot_product_attention: torch.nn.functional.scaled_dot_product_attention,
    F.embedding_dense_backward: torch.ops.aten.embedding_dense_backward,
    F.adaptive_avg_pool2d: torch.nn.functional.adaptive_avg_pool2d,
    F.grid_sample: lambda x, g: torch.nn.functional.grid_sample(x, g, align_corners=False),
}


def _filled(value: Any) -> Any:
    """Return random values in the place of a sample call's tensor."""
    if not isinstance(value, torch.Tensor):
        return value
    if not value.is_floating_point():
        return torch.randint(0, _LARGEST, value.shape)
    return torch.randn(value.shape).to(value.dtype).requires_grad_(value.requires_grad)


def _exact(value: Any) -> Any:
    """Return a tensor in float64."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().double().requires_grad_(value.requires_grad)
    return value


def _results(
    call: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], slopes: list[Any]
) -> Iterator[torch.Tensor]:
    """Return outputs and gradients; `slopes` has the outputs' gradients, made by the first call."""
    made = call(*args, **kwargs)
    outs = list(made) if isinstance(made, tuple) else [made]
    yield from (o.detach() for o in outs)
    ends = [o for o in outs if o.requires_grad]
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    if ends:
        if not slopes:
            slopes += [torch.randn(o.shape).to(o.dtype) for o in ends]
        grads = [s.to(o.dtype) for s, o in zip(slopes, ends, strict=True)]
        yield from torch.autograd.grad(ends, leaves, grads)


def check(
    folder: Path, dtypes: Sequence[torch.dtype] = own.DTYPES, only: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Call every function that was built for this CPU, forward and backward, and compare with torch.

    Args:
        folder: where `build_own` put the library.
        dtypes, only: as they were given to `build_own`.

    Returns:
        names and texts to print.

    Raises:
        MojoError: naming a function that gives a wrong value, that is not in the library, or that no call reached.
    """
    path = folder / own.LIBRARY
    about = manifest.read(path)
    opened = shipped.open_library(path, folder)
    for operator in about["operators"]:
        for one in operator["built"]:
            if not hasattr(opened, one["function"]):
                raise MojoError(f"{path} has no {one['function']}.\nBuild it again.")
    shipped.add(path)
    torch.manual_seed(0)
    calls = 0
    for dtype in dtypes:
        for call, args, kwargs in own.sample_calls(dtype, only):
            _compare(call, [_filled(a) for a in args], kwargs, dtype)
            calls += 1
    wanted = _for_this_cpu(about, opened)
    reached: set[int] = set()
    for name, op in declared().items():
        if not name.startswith("mojo::") or (only and name not in only):
            continue
        for built in op.calls.built.values():
            if built.library != path:
                raise MojoError(
                    f"{built.description} is not in {path.name}; it came from {built.library}.\n"
                    "Build it for the dtypes that are checked."
                )
            reached.add(built.function)
    missed = sorted(what for address, what in wanted.items() if address not in reached)
    if missed:
        raise MojoError(
            f"No sample call reached {len(missed)} functions: {'; '.join(missed)}.\n"
            "Let the calls in own.py and what is built agree."
        )
    every = {one["function"] for o in about["operators"] for one in o["built"]}
    return [
        ("functions", f"{len(every)}, all found"),
        ("called here", f"{len(reached)}, by {calls} calls, and right"),
    ]


def _for_this_cpu(about: dict[str, Any], opened: ctypes.CDLL) -> dict[int, str]:
    """Return the functions for the best CPU level that is here: what each is, by address."""
    levels = [t for t in about["targets"] if t in CPU_LEVELS]
    best = [t for t in levels if CPU_LEVELS.index(t) <= opened.tm_cpu_level()]
    target = max(best, key=CPU_LEVELS.index, default=None)
    found = {}
    for operator in about["operators"]:
        for one in operator["built"]:
            if one["target"] == target:
                address = ctypes.cast(getattr(opened, one["function"]), ctypes.c_void_p).value
                found[address or 0] = f"{operator['name']}({one['what']})"
    return found


def _compare(call: Any, args: list[Any], kwargs: dict[str, Any], dtype: torch.dtype) -> None:
    slopes: list[Any] = []
    ours = list(_results(call, args, kwargs, slopes))
    exact = [_exact(a) for a in args]
    theirs = list(_results(_REFERENCES[call], exact, kwargs, slopes))
    bound = _TOLERANCES.get(dtype, 1e-4)
    for i, (have, want) in enumerate(zip(ours, theirs, strict=True)):
        try:
            torch.testing.assert_close(have.to(want.dtype), want, rtol=bound, atol=bound)
        except AssertionError as e:
            shapes = ", ".join(str(tuple(a.shape)) for a in args if isinstance(a, torch.Tensor))
            raise MojoError(
                f"{call.__name__} of {short(dtype)} {shapes}: result {i} is wrong. {e}\n"
                "Do not release this build."
            ) from e
