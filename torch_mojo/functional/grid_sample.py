"""grid_sample."""

import warnings
from typing import Any

import torch

from torch_mojo.batching import batch_first
from torch_mojo.dtypes import accumulated
from torch_mojo.functional.builtin import kernel

_ATOMIC = tuple(t for n, t in torch.Tag.__members__.items() if n == "nondeterministic_bitwise")


def _check(
    input: torch.Tensor, grid: torch.Tensor, mode: str, padding_mode: str, name: str
) -> None:
    rank = input.dim()
    if rank not in (4, 5) or grid.dim() != rank or grid.shape[-1] != rank - 2:
        raise ValueError(
            f"[mojo::{name}] input has shape {tuple(input.shape)} and grid {tuple(grid.shape)}; it takes "
            "(N, C, H, W) with (N, rows, columns, 2) or (N, C, D, H, W) with (N, planes, rows, columns, 3).\n"
            "Reshape them."
        )
    if input.shape[0] != grid.shape[0]:
        raise ValueError(
            f"[mojo::{name}] input has {input.shape[0]} picture(s) and grid {grid.shape[0]}.\n"
            "Expand one of them to the other's size."
        )
    for size in input.shape[1:]:
        if size == 0:
            raise ValueError(
                f"[mojo::{name}] input has shape {tuple(input.shape)}; only the batch may be empty.\n"
                "Leave out the call for empty pictures."
            )
    if not input.dtype.is_floating_point or input.dtype != grid.dtype:
        raise TypeError(
            f"[mojo::{name}] input has dtype {input.dtype} and grid {grid.dtype}; it takes one floating-point "
            "dtype.\nConvert one of them."
        )
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            f"[mojo::{name}] mode is {mode!r}.\nPass 'bilinear', 'nearest' or 'bicubic'."
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"[mojo::{name}] padding_mode is {padding_mode!r}.\nPass 'zeros', 'border' or 'reflection'."
        )
    if mode == "bicubic" and rank == 5:
        raise ValueError(
            f"[mojo::{name}] mode is 'bicubic' and input has 5 dimensions.\nPass 'bilinear' or 'nearest'."
        )


@kernel(name="grid_sample", autocast=torch.float32)
def _grid_sample(
    input: torch.Tensor,
    grid: torch.Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> torch.Tensor:
    """Return pictures or volumes read at the places of a grid; as the function, with align_corners a bool."""
    _check(input, grid, mode, padding_mode, "grid_sample")
    return input.new_empty((*input.shape[:2], *grid.shape[1:-1]))


@kernel(file="grid_sample")
def grid_sample_grid_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    grid: torch.Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> torch.Tensor:
    """Return the gradient of `grid_sample` with respect to grid.

    Args:
        grad_output: the gradient of the result, in the dtype of input.
        input, grid, mode, padding_mode, align_corners: what `grid_sample` was given.

    Returns:
        the shape and dtype of grid.
    """
    _check(input, grid, mode, padding_mode, "grid_sample_grid_backward")
    return grid.new_empty(grid.shape)


@kernel(file="grid_sample", tags=_ATOMIC)
def grid_sample_input_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    grid: torch.Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> torch.Tensor:
    """Return the gradient of `grid_sample` with respect to input.

    On a GPU it adds atomically, in an order that differs from call to call, and so may the last bits. On the CPU
    it is the same every time.

    Args:
        grad_output: the gradient of the result, in the dtype of input.
        input, grid, mode, padding_mode, align_corners: what `grid_sample` was given; of input only the shape
            counts.

    Returns:
        the shape of input, float64 for float64 and float32 for all else, in which the sums are.
    """
    _check(input, grid, mode, padding_mode, "grid_sample_input_backward")
    dtype = accumulated(input.dtype)
    return input.new_empty(input.shape, dtype=dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.how = inputs[2:]


def _tell_nondeterministic(tensor: torch.Tensor) -> None:
    if tensor.is_cuda and torch.are_deterministic_algorithms_enabled():
        message = (
            "[mojo::grid_sample_input_backward] adds atomically on a GPU, which is not deterministic.\n"
            "Detach the input, or call torch.use_deterministic_algorithms(True, warn_only=True)."
        )
        if not torch.is_deterministic_algorithms_warn_only_enabled():
            raise RuntimeError(message)
        warnings.warn(message, stacklevel=2)


def _gradients(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    input, grid = ctx.saved_tensors
    to_input = to_grid = None
    if ctx.needs_input_grad[0]:
        _tell_nondeterministic(grad)
        to_input = grid_sample_input_backward(grad, input, grid, *ctx.how).to(input.dtype)
    if ctx.needs_input_grad[1]:
        to_grid = grid_sample_grid_backward(grad, input, grid, *ctx.how)
    return to_input, to_grid, None, None, None


_grid_sample.register_autograd(_gradients, setup_context=_save)


@_grid_sample.register_vmap
def _batched(
    info: Any, in_dims: tuple[Any, ...], input: torch.Tensor, grid: torch.Tensor, *how: Any
) -> tuple[torch.Tensor, int]:
    """The batch joins the pictures."""
    both = [
        batch_first(t, d, info.batch_size).flatten(0, 1)
        for t, d in zip((input, grid), in_dims, strict=False)
    ]
    return _grid_sample(*both, *how).unflatten(0, (info.batch_size, -1)), 0


def grid_sample(
    input: torch.Tensor,
    grid: torch.Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> torch.Tensor:
    """Return pictures or volumes read at the places of a grid, as `torch.nn.functional.grid_sample`.

    Args:
        input: (N, C, H, W) or (N, C, D, H, W), floating-point; only N may be 0.
        grid: (N, rows, columns, 2) or (N, planes, rows, columns, 3), in the dtype of input: x, y (and z) from -1,
            the first pixel, to 1, the last.
        mode: "bilinear" (which is trilinear for volumes), "nearest", or "bicubic" for pictures (cubic convolution
            with a = -0.75).
        padding_mode: what is outside: "zeros", "border" pixels, or a "reflection".
        align_corners: -1 and 1 are the centres of the first and last pixels, rather than their edges; None is False.

    Returns:
        (N, C, rows, columns) or (N, C, planes, rows, columns), contiguous, in the dtype of input. Halves are computed
        in float32. It has gradients for input and grid; the former is not deterministic on a GPU.

    Raises:
        ValueError: for shapes that do not go together, and for another mode or padding_mode.
        TypeError: for other dtypes.
    """
    return _grid_sample(input, grid, mode, padding_mode, bool(align_corners))
