"""Volumes (N, C, D, H, W) read at evenly spaced places. Pictures are volumes of depth 1.

s0, s1 and s2 are how many times the output is larger, in D, H and W, or 0 for what the sizes say; align is 1 if the
first and last places are the first and last elements. Gradients are gathered: they are the same every time.
"""

import torch

from torch_mojo.aten.indexing import NAMESPACE
from torch_mojo.functional.builtin import Kernel, kernel

MODES = ("nearest", "nearest_exact", "linear", "cubic")


def _forward(mode: str) -> Kernel[..., torch.Tensor]:
    def body(
        input: torch.Tensor,
        s0: float,
        s1: float,
        s2: float,
        align: int,
        dims: int,
        output_size: list[int],
        like: torch.Tensor | None,
    ) -> torch.Tensor:
        sizes = output_size if like is None else like.shape[2:]
        return input.new_empty([*input.shape[:2], *sizes])

    body.__name__ = f"resample_{mode}"
    body.__doc__ = (
        "Return volumes read at other places; dims of the dimensions, the last ones, are taken.\n\n"
        "The output has output_size, or that of `like`, (..., D, H, W)."
    )
    constants = {"mode": mode}
    return kernel(
        namespace=NAMESPACE, file="aten_resample", kernel="aten_resample", constants=constants
    )(body)


def _backward(mode: str) -> Kernel[..., torch.Tensor]:
    def body(
        grad_output: torch.Tensor,
        s0: float,
        s1: float,
        s2: float,
        align: int,
        input_size: list[int],
        like: torch.Tensor | None,
    ) -> torch.Tensor:
        sizes = input_size if like is None else like.shape[2:]
        return grad_output.new_empty([*grad_output.shape[:2], *sizes])

    body.__name__ = f"resample_{mode}_backward"
    body.__doc__ = f"Return the gradient of `resample_{mode}` with respect to its input."
    return kernel(
        namespace=NAMESPACE,
        file="aten_resample",
        kernel="aten_resample_backward",
        constants={"mode": mode},
    )(body)


FORWARD = {mode: _forward(mode) for mode in MODES}
BACKWARD = {mode: _backward(mode) for mode in MODES}
