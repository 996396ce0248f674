"""Variances, norms, gates and roundings of the device, made of its other operators, each below autograd."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_mojo.device.composed import composed, wide
from torch_mojo.device.fallback import run_on_cpu

aten = torch.ops.aten
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def _dims(self: torch.Tensor, dim: Sequence[int] | None) -> list[int]:
    return list(dim) if dim else list(range(self.dim()))


def _moments(
    self: torch.Tensor, dim: Sequence[int] | None, correction: Any, keepdim: bool
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return variance and mean, halves as float32, or None for what they are not made for."""
    if self.dtype not in _FLOATS or self.numel() == 0:
        return None
    dims = _dims(self, dim)
    count = math.prod(self.shape[d] for d in dims)
    rest = count - (1 if correction is None else correction)
    if rest <= 0:
        return None  # the CPU warns
    x = wide(self)
    mean = aten.mean.dim(x, dims, True)
    centered = x - mean
    var = aten.sum.dim_IntList(centered * centered, dims, keepdim) / rest
    return var, mean if keepdim else aten.mean.dim(mean, dims, False)


def _made(
    op: torch._ops.OpOverload, of: list[str], self: torch.Tensor, dim: Any, **given: Any
) -> Any:
    """Return what an operator returns of a standard deviation, a variance and a mean."""
    found = _moments(self, dim, given["correction"], given["keepdim"])
    if found is None:
        return run_on_cpu(op, self, dim, **given)
    parts = {"var": lambda: found[0], "std": lambda: found[0].sqrt(), "mean": lambda: found[1]}
    results = tuple(parts[name]().to(self.dtype) for name in of)
    return results if len(of) > 1 else results[0]


@composed("var.correction")
def _var(
    self: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    return _made(aten.var.correction, ["var"], self, dim, correction=correction, keepdim=keepdim)


@composed("std.correction")
def _std(
    self: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    return _made(aten.std.correction, ["std"], self, dim, correction=correction, keepdim=keepdim)


@composed("var_mean.correction")
def _var_mean(
    self: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    op, of = aten.var_mean.correction, ["var", "mean"]
    return _made(op, of, self, dim, correction=correction, keepdim=keepdim)


@composed("std_mean.correction")
def _std_mean(
    self: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    op, of = aten.std_mean.correction, ["std", "mean"]
    return _made(op, of, self, dim, correction=correction, keepdim=keepdim)


@composed("linalg_vector_norm")
def _vector_norm(
    self: torch.Tensor,
    ord: Any = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    served = self.dtype in _FLOATS and dtype in (None, self.dtype) and self.numel() > 0
    if not served or isinstance(ord, complex):
        return run_on_cpu(aten.linalg_vector_norm.default, self, ord, dim, keepdim, dtype=dtype)
    x, dims = wide(self), _dims(self, dim)
    if ord == 2:
        found = aten.sum.dim_IntList(x * x, dims, keepdim).sqrt()
    elif ord == 1:
        found = aten.sum.dim_IntList(x.abs(), dims, keepdim)
    elif ord == 0:
        found = aten.sum.dim_IntList(x.ne(0), dims, keepdim)
    elif math.isinf(ord):
        found = (aten.amax if ord > 0 else aten.amin).default(x.abs(), dims, keepdim)
    else:
        found = aten.sum.dim_IntList(x.abs().pow(ord), dims, keepdim).pow(1 / ord)
    return found.to(self.dtype)


@composed("native_group_norm_backward")
def _group_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: list[bool],
) -> tuple[torch.Tensor | None, ...]:
    shape = (N, group, C // group, HxW)
    g, x = wide(grad_out).reshape(shape), wide(input).reshape(shape)
    m, r = wide(mean).reshape(N, group, 1, 1), wide(rstd).reshape(N, group, 1, 1)
    normal = (x - m) * r
    kept = input.dtype if weight is None else weight.dtype
    made: list[torch.Tensor | None] = [None, None, None]
    if output_mask[0]:
        h = g if weight is None else g * wide(weight).view(1, group, C // group, 1)
        inner = h - h.mean((2, 3), True) - normal * (h * normal).mean((2, 3), True)
        made[0] = (inner * r).reshape(input.shape).to(input.dtype)
    if output_mask[1]:
        made[1] = (g * normal).sum((0, 3)).view(C).to(kept)
    if output_mask[2]:
        made[2] = g.sum((0, 3)).view(C).to(kept)
    return tuple(made)


@composed("addr")
def _addr(
    self: torch.Tensor, vec1: torch.Tensor, vec2: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    served = (
        self.dtype == vec1.dtype == vec2.dtype
        and self.dtype in _FLOATS
        and vec1.dim() == vec2.dim() == 1
        and not isinstance(beta, complex)
        and not isinstance(alpha, complex)
    )
    if not served:
        return run_on_cpu(aten.addr.default, self, vec1, vec2, beta=beta, alpha=alpha)
    # the CPU rounds the numbers and each step to the dtype, in this order
    beta, alpha = (torch.tensor(n, dtype=self.dtype).item() for n in (beta, alpha))
    product = (vec1 * alpha).unsqueeze(1) * vec2
    return product if beta == 0 else self * beta + product


@composed("div.Tensor_mode")
def _div(self: torch.Tensor, other: Any, *, rounding_mode: str | None) -> torch.Tensor:
    if not isinstance(other, torch.Tensor):
        return run_on_cpu(aten.div.Tensor_mode, self, other, rounding_mode=rounding_mode)
    floating = self.dtype in _FLOATS and other.dtype in _FLOATS
    if rounding_mode is None:
        return aten.div.Tensor(self, other)
    if rounding_mode == "floor" and floating:
        return aten.floor_divide.default(self, other)
    if rounding_mode == "trunc" and self.dtype == other.dtype and self.dtype in _FLOATS[:2]:
        return aten.div.Tensor(self, other).trunc_()
    return run_on_cpu(aten.div.Tensor_mode, self, other, rounding_mode=rounding_mode)


@composed("elu_backward")
def _elu_backward(
    grad_output: torch.Tensor,
    alpha: Any,
    scale: Any,
    input_scale: Any,
    is_result: bool,
    self_or_result: torch.Tensor,
) -> torch.Tensor:
    x, grad = wide(self_or_result), wide(grad_output)
    below = x + alpha * scale if is_result else torch.exp(x * input_scale) * (alpha * scale)
    found = torch.where(x <= 0, grad * input_scale * below, grad * scale)
    return found.to(self_or_result.dtype)


@composed("glu")
def _glu(self: torch.Tensor, dim: int = -1) -> torch.Tensor:
    if self.dim() == 0 or self.shape[dim] % 2 or self.dtype not in _FLOATS:
        return run_on_cpu(aten.glu.default, self, dim)
    a, b = self.chunk(2, dim)
    return (wide(a) * wide(b).sigmoid()).to(self.dtype)


@composed("glu_backward")
def _glu_backward(grad_output: torch.Tensor, self: torch.Tensor, dim: int) -> torch.Tensor:
    a, b = (wide(t) for t in self.chunk(2, dim))
    grad, s = wide(grad_output), b.sigmoid()
    return torch.cat([grad * s, grad * a * s * (1 - s)], dim).to(self.dtype)


@composed("log_sigmoid_forward")
def _log_sigmoid(self: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if self.dtype not in _FLOATS:
        return run_on_cpu(aten.log_sigmoid_forward.default, self)
    x = wide(self)
    found = x.clamp_max(0) - torch.log1p(torch.exp(-x.abs()))
    return found.to(self.dtype), self.new_empty(0)


@composed("log_sigmoid_backward")
def _log_sigmoid_backward(
    grad_output: torch.Tensor, self: torch.Tensor, buffer: torch.Tensor
) -> torch.Tensor:
    return (wide(grad_output) * torch.sigmoid(-wide(self))).to(self.dtype)


@composed("_prelu_kernel")
def _prelu(self: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.where(self > 0, self, self * weight)


@composed("_prelu_kernel_backward")
def _prelu_backward(
    grad_output: torch.Tensor, self: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    above = self > 0
    zero = torch.zeros((), dtype=self.dtype, device=self.device)
    of_weight = torch.where(above, zero, self * grad_output)
    return torch.where(above, grad_output, weight * grad_output), of_weight
