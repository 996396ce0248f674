"""What of torch_mojo's own kernels its wheel has built: `python -m torch_mojo build --own`."""

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from torch_mojo import functional as F
from torch_mojo import torch_private
from torch_mojo.ahead.cases import Example, Wanted
from torch_mojo.ahead.library import Built, build_library
from torch_mojo.dispatch.router import PREBUILT_CPU, router_fingerprint, router_job
from torch_mojo.errors import MojoError
from torch_mojo.functional import builtin
from torch_mojo.jit.build import build
from torch_mojo.jit.cache import cache
from torch_mojo.jit.toolchain import built_folder, toolchain
from torch_mojo.op import MojoOp, declared

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TARGETS = ("x86-64-v3", "sm_80", "sm_90")
LIBRARY = "libkernels_mojo.so"

Call = Callable[..., Any]


def _calls(dtype: torch.dtype) -> Iterator[tuple[Call, tuple[Any, ...], dict[str, Any]]]:
    """Return calls like those of models, with tensors that require grad where there is a gradient."""

    def x(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, requires_grad=True)

    def whole(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.int64)

    shapes: tuple[tuple[int, ...], ...] = ((8,), (4, 8), (2, 4, 8))
    for shape in shapes:
        yield F.silu_mul, (x(*shape), x(*shape)), {}
        yield F.rms_norm, (x(*shape), [8], x(8), 1e-6), {}
        yield F.rms_norm, (x(*shape), [8]), {}
        yield F.layer_norm, (x(*shape), [8], x(8), x(8)), {}
        yield F.layer_norm, (x(*shape), [8]), {}
        yield F.add_rms_norm, (x(*shape), x(*shape), x(8), 1e-6), {}
        yield F.softmax, (x(*shape), -1), {}
        yield F.log_softmax, (x(*shape), -1), {}
        yield F.topk, (x(*shape), 2), {}
    for shape in ((4, 8), (2, 2, 4, 8)):
        detached = torch.empty(shape, dtype=dtype)
        yield F.ceil, (detached,), {}
        for approximate in ("none", "tanh"):
            yield F.gelu_backward, (detached, detached), {"approximate": approximate}
    yield F.rotary_embedding, (x(2, 4, 6, 8), x(6, 8), x(6, 8)), {}
    yield F.cross_entropy, (x(4, 8), whole(4)), {}
    yield F.scaled_dot_product_attention, (x(2, 4, 6, 64), x(2, 4, 6, 64), x(2, 4, 6, 64)), {}
    yield (
        F.scaled_dot_product_attention,
        (x(2, 4, 6, 64), x(2, 4, 6, 64), x(2, 4, 6, 64)),
        {"is_causal": True},
    )
    yield F.embedding_dense_backward, (x(4, 8).detach(), whole(4), 16, -1, False), {}
    yield F.adaptive_avg_pool2d, (x(2, 3, 8, 8), [1, 1]), {}
    yield F.grid_sample, (x(2, 3, 8, 8), x(2, 4, 4, 2)), {}


def sample_calls(
    dtype: torch.dtype, only: Sequence[str] = ()
) -> Iterator[tuple[Call, tuple[Any, ...], dict[str, Any]]]:
    """Return the sample calls of a dtype, with tensors that have no values.

    Args:
        dtype: of their floating-point tensors.
        only: qualified names of operators, of which a call must use one; all calls by default.
    """
    for functions in builtin.functions().values():
        for function in functions:
            _ = function.op  # declares it
    uses: list[bool] = []
    if only:
        with torch_private.recording("mojo") as found:
            for call, args, kwargs in _calls(dtype):
                before = len(found)
                _backward(call(*args, **kwargs), args)
                uses.append(any(name in only for name, _, _ in found[before:]))
    for i, sample in enumerate(_calls(dtype)):
        if not only or uses[i]:
            yield sample


def _backward(made: Any, args: Sequence[Any]) -> None:
    """Ask for the gradients of what a sample call returned, where there are any."""
    outs = [o for o in (made if isinstance(made, tuple) else (made,)) if o.requires_grad]
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    if outs:
        torch.autograd.grad(outs, leaves, [torch.empty_like(o) for o in outs], allow_unused=True)


def _meta(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device="meta", requires_grad=False
        )
    if isinstance(value, (list, tuple)):
        return [_meta(v) for v in value]
    return value


def wanted(
    dtypes: Sequence[torch.dtype] = DTYPES, only: Sequence[str] = ()
) -> dict[MojoOp, list[Wanted]]:
    """Return the operators and the example arguments that the sample calls come to, forward and backward.

    Args:
        dtypes: the dtypes of the samples.
        only: qualified names; all by default.

    Raises:
        MojoError: naming what is in no sample call.
    """
    with torch_private.recording("mojo") as found:
        for dtype in dtypes:
            for call, args, kwargs in sample_calls(dtype):
                _backward(call(*args, **kwargs), args)
    examples: dict[MojoOp, list[Wanted]] = {}
    ops = declared()
    for name, args, kwargs in found:
        if name in ops and (not only or name in only):
            meta = {k: _meta(v) for k, v in kwargs.items()}
            examples.setdefault(ops[name], []).append(Example(*map(_meta, args), **meta))
    missing = set(only) - {op.qualname for op in examples}
    if missing:
        have = ", ".join(sorted({n for n, _, _ in found if n in ops}))
        raise MojoError(
            f"No sample call uses {', '.join(sorted(missing))}; they use {have}.\nAdd one to own.py."
        )
    return examples


def build_own(
    folder: Path | None = None,
    *,
    targets: Sequence[str] = TARGETS,
    dtypes: Sequence[torch.dtype] = DTYPES,
    only: Sequence[str] = (),
    jobs: int | None = None,
) -> Built:
    """Build torch_mojo's kernels, and its router, into a folder that its wheel takes along.

    What is compiled is kept in the cache: stopped, and called again with the same arguments, it goes on where it
    was. The folder is replaced when all is there; until then, what was in it before stays.

    Args:
        folder: the folder; where torch_mojo looks for them by default.
        targets, jobs: as for `torch_mojo.build.MojoExtension`.
        dtypes, only: as for `wanted`.

    Raises:
        MojoCompileError: naming the first kernel that does not compile.
    """
    folder = folder or built_folder()
    examples = wanted(dtypes, only)
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        router = build(dataclasses.replace(router_job(), cpu=PREBUILT_CPU), cache())
        shutil.copyfile(router.library, part / "router.so")
        digest = hashlib.sha256(router.library.read_bytes()).hexdigest()
        about = {"fingerprint": router_fingerprint(), "mojo": toolchain().version, "sha256": digest}
        (part / "router.json").write_text(json.dumps(about))
        built = build_library(examples, part / LIBRARY, targets, jobs)
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Built(folder / LIBRARY, built.manifest)
