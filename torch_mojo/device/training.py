"""Fused optimizers and the negative log likelihood of the device: Python around kernels/torch/training.mojo."""

import ctypes
import math
from typing import Any

import torch

from torch_mojo.device.composed import composed
from torch_mojo.device.fallback import run_on_cpu
from torch_mojo.device.libraries import opened, words

aten = torch.ops.aten
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)  # as in training.mojo
_NONE = 0  # a loss that is not reduced


# fused optimizers


def _alike(tensors: list[torch.Tensor]) -> bool:
    """Tell whether elements at the same place in memory belong together, and nothing else lies between."""
    first = tensors[0]
    return first.dtype in _DTYPES and all(
        t.dtype == first.dtype
        and t.device == first.device
        and t.shape == first.shape
        and t.stride() == first.stride()
        and (t.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(t))
        for t in tensors
    )


def _scale(grad_scale: torch.Tensor | None) -> float:
    return 1.0 if grad_scale is None else grad_scale.item()


def _adam(op: torch._ops.OpOverload, decoupled: bool, *lists: Any, **given: Any) -> None:
    params, grads, means, squares, largest, steps = lists
    given["lr"] = given["lr"].item() if isinstance(given["lr"], torch.Tensor) else given["lr"]
    amsgrad = given["amsgrad"]
    groups = [params, grads, means, squares, *([largest] if amsgrad else [])]
    native = opened("training", op)
    if native is None or not all(_alike(list(each)) for each in zip(*groups, strict=True)):
        return run_on_cpu(op, *lists, **given)
    if given["found_inf"] is not None and given["found_inf"].item() == 1:
        return None
    scale, lr, beta1, beta2 = (
        _scale(given["grad_scale"]),
        *(given[n] for n in ("lr", "beta1", "beta2")),
    )
    for i, param in enumerate(params):
        step = steps[i].item()
        numbers = (ctypes.c_double * 8)(
            *(scale, lr, beta1, beta2, given["weight_decay"], given["eps"]),
            *(lr / (1 - beta1**step), math.sqrt(1 - beta2**step)),
        )
        native.tm_adam(
            words(
                *(_DTYPES.index(param.dtype), param.numel(), ctypes.addressof(numbers)),
                *(t.data_ptr() for t in (param, grads[i], means[i], squares[i])),
                largest[i].data_ptr() if amsgrad else 0,
                *(decoupled, given["maximize"], given["grad_scale"] is not None),
            )
        )


@composed("_fused_adam_", "_fused_adam_.tensor_lr")
def _fused_adam(*lists: Any, grad_scale: Any = None, found_inf: Any = None, **given: Any) -> None:
    given |= {"grad_scale": grad_scale, "found_inf": found_inf}
    return _adam(aten._fused_adam_.default, False, *lists, **given)


@composed("_fused_adamw_", "_fused_adamw_.tensor_lr")
def _fused_adamw(*lists: Any, grad_scale: Any = None, found_inf: Any = None, **given: Any) -> None:
    given |= {"grad_scale": grad_scale, "found_inf": found_inf}
    return _adam(aten._fused_adamw_.default, True, *lists, **given)


@composed("_fused_sgd_", "_fused_sgd_.tensor_lr")
def _fused_sgd(
    params: Any,
    grads: Any,
    momenta: Any,
    *,
    grad_scale: Any = None,
    found_inf: Any = None,
    **given: Any,
) -> None:
    given["lr"] = given["lr"].item() if isinstance(given["lr"], torch.Tensor) else given["lr"]
    op = aten._fused_sgd_.default
    groups = [params, grads, *([momenta] if momenta else [])]
    native = opened("training", op)
    if native is None or not all(_alike(list(each)) for each in zip(*groups, strict=True)):
        given |= {"grad_scale": grad_scale, "found_inf": found_inf}
        return run_on_cpu(op, params, grads, momenta, **given)
    if found_inf is not None and found_inf.item() == 1:
        return None
    names = ("lr", "momentum", "dampening", "weight_decay")
    numbers = (ctypes.c_double * 5)(_scale(grad_scale), *(given[n] for n in names))
    for i, param in enumerate(params):
        native.tm_sgd(
            words(
                *(_DTYPES.index(param.dtype), param.numel(), ctypes.addressof(numbers)),
                *(param.data_ptr(), grads[i].data_ptr(), momenta[i].data_ptr() if momenta else 0),
                *(0, given["is_first_step"], given["nesterov"], given["maximize"]),
                grad_scale is not None,
            )
        )


# negative log likelihood


def _nll_words(
    input: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None
) -> tuple[list[int], list[torch.Tensor]] | None:
    """Return the words that say what the classes are, and the tensors that they are addresses of."""
    batched = input.dim() > 1
    shape = (input.shape[0], *input.shape[2:]) if batched else ()
    plain = (
        input.dtype in _DTYPES
        and target.dtype == torch.int64
        and target.device == input.device
        and target.shape == shape
        and (weight is None or weight.dtype == input.dtype)
    )
    if not plain or input.numel() == 0:
        return None
    kept = [target.contiguous(), *([] if weight is None else [weight.contiguous()])]
    sizes = [input.shape[0] if batched else 1, input.shape[1 if batched else 0]]
    addresses = [t.data_ptr() for t in kept]
    return [*sizes, math.prod(input.shape[2:]), *addresses, *([0] * (2 - len(kept)))], kept


def _run_nll(function: Any, dtype: torch.dtype, target: torch.Tensor, *rest: int) -> None:
    wrong = function(words(_DTYPES.index(dtype), *rest))
    if wrong >= 0:
        raise IndexError(f"Target {target.reshape(-1)[wrong].item()} is out of bounds.")


@composed("nll_loss_forward", "nll_loss2d_forward")
def _nll_forward(
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    op = aten.nll_loss_forward.default if self.dim() < 3 else aten.nll_loss2d_forward.default
    given, native = _nll_words(self, target, weight), opened("training", op)
    if given is None or native is None:
        return run_on_cpu(op, self, target, weight, reduction, ignore_index)
    (batch, classes, rest, targets, weights), kept = given
    source = self.contiguous()
    out = self.new_empty(target.shape if reduction == _NONE else ())
    total = self.new_empty(())
    _run_nll(
        native.tm_nll,
        self.dtype,
        kept[0],
        *(batch, classes, rest, source.data_ptr(), targets, weights, ignore_index, reduction),
        *(out.data_ptr(), total.data_ptr()),
    )
    return out, total


@composed("nll_loss_backward", "nll_loss2d_backward")
def _nll_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> torch.Tensor:
    op = aten.nll_loss_backward.default if self.dim() < 3 else aten.nll_loss2d_backward.default
    given, native = _nll_words(self, target, weight), opened("training", op)
    if given is None or native is None or grad_output.dtype != self.dtype:
        numbers = (reduction, ignore_index, total_weight)
        return run_on_cpu(op, grad_output, self, target, weight, *numbers)
    (batch, classes, rest, targets, weights), kept = given
    grad = grad_output.contiguous()
    out = torch.zeros_like(self, memory_format=torch.contiguous_format)
    _run_nll(
        native.tm_nll_backward,
        self.dtype,
        kept[0],
        *(batch, classes, rest, grad.data_ptr(), targets, weights, ignore_index, reduction),
        *(out.data_ptr(), total_weight.data_ptr()),
    )
    return out
