"""Mojo kernels as PyTorch operators, and `torch.compile(backend="max")`."""

from torch_mojo import errors
from torch_mojo.op import MojoOp, mojo_op

__version__ = "0.1.0"
__all__ = ["MojoOp", "errors", "mojo_op"]
