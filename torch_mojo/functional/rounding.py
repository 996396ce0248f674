"""Rounding."""

import torch

from torch_mojo.functional.builtin import kernel


@kernel(broadcast=True, tags=(torch.Tag.pointwise,))
def ceil(input: torch.Tensor) -> torch.Tensor:
    """Return the smallest integer that is not less than each element, as `torch.ceil`.

    Args:
        input: any shape; floating-point, or integers, which stay as they are. A bool is refused.

    Returns:
        the same shape and dtype. The gradient is zero.
    """
    if input.dtype == torch.bool:
        raise TypeError("[mojo::ceil] input has dtype bool.\nConvert it, for example to float32.")
    return torch.empty_like(input)


ceil.register_autograd(lambda ctx, grad: torch.zeros_like(grad))
