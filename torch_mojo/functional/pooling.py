"""Pooling."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_mojo.functional.builtin import kernel


@kernel(name="adaptive_avg_pool2d")
def _adaptive_avg_pool2d(input: torch.Tensor, output_size: list[int]) -> torch.Tensor:
    """Return the means over windows that cover each picture evenly; output_size is (rows, columns)."""
    if input.dim() not in (3, 4):
        raise ValueError(
            f"[mojo::adaptive_avg_pool2d] input has shape {tuple(input.shape)}; it takes (N, C, H, W) or "
            "(C, H, W).\nReshape it."
        )
    if not input.dtype.is_floating_point:
        raise TypeError(
            f"[mojo::adaptive_avg_pool2d] input has dtype {input.dtype}; it takes floating-point pictures.\n"
            "Convert it, for example to float32."
        )
    if len(output_size) != 2 or output_size[0] < 0 or output_size[1] < 0:
        raise ValueError(
            f"[mojo::adaptive_avg_pool2d] output_size is {list(output_size)}; it takes two sizes, 0 or more.\n"
            "Pass (rows, columns)."
        )
    rows, columns = output_size
    height, width = input.shape[-2], input.shape[-1]
    if height == 0 or width == 0 or input.shape[-3] == 0:
        raise ValueError(
            f"[mojo::adaptive_avg_pool2d] input has shape {tuple(input.shape)}; only the batch may be empty.\n"
            "Leave out the call for empty pictures."
        )
    if (height + 1) * (rows + 1) >= 2**32 or (width + 1) * (columns + 1) >= 2**32:
        raise ValueError(
            f"[mojo::adaptive_avg_pool2d] input has shape {tuple(input.shape)} and output_size is "
            f"{list(output_size)}; their products have to stay below 2**32.\nPool in two steps."
        )
    return input.new_empty((*input.shape[:-2], rows, columns))


@kernel(file="adaptive_avg_pool2d")
def adaptive_avg_pool2d_backward(grad_output: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
    """Return the gradient of `adaptive_avg_pool2d` with respect to its input.

    Every pixel gathers from its windows, so the result is the same every time, on a GPU too.

    Args:
        grad_output: the gradient of the result, (N, C, rows, columns) or (C, rows, columns).
        input: its input; only the shape counts.

    Returns:
        the shape of input, in the dtype of grad_output.
    """
    same = grad_output.dim() == input.dim() and input.dim() in (3, 4)
    if not same or grad_output.shape[:-2] != input.shape[:-2]:
        raise ValueError(
            f"[mojo::adaptive_avg_pool2d_backward] grad_output has shape {tuple(grad_output.shape)} and input "
            f"{tuple(input.shape)}; all but the last two dimensions have to be the same.\n"
            "Pass the gradient of what adaptive_avg_pool2d returned."
        )
    return grad_output.new_empty(input.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.output_size = list(inputs[1])


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    return adaptive_avg_pool2d_backward(grad, *ctx.saved_tensors), None


def _save_output_size(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.output_size = list(inputs[0].shape[-2:])


def _second_gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    return _adaptive_avg_pool2d(grad, ctx.output_size), None  # linear: back is forward again


_adaptive_avg_pool2d.register_autograd(_gradient, setup_context=_save)
adaptive_avg_pool2d_backward.register_autograd(_second_gradient, setup_context=_save_output_size)


@_adaptive_avg_pool2d.register_vmap
def _batched(
    info: Any, in_dims: tuple[Any, ...], input: torch.Tensor, output_size: list[int]
) -> tuple[torch.Tensor, int]:
    """The batch joins the pictures."""
    moved = input.movedim(in_dims[0], 0)
    if moved.dim() != 5:
        return _adaptive_avg_pool2d(moved, output_size), 0
    pooled = _adaptive_avg_pool2d(moved.flatten(0, 1), output_size)
    return pooled.unflatten(0, moved.shape[:2]), 0


def adaptive_avg_pool2d(
    input: torch.Tensor, output_size: int | Sequence[int | None]
) -> torch.Tensor:
    """Return the means over windows that cover each picture evenly, as `torch.nn.functional.adaptive_avg_pool2d`.

    Window i of n over `size` pixels reaches from floor(i * size / n) to ceil((i + 1) * size / n).

    Args:
        input: (N, C, H, W) or (C, H, W), floating-point; only N may be 0.
        output_size: rows and columns, or one number for both; None is the input's size. The operator
            `torch.ops.mojo.adaptive_avg_pool2d` takes two ints.

    Returns:
        (N, C, rows, columns) or (C, rows, columns), contiguous, in the dtype of input; halves are summed in float32.

    Raises:
        ValueError: for other shapes.
        TypeError: for other dtypes.
    """
    pair = [output_size, output_size] if isinstance(output_size, int) else list(output_size)
    if len(pair) == 2:
        pair = [input.shape[d - 2] if n is None else n for d, n in enumerate(pair)]
    return _adaptive_avg_pool2d(input, pair)
