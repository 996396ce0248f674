"""Mojo kernels as PyTorch operators, and `torch.compile(backend="max")`."""

import importlib
from typing import TYPE_CHECKING, Any

from torch_mojo import errors, torch_private
from torch_mojo.library import CustomOpLibrary
from torch_mojo.op import MojoOp, mojo_op

if TYPE_CHECKING:
    from torch_mojo import functional
    from torch_mojo.compiler.explain import explain
    from torch_mojo.compiler.rules import lowering
    from torch_mojo.device.register import register_device
    from torch_mojo.inline.kernel import kernel

__version__ = "0.1.0"
__all__ = [
    "CustomOpLibrary",
    "MojoOp",
    "errors",
    "explain",
    "functional",
    "kernel",
    "lowering",
    "mojo_op",
    "register_device",
]


def __getattr__(name: str) -> Any:
    """Import what is not always needed on first use."""
    if name == "functional":
        return importlib.import_module("torch_mojo.functional")
    if name == "explain":
        from torch_mojo.compiler.explain import explain

        return explain
    if name == "kernel":
        from torch_mojo.inline.kernel import kernel

        return kernel
    if name == "lowering":
        from torch_mojo.compiler.rules import lowering

        return lowering
    if name == "register_device":
        from torch_mojo.device.register import register_device

        return register_device
    raise AttributeError(f"module 'torch_mojo' has no attribute {name!r}")


def _declare_builtin(name: str) -> None:
    from torch_mojo.functional import builtin

    builtin.declare(name)


torch_private.lazy_namespace("mojo", _declare_builtin)
