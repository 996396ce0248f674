"""Decompositions of upsampling and grid_sample."""

from collections.abc import Sequence
from typing import Any

import torch

from torch_mojo import functional
from torch_mojo.aten import resampling
from torch_mojo.aten.rules import Rule, Rules, laid_out, of_volume, served, volume, whole
from torch_mojo.functional.grid_sample import (
    grid_sample_grid_backward,
    grid_sample_input_backward,
)

aten = torch.ops.aten
RULES = Rules()


def _sizes(sizes: Sequence[Any], x: torch.Tensor) -> tuple[list[int], torch.Tensor | None]:
    """Return the last three sizes as numbers, or as those of an empty tensor if they are symbolic."""
    full = [1] * (3 - len(sizes)) + list(sizes)
    if whole(sizes):
        return full, None
    return [], x.new_empty([*x.shape[:2], *full])


def _scales(scales: Sequence[float | None], dims: int) -> list[float]:
    return [0.0] * (3 - dims) + [s or 0.0 for s in scales]


def _upsample(mode: str, dims: int, aligned: bool) -> Rule:
    def rule(self: torch.Tensor, output_size: Sequence[Any], *rest: Any, **named: Any) -> Any:
        """Return pictures of another size."""
        given = _rest(rest, named, dims, aligned)
        bytes_too = self.dtype == torch.uint8 and mode.startswith("nearest")
        if not served(self) or not (self.dtype.is_floating_point or bytes_too):
            return NotImplemented
        align, scales = given
        sizes, like = _sizes(output_size, volume(self, dims))
        found = resampling.FORWARD[mode](
            volume(self, dims), *_scales(scales, dims), int(align), dims, sizes, like
        )
        return laid_out(of_volume(found, dims, self), self)

    return rule


def _upsample_backward(mode: str, dims: int, aligned: bool) -> Rule:
    def rule(
        grad_output: torch.Tensor,
        output_size: Sequence[Any],
        input_size: Sequence[Any],
        *rest: Any,
        **named: Any,
    ) -> Any:
        """Return the gradient of pictures of another size."""
        align, scales = _rest(rest, named, dims, aligned)
        if not served(grad_output) or not grad_output.dtype.is_floating_point:
            return NotImplemented
        grads = volume(grad_output, dims)
        sizes, like = _sizes(input_size[2:], grads)
        found = resampling.BACKWARD[mode](grads, *_scales(scales, dims), int(align), sizes, like)
        return laid_out(of_volume(found, dims, grad_output), grad_output)

    return rule


def _rest(
    rest: tuple[Any, ...], named: dict[str, Any], dims: int, aligned: bool
) -> tuple[bool, list[float | None]]:
    """Return align_corners, if the operator has it, and the scales."""
    names = ["align_corners"] if aligned else []
    names += {1: ["scales"], 2: ["scales_h", "scales_w"]}.get(
        dims, ["scales_d", "scales_h", "scales_w"]
    )
    values = dict(zip(names, rest, strict=False)) | named
    align = bool(values.pop("align_corners", False))
    return align, [values.get(n) for n in names if n != "align_corners"]


for _name, _mode, _dims in (
    *((f"upsample_nearest{d}d", "nearest", d) for d in (1, 2, 3)),
    *((f"_upsample_nearest_exact{d}d", "nearest_exact", d) for d in (1, 2, 3)),
    ("upsample_linear1d", "linear", 1),
    ("upsample_bilinear2d", "linear", 2),
    ("upsample_trilinear3d", "linear", 3),
    ("upsample_bicubic2d", "cubic", 2),
):
    _aligned = not _mode.startswith("nearest")
    RULES.add(getattr(aten, _name).default)(_upsample(_mode, _dims, _aligned))
    _op = getattr(aten, f"{_name}_backward").default
    RULES.add(_op)(_upsample_backward(_mode, _dims, _aligned))

_INTERPOLATION = ("bilinear", "nearest", "bicubic")
_PADDING = ("zeros", "border", "reflection")


@RULES.add(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(
    input: torch.Tensor,
    grid: torch.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> torch.Tensor:
    """Return pictures or volumes read at the places of a grid."""
    if not _sampled(input, grid):
        return NotImplemented
    how = (_INTERPOLATION[interpolation_mode], _PADDING[padding_mode], align_corners)
    return functional.grid_sample(input, grid, *how)


@RULES.add(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def grid_sampler_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    grid: torch.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Return the gradients of what was read."""
    if not _sampled(input, grid) or grad_output.dtype != input.dtype:
        return NotImplemented
    how = (_INTERPOLATION[interpolation_mode], _PADDING[padding_mode], align_corners)
    to_input = None
    if output_mask[0]:
        to_input = grid_sample_input_backward(grad_output, input, grid, *how).to(input.dtype)
    return to_input, grid_sample_grid_backward(grad_output, input, grid, *how)


def _sampled(input: torch.Tensor, grid: torch.Tensor) -> bool:
    return served(input, grid) and input.dtype.is_floating_point and input.dtype == grid.dtype
