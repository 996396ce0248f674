"""The built-in kernels, a function each: torch tensors, MAX graph values and MAX tensors in and out.

The same functions are `torch.ops.mojo.*`.
"""

from torch_mojo.functional.rounding import ceil

__all__ = ["ceil"]
