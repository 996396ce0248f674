"""Linear algebra of small matrices."""

from typing import Any

import torch

from torch_mojo.functional.builtin import kernel


@kernel(leading=("input",), autocast=torch.float32)
def inv3x3(input: torch.Tensor) -> torch.Tensor:
    """Return the inverses of 3x3 matrices, by the adjugate over the determinant.

    Half precision is computed in float32. Nothing waits for a GPU, so a singular matrix raises no error, unlike
    `torch.linalg.inv`: its inverse has inf and nan only, or finite garbage where the determinant is not exactly 0,
    as in `torch.linalg.inv`.

    Args:
        input: (..., 3, 3), floating-point.

    Returns:
        the same shape and dtype. The gradient is -A^-T G A^-T.

    Raises:
        ValueError: for another shape.
        TypeError: for another dtype.
    """
    if input.dim() < 2 or input.shape[-1] != 3 or input.shape[-2] != 3:
        raise ValueError(
            f"[mojo::inv3x3] input has shape {tuple(input.shape)}; it takes (..., 3, 3).\n"
            "Use torch.linalg.inv for other matrices."
        )
    if not input.dtype.is_floating_point:
        raise TypeError(
            f"[mojo::inv3x3] input has dtype {input.dtype}; it takes floating-point matrices.\n"
            "Convert it, for example to float32."
        )
    return input.new_empty(input.shape)


@kernel(file="inv3x3", leading=("grad_output", "output"))
def inv3x3_backward(grad_output: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Return the gradient of `inv3x3` with respect to its input, -B^T G B^T.

    Args:
        grad_output: the gradient G of the result, (..., 3, 3).
        output: the result B, of the same shape and dtype.

    Returns:
        the same shape and dtype. It has gradients itself.
    """
    if grad_output.shape != output.shape or output.shape[-2:] != (3, 3):
        raise ValueError(
            f"[mojo::inv3x3_backward] grad_output has shape {tuple(grad_output.shape)} and output "
            f"{tuple(output.shape)}; both have to be the same (..., 3, 3).\nPass what inv3x3 returned."
        )
    return output.new_empty(output.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(output)


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _second_gradients(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    grad_output, inverse = ctx.saved_tensors
    turned = grad.mT
    return (
        -inverse @ grad @ inverse,
        -(grad_output @ inverse.mT @ turned) - turned @ inverse.mT @ grad_output,
    )


inv3x3.register_autograd(
    lambda ctx, grad: inv3x3_backward(grad, *ctx.saved_tensors), setup_context=_save
)
inv3x3_backward.register_autograd(_second_gradients, setup_context=_save_inputs)
