"""`register_device`: what makes torch know the device."""

import os
import threading
import warnings

import torch

from torch_mojo import torch_private
from torch_mojo.device import native
from torch_mojo.errors import MojoError

_lock = threading.Lock()
_registered: int | None = None

# Operators that look at sizes, strides and storages, or at bytes of host memory; the CPU's kernels do that right.
_OF_DESCRIPTION = (
    *("aten::view", "aten::as_strided", "aten::_reshape_alias", "aten::unfold"),
    *("aten::set_.source_Storage", "aten::set_.source_Storage_storage_offset"),
    *("aten::set_.source_Tensor", "aten::set_", "aten::is_set_to", "aten::resize_"),
    *("aten::_local_scalar_dense", "aten::view_as_real", "aten::view_as_complex"),
)


def register_device(host_devices: int = 1) -> None:
    """Register `torch.device("mojo")` and `torch.mojo`; once per process, a second call does nothing.

    Call it before the process's first backward: torch's autograd engine counts the devices then, and never again. After
    that the device has no gradients, and this function warns.

    Its devices are host devices: their memory is the host's, and kernels run on torch's CPU threads.

    Args:
        host_devices: how many there are, 1 to 16; more than one for tests of code for several devices.

    Raises:
        MojoError: if another library has taken PrivateUse1, or the device is registered with another count.
        ToolchainError: if this torch or machine is none that the device was made for.
    """
    global _registered
    with _lock:
        if _registered is not None:
            if _registered != host_devices:
                raise MojoError(
                    f"torch.device('mojo') is registered with {_registered} host device(s), not {host_devices}.\n"
                    "Register it once in a process."
                )
            return
        if not 1 <= host_devices <= native.MOST_DEVICES:
            raise MojoError(
                f"host_devices={host_devices}.\nGive 1 to {native.MOST_DEVICES} host devices."
            )
        _register(host_devices)
        _registered = host_devices
        _start_autograd(host_devices)


def _register(count: int) -> None:
    if torch_private.privateuse1_is_taken():
        raise MojoError(
            f"torch's private device is taken: it is called {torch_private.privateuse1_name()!r}.\n"
            "Register torch.device('mojo') in a process of its own."
        )
    native.library()  # what may fail comes before what cannot be taken back
    from torch_mojo.device import autocast, composed, fallback, module, pointwise

    native.register_with_c10(count)
    torch_private.name_private_device(native.NAME, module)
    native.define_sharing()
    native.implement("aten::empty.memory_format", native.EMPTY)
    native.implement("aten::empty_strided", native.EMPTY_STRIDED)
    for name in _OF_DESCRIPTION:
        native.run_as_on_cpu(name)
    fallback.register()
    pointwise.register()
    composed.register()
    autocast.register()
    os.register_at_fork(after_in_child=module.after_fork)
    module.manual_seed_all(torch.initial_seed())


def _start_autograd(count: int) -> None:
    """Start torch's autograd engine, which counts the devices when it starts, or say that it ran already."""
    try:
        torch.ones((), device=f"{native.NAME}:{count - 1}", requires_grad=True).backward()
    except RuntimeError:
        warnings.warn(
            "torch_mojo.register_device() came after the first backward of this process: torch's autograd engine "
            "has counted the devices already, and a backward on torch.device('mojo') will fail.\n"
            "Call register_device() first.",
            stacklevel=3,
        )
