"""Mojo kernels as PyTorch operators, and `torch.compile(backend="max")`."""

from typing import TYPE_CHECKING, Any

from torch_mojo import errors
from torch_mojo.library import CustomOpLibrary
from torch_mojo.op import MojoOp, mojo_op

if TYPE_CHECKING:
    from torch_mojo.compiler.explain import explain
    from torch_mojo.compiler.rules import lowering

__version__ = "0.1.0"
__all__ = ["CustomOpLibrary", "MojoOp", "errors", "explain", "lowering", "mojo_op"]


def __getattr__(name: str) -> Any:
    """Import what belongs to the MAX backend on first use."""
    if name == "explain":
        from torch_mojo.compiler.explain import explain

        return explain
    if name == "lowering":
        from torch_mojo.compiler.rules import lowering

        return lowering
    raise AttributeError(f"module 'torch_mojo' has no attribute {name!r}")
