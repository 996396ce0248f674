"""ATen operators that Python makes of other native ones, each below autograd."""

from collections.abc import Callable
from typing import Any

import torch

from torch_mojo import torch_private
from torch_mojo.aten.decompositions import DECOMPOSITIONS
from torch_mojo.aten.rules import HALVES
from torch_mojo.device.fallback import not_built, printing, run_on_cpu
from torch_mojo.device.rows import ROWS
from torch_mojo.errors import NotBuiltError

aten = torch.ops.aten
_library = torch.library.Library("aten", "IMPL")
COMPOSED: dict[str, Callable[..., Any]] = {}


def composed(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that files a function as the device's kernel of operators."""

    def file(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            assert name not in COMPOSED, name
            COMPOSED[name] = function
        return function

    return file


def file_with_forms(overload: torch._ops.OpOverload, function: Callable[..., Any]) -> None:
    """File a function as an operator, and what its `out` and in-place forms make of it."""
    composed(torch_private.overload_name(overload))(function)
    for other, outs in torch_private.forms(overload):
        other_name = torch_private.overload_name(other)
        if other_name in COMPOSED:
            continue
        if outs:
            composed(other_name)(_into(function, outs))
        elif not torch_private.is_structured(other.name()):
            composed(other_name)(_in_place(function))


def _into(function: Callable[..., Any], outs: list[str]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        given = [kwargs.pop(n) for n in outs]
        made = function(*args, **kwargs)
        made = made if isinstance(made, tuple) else (made,)
        for out, result in zip(given, made, strict=True):
            torch_private.resized_output(out, result.shape).copy_(result)
        return given[0] if len(given) == 1 else tuple(given)

    return run


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.copy_(function(self, *args, **kwargs))

    return run


def wide(t: Any) -> Any:
    """Return a tensor or None, halves as float32."""
    return t.float() if t is not None and t.dtype in HALVES else t


def register() -> None:
    """Register all of them, and every decomposition into `mojo_aten::*` kernels."""
    from torch_mojo.device import (
        attention,
        decomposed,
        losses,
        places,
        ranges,
        statistics,
        training,
    )

    assert (
        attention and losses and places and ranges and statistics and training
    )  # they file theirs
    decomposed.register()
    for overload in DECOMPOSITIONS:
        if _by_kernels(overload):
            file_with_forms(overload, _ruled(overload))
    for name, function in COMPOSED.items():
        _library.impl(name, function, "PrivateUse1")
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        _library.impl("scaled_dot_product_attention", attention.attention, key)


def _by_kernels(overload: torch._ops.OpOverload) -> bool:
    """Tell whether an operator is one that a backend implements, and none that the device has already."""
    name = torch_private.overload_name(overload)
    packet = name.partition(".")[0]
    own = ("copy", *(row.name.partition(".")[0] for row in ROWS))
    if packet in own or packet.startswith("as_strided"):
        return False
    return name not in COMPOSED and not torch_private.is_composite(overload)


def _ruled(overload: torch._ops.OpOverload) -> Callable[..., Any]:
    return lambda *args, **kwargs: by_rule(overload, *args, **kwargs)


def by_rule(overload: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Run an operator by its decomposition, or on the CPU if that does not take the call."""
    return attempt(overload, DECOMPOSITIONS[overload], *args, **kwargs)


def attempt(
    overload: torch._ops.OpOverload, rule: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Run an operator by a rule, or on the CPU if the rule returns NotImplemented or its kernels are not built."""
    found = NotImplemented
    if not printing():
        try:
            found = rule(*args, **kwargs)
        except NotBuiltError:
            not_built(overload)
    return run_on_cpu(overload, *args, **kwargs) if found is NotImplemented else found


def _all(self: torch.Tensor) -> list[int]:
    return list(range(self.dim()))


@composed("max")
def _max(self: torch.Tensor) -> torch.Tensor:
    return aten.amax.default(self, _all(self))


@composed("min")
def _min(self: torch.Tensor) -> torch.Tensor:
    return aten.amin.default(self, _all(self))


@composed("max.dim")
def _max_dim(self: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, ...]:
    if self.dtype == torch.bool:
        return run_on_cpu(aten.max.dim, self, dim, keepdim)
    return aten.amax.default(self, [dim], keepdim), aten.argmax.default(self, dim, keepdim)


@composed("min.dim")
def _min_dim(self: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, ...]:
    if self.dtype == torch.bool:
        return run_on_cpu(aten.min.dim, self, dim, keepdim)
    return aten.amin.default(self, [dim], keepdim), aten.argmin.default(self, dim, keepdim)


@composed("masked_fill_.Scalar")
def _masked_fill(self: torch.Tensor, mask: torch.Tensor, value: Any) -> torch.Tensor:
    number = torch.full((), value, dtype=self.dtype, device=self.device)
    return aten.where.self_out(mask, number, self, out=self)


@composed("masked_fill_.Tensor")
def _masked_fill_tensor(
    self: torch.Tensor, mask: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    return aten.where.self_out(mask, value.to(self.device, self.dtype), self, out=self)


# softmax


@composed("_softmax")
def _softmax(self: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    x = self.float() if half_to_float else self
    if x.numel() == 0:
        return torch.empty_like(x)
    wide = x.float() if x.dtype in HALVES else x
    e = torch.exp(wide - aten.amax.default(wide, [dim], True))
    return (e / aten.sum.dim_IntList(e, [dim], True)).to(x.dtype)


@composed("_log_softmax")
def _log_softmax(self: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    x = self.float() if half_to_float else self
    if x.numel() == 0:
        return torch.empty_like(x)
    wide = x.float() if x.dtype in HALVES else x
    shifted = wide - aten.amax.default(wide, [dim], True)
    return (shifted - torch.log(aten.sum.dim_IntList(torch.exp(shifted), [dim], True))).to(x.dtype)


@composed("_softmax_backward_data")
def _softmax_backward(
    grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    y, grad = wide(output), wide(grad_output)
    g = grad * y
    return (g - y * aten.sum.dim_IntList(g, [dim], True)).to(input_dtype)


@composed("_log_softmax_backward_data")
def _log_softmax_backward(
    grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    y, grad = wide(output), wide(grad_output)
    return (grad - torch.exp(y) * aten.sum.dim_IntList(grad, [dim], True)).to(input_dtype)


# norms, in float32 for the halves


def _stats(input: torch.Tensor, weight: torch.Tensor | None) -> torch.dtype:
    """Return the dtype of saved means and deviations: the parameters'."""
    return input.dtype if weight is None else weight.dtype


def _scaled(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> torch.Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@composed("native_layer_norm")
def _layer_norm(
    input: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    if list(input.shape[dims[0] :]) != list(normalized_shape):
        raise RuntimeError(
            f"Given normalized_shape={list(normalized_shape)}, expected input with shape "
            f"[*, {', '.join(map(str, normalized_shape))}], but got input of size {list(input.shape)}"
        )
    x = wide(input)
    mean = aten.mean.dim(x, dims, True)
    centered = x - mean
    rstd = torch.rsqrt(aten.mean.dim(centered * centered, dims, True) + eps)
    out = _scaled(centered * rstd, wide(weight), wide(bias))
    kept = _stats(input, weight)
    return out.to(input.dtype).contiguous(), mean.to(kept), rstd.to(kept)


@composed("native_layer_norm_backward")
def _layer_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    normalized_shape: list[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    output_mask: list[bool],
) -> tuple[torch.Tensor | None, ...]:
    first = input.dim() - len(normalized_shape)
    dims, batch = list(range(first, input.dim())), list(range(first))
    g, x = wide(grad_out), wide(input)
    assert g is not None and x is not None
    mean, rstd = wide(mean), wide(rstd)
    normal = (x - mean) * rstd
    made: list[torch.Tensor | None] = [None, None, None]
    if output_mask[0]:
        h = g if weight is None else g * wide(weight)
        inner = h - aten.mean.dim(h, dims, True) - normal * aten.mean.dim(h * normal, dims, True)
        made[0] = (inner * rstd).to(input.dtype)
    if output_mask[1] and weight is not None:
        whole = g * normal
        made[1] = (aten.sum.dim_IntList(whole, batch) if batch else whole).to(weight.dtype)
    if output_mask[2] and bias is not None:
        made[2] = (aten.sum.dim_IntList(g, batch) if batch else g).to(bias.dtype)
    return tuple(made)


def _channels(t: torch.Tensor | None, like: torch.Tensor) -> Any:
    """Return what there is for each channel so that it broadcasts over (N, C, ...)."""
    return None if t is None else wide(t).view(1, -1, *[1] * (like.dim() - 2))


@composed("native_group_norm")
def _group_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    x = wide(input)
    x = x.reshape(N, group, C // group * HxW)
    mean = aten.mean.dim(x, [2], True)
    centered = x - mean
    rstd = torch.rsqrt(aten.mean.dim(centered * centered, [2], True) + eps)
    normal = (centered * rstd).view(input.shape)
    out = _scaled(normal, _channels(weight, normal), _channels(bias, normal)).to(input.dtype)
    kept = _stats(input, weight)
    return out, mean.view(N, group).to(kept), rstd.view(N, group).to(kept)


@composed("native_batch_norm")
def _batch_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, ...]:
    dims = [0, *range(2, input.dim())]
    x = wide(input)
    if not training:
        assert running_mean is not None and running_var is not None
        rstd = torch.rsqrt(_channels(running_var, x) + eps)
        out = _scaled(
            (x - _channels(running_mean, x)) * rstd, _channels(weight, x), _channels(bias, x)
        )
        empty = torch.empty(0, dtype=_stats(input, weight), device=x.device)
        return out.to(input.dtype), empty, torch.empty_like(empty)
    mean = aten.mean.dim(x, dims, True)
    centered = x - mean
    var = aten.mean.dim(centered * centered, dims, True)
    rstd = torch.rsqrt(var + eps)
    out = _scaled(centered * rstd, _channels(weight, x), _channels(bias, x))
    count = x.numel() // max(x.shape[1], 1)
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(mean.view(-1).to(running_mean.dtype), alpha=momentum)
    if running_var is not None:
        unbiased = var.view(-1) * (count / max(count - 1, 1))
        running_var.mul_(1 - momentum).add_(unbiased.to(running_var.dtype), alpha=momentum)
    kept = _stats(input, weight)
    return out.to(input.dtype), mean.view(-1).to(kept), rstd.view(-1).to(kept)


@composed("native_batch_norm_backward")
def _batch_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    save_mean: torch.Tensor | None,
    save_invstd: torch.Tensor | None,
    train: bool,
    eps: float,
    output_mask: list[bool],
) -> tuple[torch.Tensor | None, ...]:
    dims = [0, *range(2, input.dim())]
    g, x = wide(grad_out), wide(input)
    mean = _channels(save_mean if train else running_mean, x)
    rstd = _channels(save_invstd, x) if train else torch.rsqrt(_channels(running_var, x) + eps)
    normal = (x - mean) * rstd
    total = aten.sum.dim_IntList(g, dims, True)
    dot = aten.sum.dim_IntList(g * normal, dims, True)
    made: list[torch.Tensor | None] = [None, None, None]
    if output_mask[0]:
        count = x.numel() // max(x.shape[1], 1)
        inner = g - (total + normal * dot) / count if train else g
        scale = rstd if weight is None else rstd * _channels(weight, x)
        made[0] = (inner * scale).to(input.dtype)
    if output_mask[1]:
        made[1] = dot.view(-1).to(input.dtype if weight is None else weight.dtype)
    if output_mask[2]:
        made[2] = total.view(-1).to(input.dtype if weight is None else weight.dtype)
    return tuple(made)


# pieces put together


def _channels_last(t: torch.Tensor) -> bool:
    """Tell whether torch may give what is made of a tensor its channels in the last place in memory."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.dim() in formats and t.is_contiguous(memory_format=formats[t.dim()])


@composed("cat")
def _cat(tensors: list[torch.Tensor], dim: int = 0) -> torch.Tensor:
    parts = [t for t in tensors if t.shape != (0,)]
    first = parts[0] if parts else tensors[0]
    rank = first.dim()
    dim = dim + rank if dim < 0 else dim
    others = [i for i in range(rank) if i != dim]
    plain = all(
        t.device == first.device
        and t.dtype == tensors[0].dtype
        and t.dim() == rank
        and all(t.shape[i] == first.shape[i] for i in others)
        and (t.is_contiguous() or not _channels_last(t))
        for t in parts
    )
    if not plain or not parts or not 0 <= dim < rank:
        return run_on_cpu(aten.cat.default, tensors, dim)
    shape = list(first.shape)
    shape[dim] = sum(t.shape[dim] for t in parts)
    out = torch.empty(shape, dtype=first.dtype, device=first.device)
    at = 0
    for t in parts:
        out.narrow(dim, at, t.shape[dim]).copy_(t)
        at += t.shape[dim]
    return out


@composed("dot")
def _dot(self: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    plain = self.dim() == tensor.dim() == 1 and self.shape == tensor.shape
    if not plain or self.dtype != tensor.dtype or self.is_complex():
        return run_on_cpu(aten.dot.default, self, tensor)
    return aten.sum.default(self * tensor, dtype=self.dtype)


@composed("convolution_overrideable")
def _convolution(*args: Any) -> torch.Tensor:
    return by_rule(aten.convolution.default, *args)


@composed("convolution_backward_overrideable")
def _convolution_backward(
    grad_output: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, *numbers: Any
) -> tuple[torch.Tensor | None, ...]:
    sizes = [weight.shape[1] * numbers[5] if numbers[3] else weight.shape[0]]
    return by_rule(aten.convolution_backward.default, grad_output, input, weight, sizes, *numbers)
