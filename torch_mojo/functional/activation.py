"""Activations and their gradients."""

from typing import Any

import torch

from torch_mojo.functional.builtin import kernel, summed_to

_POINTWISE = (torch.Tag.pointwise,)


def _check_floats(name: str, dtype: torch.dtype) -> None:
    if not dtype.is_floating_point:
        raise TypeError(
            f"[mojo::{name}] the tensors have dtype {dtype} together; it takes floating-point ones.\n"
            "Convert them, for example to float32."
        )


def _check_approximate(name: str, approximate: str) -> None:
    if approximate not in ("none", "tanh"):
        raise ValueError(
            f"[mojo::{name}] approximate is {approximate!r}.\nPass 'none' or 'tanh', as to torch.nn.functional.gelu."
        )


@kernel(broadcast=True, constants={"order": 1}, tags=_POINTWISE)
def gelu_backward(
    grad_output: torch.Tensor, self: torch.Tensor, *, approximate: str = "none"
) -> torch.Tensor:
    """Return the gradient of GELU at `self` times `grad_output`, as `torch.ops.aten.gelu_backward`.

    The derivative is P(x) + x * p(x) with the normal distribution P and its density p, or that of the
    approximation with tanh (https://arxiv.org/abs/1606.08415).

    Args:
        grad_output, self: floating-point, shapes that broadcast.
        approximate: "none" or "tanh".

    Returns:
        the broadcast shape, in the dtype of `torch.result_type`. It has gradients itself.
    """
    dtype = torch.result_type(grad_output, self)
    _check_floats("gelu_backward", dtype)
    _check_approximate("gelu_backward", approximate)
    if grad_output.shape == self.shape:
        return torch.empty_like(self, dtype=dtype)
    shape = torch.broadcast_shapes(grad_output.shape, self.shape)
    return torch.empty(shape, dtype=dtype, device=self.device)


@kernel(file="gelu_backward", kernel="gelu_backward", broadcast=True, constants={"order": 2})
def gelu_double_backward(
    grad_output: torch.Tensor, self: torch.Tensor, *, approximate: str = "none"
) -> torch.Tensor:
    """Return GELU's second derivative at `self` times `grad_output`.

    Arguments, result and errors are those of `gelu_backward`; it has no gradient.
    """
    dtype = torch.result_type(grad_output, self)
    _check_floats("gelu_double_backward", dtype)
    _check_approximate("gelu_double_backward", approximate)
    if grad_output.shape == self.shape:
        return torch.empty_like(self, dtype=dtype)
    shape = torch.broadcast_shapes(grad_output.shape, self.shape)
    return torch.empty(shape, dtype=dtype, device=self.device)


def _save_gelu(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: torch.Tensor
) -> None:
    ctx.save_for_backward(*inputs)
    ctx.approximate = keyword_only_inputs["approximate"]


def _gelu_gradients(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    grad_output, x = ctx.saved_tensors
    found: list[torch.Tensor | None] = [None, None]
    if ctx.needs_input_grad[0]:
        value = gelu_backward(grad, x, approximate=ctx.approximate)
        found[0] = summed_to(value, grad_output)
    if ctx.needs_input_grad[1]:
        value = gelu_double_backward(grad * grad_output, x, approximate=ctx.approximate)
        found[1] = summed_to(value, x)
    return tuple(found)


gelu_backward.register_autograd(_gelu_gradients, setup_context=_save_gelu)


@kernel(broadcast=True, tags=_POINTWISE)
def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up, the product inside SwiGLU (https://arxiv.org/abs/2002.05202).

    Args:
        gate, up: floating-point, shapes that broadcast.

    Returns:
        the broadcast shape, in the dtype of `torch.result_type`; rounded once.
    """
    dtype = torch.result_type(gate, up)
    _check_floats("silu_mul", dtype)
    if gate.shape == up.shape:
        return torch.empty_like(gate, dtype=dtype)
    shape = torch.broadcast_shapes(gate.shape, up.shape)
    return torch.empty(shape, dtype=dtype, device=gate.device)


@kernel(file="silu_mul", broadcast=True, tags=_POINTWISE)
def silu_mul_backward(
    grad: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `silu_mul` with respect to gate and up.

    Args:
        grad: the gradient of the result.
        gate, up: its arguments; shapes that broadcast.

    Returns:
        both in the broadcast shape and the dtype of `torch.result_type` of gate and up; not summed to the
        arguments' shapes. They have no gradients themselves.
    """
    dtype = torch.result_type(gate, up)
    _check_floats("silu_mul_backward", dtype)
    if grad.shape == gate.shape and gate.shape == up.shape:
        return torch.empty_like(gate, dtype=dtype), torch.empty_like(gate, dtype=dtype)
    shape = torch.broadcast_shapes(grad.shape, gate.shape, up.shape)
    return (
        torch.empty(shape, dtype=dtype, device=gate.device),
        torch.empty(shape, dtype=dtype, device=gate.device),
    )


def _save_silu_mul(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _silu_mul_gradients(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    gate, up = ctx.saved_tensors
    grad_gate, grad_up = silu_mul_backward(grad, gate, up)
    return summed_to(grad_gate, gate), summed_to(grad_up, up)


silu_mul.register_autograd(_silu_mul_gradients, setup_context=_save_silu_mul)
