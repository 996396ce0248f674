"""Losses, dropout and recurrent cells of the device, made of its other operators, each below autograd."""

import torch

from torch_mojo.device.composed import composed, wide
from torch_mojo.device.fallback import run_on_cpu

aten = torch.ops.aten
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_NONE, _MEAN = range(2)  # reductions; the third is the sum

# dropout: the numbers that the CPU draws


@composed("native_dropout")
def _dropout(
    input: torch.Tensor, p: float, train: bool | None
) -> tuple[torch.Tensor, torch.Tensor]:
    if train is False or input.numel() == 0:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    mask = torch.empty_like(input, dtype=torch.bool).bernoulli_(1 - p)
    return input * mask.to(input.dtype) * (0.0 if p == 1 else 1 / (1 - p)), mask


@composed("native_dropout_backward")
def _dropout_backward(grad_output: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    return grad_output * mask.to(grad_output.dtype) * scale


# losses of two tensors


def _reduced(loss: torch.Tensor, reduction: int, dtype: torch.dtype) -> torch.Tensor:
    if reduction != _NONE:
        loss = loss.mean() if reduction == _MEAN else loss.sum()
    return loss.to(dtype)


def _spread(grad: torch.Tensor, like: torch.Tensor, reduction: int) -> torch.Tensor:
    """Return the gradient of each element's loss."""
    return wide(grad) / like.numel() if reduction == _MEAN else wide(grad)


def _plain(*tensors: torch.Tensor | None) -> bool:
    found = [t for t in tensors if t is not None]
    return all(t.dtype == found[0].dtype and t.dtype in _FLOATS and t.numel() for t in found)


@composed("mse_loss")
def _mse(self: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN) -> torch.Tensor:
    if not _plain(self, target):
        return run_on_cpu(aten.mse_loss.default, self, target, reduction)
    difference = wide(self) - wide(target)
    return _reduced(difference * difference, reduction, self.dtype)


@composed("mse_loss_backward")
def _mse_backward(
    grad_output: torch.Tensor, self: torch.Tensor, target: torch.Tensor, reduction: int
) -> torch.Tensor:
    if not _plain(self, target):
        return run_on_cpu(aten.mse_loss_backward.default, grad_output, self, target, reduction)
    difference = (wide(self) - wide(target)) * 2
    return (difference * _spread(grad_output, difference, reduction)).to(self.dtype)


@composed("smooth_l1_loss")
def _smooth_l1(
    self: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN, beta: float = 1.0
) -> torch.Tensor:
    if not _plain(self, target):
        return run_on_cpu(aten.smooth_l1_loss.default, self, target, reduction, beta)
    z = (wide(self) - wide(target)).abs()
    loss = z if beta == 0 else torch.where(z < beta, z * z * (0.5 / beta), z - 0.5 * beta)
    return _reduced(loss, reduction, self.dtype)


@composed("smooth_l1_loss_backward")
def _smooth_l1_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    target: torch.Tensor,
    reduction: int,
    beta: float,
) -> torch.Tensor:
    if not _plain(self, target):
        op = aten.smooth_l1_loss_backward.default
        return run_on_cpu(op, grad_output, self, target, reduction, beta)
    d = wide(self) - wide(target)
    slope = d.sign() if beta == 0 else (d / beta).clamp(-1, 1)
    return (slope * _spread(grad_output, d, reduction)).to(self.dtype)


@composed("huber_loss")
def _huber(
    self: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN, delta: float = 1.0
) -> torch.Tensor:
    if not _plain(self, target) or delta <= 0:
        return run_on_cpu(aten.huber_loss.default, self, target, reduction, delta)
    z = (wide(self) - wide(target)).abs()
    loss = torch.where(z <= delta, z * z * 0.5, (z - 0.5 * delta) * delta)
    return _reduced(loss, reduction, self.dtype)


@composed("huber_loss_backward")
def _huber_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    target: torch.Tensor,
    reduction: int,
    delta: float,
) -> torch.Tensor:
    d = wide(self) - wide(target)
    return (d.clamp(-delta, delta) * _spread(grad_output, d, reduction)).to(self.dtype)


@composed("binary_cross_entropy_backward")
def _bce_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = _MEAN,
) -> torch.Tensor:
    x, y = wide(self), wide(target)
    slope = (x - y) / ((1 - x) * x).clamp_min(1e-12)
    slope = slope if weight is None else slope * wide(weight)
    return (slope * _spread(grad_output, slope, reduction)).to(self.dtype)


# cells, for which torch has kernels of accelerators only


@composed("_thnn_fused_lstm_cell")
def _lstm_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    cx: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:
    gates = wide(input_gates) + wide(hidden_gates)
    for bias in (input_bias, hidden_bias):
        gates = gates if bias is None else gates + wide(bias)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * wide(cx) + i * g
    workspace = torch.cat([i, f, g, o], 1).to(cx.dtype)
    return (o * cy.tanh()).to(cx.dtype), cy.to(cx.dtype), workspace


@composed("_thnn_fused_lstm_cell_backward_impl")
def _lstm_cell_backward(
    grad_hy: torch.Tensor | None,
    grad_cy: torch.Tensor | None,
    cx: torch.Tensor,
    cy: torch.Tensor,
    workspace: torch.Tensor,
    has_bias: bool,
) -> tuple[torch.Tensor | None, ...]:
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = wide(workspace).chunk(4, 1)
    t = wide(cy).tanh()
    grad_h = torch.zeros_like(t) if grad_hy is None else wide(grad_hy)
    grad_c = grad_h * o * (1 - t * t)
    grad_c = grad_c if grad_cy is None else grad_c + wide(grad_cy)
    slopes = (
        grad_c * g * i * (1 - i),
        grad_c * wide(cx) * f * (1 - f),
        grad_c * i * (1 - g * g),
        grad_h * t * o * (1 - o),
    )
    grads = torch.cat(slopes, 1)
    bias = grads.sum(0).to(cx.dtype) if has_bias else None
    return grads.to(cx.dtype), (grad_c * f).to(cx.dtype), bias


@composed("_thnn_fused_gru_cell")
def _gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hx: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = wide(input_gates), wide(hidden_gates)
    a = a if input_bias is None else a + wide(input_bias)
    b = b if hidden_bias is None else b + wide(hidden_bias)
    (ar, az, an), (br, bz, bn) = a.chunk(3, 1), b.chunk(3, 1)
    r, z, h = (ar + br).sigmoid(), (az + bz).sigmoid(), wide(hx)
    n = (an + r * bn).tanh()
    workspace = torch.cat([r, z, n, h.expand_as(n), bn], 1).to(hx.dtype)
    return (n + z * (h - n)).to(hx.dtype), workspace


@composed("_thnn_fused_gru_cell_backward")
def _gru_cell_backward(
    grad_hy: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor | None, ...]:
    dtype, grad = workspace.dtype, wide(grad_hy)
    r, z, n, h, bn = wide(workspace).chunk(5, 1)
    of_z = grad * (h - n) * z * (1 - z)
    of_n = grad * (1 - z) * (1 - n * n)
    of_r = of_n * bn * r * (1 - r)
    of_input = torch.cat([of_r, of_z, of_n], 1)
    of_hidden = torch.cat([of_r, of_z, of_n * r], 1)
    biases = [g.sum(0).to(dtype) if has_bias else None for g in (of_input, of_hidden)]
    return of_input.to(dtype), of_hidden.to(dtype), (grad * z).to(dtype), *biases
