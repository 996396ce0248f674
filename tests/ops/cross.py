"""Builds a kernel for a GPU that this machine does not have."""

import dataclasses
from pathlib import Path
from typing import Any

import torch

from torch_mojo.dispatch.keys import Key, TensorKey, key_of_value, tensor_key
from torch_mojo.dispatch.load import ON_TORCH_STREAM
from torch_mojo.dispatch.shim import Shim
from torch_mojo.dispatch.specialization import Specialization
from torch_mojo.jit.build import Job, build
from torch_mojo.jit.cache import cache
from torch_mojo.op import find_op


def _on_cuda(key: Key) -> Key:
    return (
        dataclasses.replace(key, device_type=1, aligned=True) if isinstance(key, TensorKey) else key
    )


def cross_build(overload: Any, *args: Any, accelerator: str = "sm_90", **kwargs: Any) -> Path:
    """Build the specialization for arguments like these, as CUDA tensors; return the library."""
    op = find_op(overload)
    assert op is not None
    values = op.calls.bind(args, kwargs)
    keys = [_on_cuda(key_of_value(a, v)) for a, v in zip(op.arguments.args, values, strict=True)]
    with torch.no_grad():
        result = op.body(*args, **kwargs)
    made = list(result) if isinstance(result, (tuple, list)) else [result]
    outs = [_on_cuda(tensor_key(t)) for t in made]
    binding, source = op.kernel_for(values, keys, outs)  # type: ignore[arg-type]
    special = Specialization(binding, keys, values, outs)  # type: ignore[arg-type]
    job = Job(
        special.description,
        Shim(special).text(),
        source,
        wrapped=ON_TORCH_STREAM,
        accelerator=accelerator,
        extra=(torch.__version__,),
    )
    return build(job, cache()).library
