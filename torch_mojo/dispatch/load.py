"""Builds a specialization, or takes it from the cache, and opens it."""

import ctypes
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from torch_mojo.dispatch.binding import Binding
from torch_mojo.dispatch.keys import Key, TensorKey
from torch_mojo.dispatch.router import router
from torch_mojo.dispatch.shim import Shim
from torch_mojo.dispatch.specialization import Specialization
from torch_mojo.errors import MojoError
from torch_mojo.jit import toolchain
from torch_mojo.jit.build import Job, build
from torch_mojo.jit.cache import cache
from torch_mojo.jit.sources import Source

# What kernels/torch/threads.mojo puts on torch's threads.
_ON_TORCH_THREADS = (
    "AsyncRT_DeviceContext_enqueueHostFunctionRange",
    "AsyncRT_DeviceContext_getAttribute",
    "KGEN_CompilerRT_AsyncRT_ParallelismLevel",
)
# What kernels/torch/device.mojo puts on torch's current stream.
_ON_TORCH_STREAM = ("AsyncRT_DeviceContext_enqueueFunctionDirect",)
# What a kernel may ask of the device runtime without putting anything on the context's own stream.
_ORDERLESS = re.compile(
    r"AsyncRT_(DeviceFunction_\w+|DeviceStream_(enqueueFunctionDirect|retain|release|cuda_stream)|occupancy\w+"
    r"|DeviceContext_(id|deviceApi|deviceName|archName|computeCapability|getApiVersion|getAttribute|isCompatible"
    r"|loadFunction|loadFunctionWithDebugName|maxSingleAllocationSize|getMemoryInfo|retain|release|strfree))"
)


@dataclass
class Built:
    """One specialization in use, as the router takes it."""

    description: str
    library: Path | None = None
    function: int = 0
    plan: list[int] | None = None
    accelerator: int = 0
    context: int = 0
    device: int = 0
    fenced: bool = False
    ranks: int = 0


@functools.cache
def _open(library: Path) -> tuple[ctypes.CDLL, int]:
    toolchain.load_runtime()
    opened = ctypes.CDLL(str(library))
    return opened, ctypes.cast(opened.tm_run, ctypes.c_void_p).value or 0


@functools.cache
def _architecture(device: torch.device) -> str:
    """Return the compiler's name for a CUDA or ROCm device."""
    properties = torch.cuda.get_device_properties(device)
    name = getattr(properties, "gcnArchName", None)
    if name and torch.version.hip:
        return name.split(":")[0]
    return f"sm_{properties.major}{properties.minor}"


def load(
    binding: Binding,
    source: Source,
    keys: Sequence[Key],
    values: Sequence[object],
    outs: Sequence[TensorKey],
) -> Built:
    """Return the specialization for a key, ready to be called.

    Args:
        binding: the declaration and its kernel.
        source: where the kernel comes from.
        keys, values: one per argument of the schema.
        outs: what is known of each output.

    Raises:
        SignatureError: if the kernel does not take such arguments.
        MojoCompileError: if it does not compile.
        MojoError: during the capture of a CUDA graph, which cannot hold the loading of a kernel.
    """
    special = Specialization(binding, keys, values, outs)
    gpu = special.device.type == "cuda"
    if gpu and torch.cuda.is_current_stream_capturing():
        raise MojoError(
            f"{special.description} is not loaded yet, and a CUDA graph is being captured.\n"
            "With arguments like these, call it once before the capture."
        )
    job = Job(
        special.description,
        Shim(special).text(),
        source,
        wrapped=_ON_TORCH_STREAM if gpu else _ON_TORCH_THREADS,
        accelerator=_architecture(special.device) if gpu else None,
        extra=(torch.__version__,),
    )
    native = router()  # has what the library calls
    entry = build(job, cache())
    library = entry.library
    _, function = _open(library)
    index = special.device.index or 0
    return Built(
        special.description,
        library,
        function,
        accelerator=native.accelerator(index) if gpu else 0,
        context=native.cpu_context() if binding.context and not gpu else 0,
        device=index,
        ranks=special.packed_ranks(),
        fenced=gpu and not all(_ORDERLESS.fullmatch(n) for n in entry.info["runtime"]),
    )
