"""Builds a specialization, or takes it from the cache, and opens it."""

import ctypes
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from torch_mojo.dispatch import shipped
from torch_mojo.dispatch.binding import Binding
from torch_mojo.dispatch.keys import CONTIGUOUS, Key, TensorKey, strided
from torch_mojo.dispatch.router import router
from torch_mojo.dispatch.shim import Shim
from torch_mojo.dispatch.specialization import Specialization
from torch_mojo.errors import MojoError, ToolchainError
from torch_mojo.jit import toolchain
from torch_mojo.jit.build import Job, build
from torch_mojo.jit.cache import cache
from torch_mojo.jit.sources import Source

KernelFor = Callable[..., tuple[Binding, Source]]

# What kernels/torch/threads.mojo puts on torch's threads.
ON_TORCH_THREADS = (
    "AsyncRT_DeviceContext_enqueueHostFunctionRange",
    "AsyncRT_DeviceContext_getAttribute",
    "KGEN_CompilerRT_AsyncRT_ParallelismLevel",
)
# What kernels/torch/device.mojo puts on torch's current stream, and does once.
ON_TORCH_STREAM = (
    "AsyncRT_DeviceContext_enqueueFunctionDirect",
    "AsyncRT_DeviceContext_loadFunction",
)
# What a kernel may ask of the device runtime without putting anything on the context's own stream.
_ORDERLESS = re.compile(
    r"AsyncRT_(DeviceFunction_\w+|DeviceStream_(enqueueFunctionDirect|retain|release|cuda_stream)|occupancy\w+"
    r"|DeviceContext_(id|deviceApi|deviceName|archName|computeCapability|getApiVersion|getAttribute|isCompatible"
    r"|loadFunctionWithDebugName|maxSingleAllocationSize|getMemoryInfo|retain|release|strfree))"
)


def is_fenced(runtime: Sequence[str]) -> bool:
    """Tell whether a GPU kernel that calls these functions of the runtime must be ordered by events."""
    return not all(_ORDERLESS.fullmatch(n) for n in runtime)


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


def _shipped(
    special: Specialization,
    text: str,
    source: Source,
    accelerator: str | None,
    kernel_for: KernelFor,
) -> tuple[Path, int, bool] | None:
    """Return what was built ahead of time for a specialization, else for the same with any strides."""
    older = not toolchain.is_available()
    found = shipped.find(text, source.fingerprint(), accelerator, older)
    if found is None and not all(k.layout == CONTIGUOUS for _, k, _ in special.tensors()):
        keys, outs = [strided(k) for k in special.keys], [strided(k) for k in special.outs]
        binding, source = kernel_for(special.values, keys, outs)
        loose = Specialization(binding, keys, special.values, outs)  # type: ignore[arg-type]
        found = shipped.find(Shim(loose).text(), source.fingerprint(), accelerator, older)
    return found


def load(
    kernel_for: KernelFor,
    keys: Sequence[Key],
    values: Sequence[object],
    outs: Sequence[TensorKey],
) -> Built:
    """Return the specialization for a key, ready to be called.

    Args:
        kernel_for: returns the kernel for values, keys and outputs, bound to the declaration, and its source.
        keys, values: one per argument of the schema.
        outs: what is known of each output.

    Raises:
        SignatureError: if the kernel does not take such arguments.
        MojoCompileError: if it does not compile.
        MojoError: during the capture of a CUDA graph, which cannot hold the loading of a kernel.
    """
    binding, source = kernel_for(values, keys, outs)
    special = Specialization(binding, keys, values, outs)
    gpu = special.device.type == "cuda"
    if gpu and torch.cuda.is_current_stream_capturing():
        raise MojoError(
            f"{special.description} is not loaded yet, and a CUDA graph is being captured.\n"
            "With arguments like these, call it once before the capture."
        )
    text = Shim(special).text()
    accelerator = _architecture(special.device) if gpu else None
    native = router()  # has what the library calls
    shipped.add_folder(toolchain.built_folder())
    ready = (
        _shipped(special, text, source, accelerator, kernel_for) if shipped.any_known() else None
    )
    if ready is not None:
        library, function, fenced = ready
    else:
        job = Job(
            special.description,
            text,
            source,
            wrapped=ON_TORCH_STREAM if gpu else ON_TORCH_THREADS,
            accelerator=accelerator,
            extra=(torch.__version__,),
        )
        try:
            entry = build(job, cache())
        except ToolchainError as e:
            have = shipped.built_of(binding.qualname)
            if not have:
                raise
            machine = accelerator or "this CPU"
            raise ToolchainError(
                f"{special.description} was not built for {machine}, and cannot be built here: {e}\n"
                f"It was built for:\n{have}"
            ) from e
        library, fenced = entry.library, gpu and is_fenced(entry.info["runtime"])
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
        fenced=fenced,
    )
