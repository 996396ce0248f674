"""Mojo kernels as PyTorch operators, and `torch.compile(backend="max")`."""

from torch_mojo import errors
from torch_mojo.library import CustomOpLibrary
from torch_mojo.op import MojoOp, mojo_op

__version__ = "0.1.0"
__all__ = ["CustomOpLibrary", "MojoOp", "errors", "mojo_op"]
