"""Scaled dot-product attention."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_mojo.batching import batch_first
from torch_mojo.devices import on_host
from torch_mojo.dtypes import accumulated
from torch_mojo.functional.builtin import LOWER, composition, kernel


@kernel(file="attention", autocast=LOWER)
def attention_forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    keep: torch.Tensor | None,
    causal: int,
    scale: float,
    keep_scale: float,
    room: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return softmax(query key^T * scale + mask) value, without holding the weights.

    Args:
        query: (batch, heads, L, E). key: (batch, kv_heads, S, E). value: (batch, kv_heads, S, Ev). heads is a
            multiple of kv_heads; neighbouring heads share one.
        mask: (batch, heads, L, S) or 1 for each of these, floating-point to be added, or uint8, where 0 hides a score.
        keep: (batch, heads, L, S), by which the weights are multiplied.
        causal: not 0 to hide keys after the query's own position.
        scale: what scores are multiplied with. keep_scale: what keep is multiplied with.
        room: features that a tile on a GPU has place for, at least E and Ev; 0 on the CPU.

    Returns:
        (batch, heads, L, Ev), zeros where all is hidden; and (batch, heads, L), the logarithm of the sum of the
        exponentials of each row of scores, in float32 (float64 for float64), infinity where all is hidden.

    Source: FlashAttention (Dao et al., 2022); float32 (float64) accumulation.
    """
    wide = accumulated(query.dtype)
    b, h, length, _ = query.shape
    return (
        query.new_empty((b, h, length, value.shape[3])),
        query.new_empty((b, h, length), dtype=wide),
    )


@kernel(file="attention")
def attention_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    result: torch.Tensor,
    logsumexp: torch.Tensor,
    mask: torch.Tensor | None,
    keep: torch.Tensor | None,
    causal: int,
    scale: float,
    keep_scale: float,
    room: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of query, key and value, computing the weights again from `logsumexp`.

    Args:
        grad: of the output, (batch, heads, L, Ev).
        result, logsumexp: what `attention_forward` returned for the other arguments.

    Returns:
        the three gradients, and (batch, heads, L): the sum of grad * result over each row. Deterministic.
    """
    return (
        query.new_empty(query.shape),
        key.new_empty(key.shape),
        value.new_empty(value.shape),
        logsumexp.new_empty(logsumexp.shape),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    query, key, value, mask, keep, *ctx.numbers = inputs
    ctx.save_for_backward(query, key, value, *output, mask, keep)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: torch.Tensor | None, _: object) -> tuple[torch.Tensor | None, ...]:
    if grad is None:
        return (None,) * 9
    found = attention_backward(grad, *ctx.saved_tensors, *ctx.numbers)
    needed = ctx.needs_input_grad
    return (*(g if n else None for g, n in zip(found[:3], needed, strict=False)), *[None] * 6)


attention_forward.register_autograd(_backward, setup_context=_save)


def _folded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a vmap rule: a batch joins the batch that all tensors begin with."""

    def rule(info: Any, in_dims: Sequence[Any], *args: Any) -> tuple[Any, Any]:
        given = []
        for value, dim in zip(args, in_dims, strict=True):
            if isinstance(value, torch.Tensor):
                value = batch_first(value, dim, info.batch_size).flatten(0, 1)
            given.append(value)
        found = function(*given)
        return tuple(f.unflatten(0, (info.batch_size, -1)) for f in found), (0,) * len(found)

    return rule


attention_forward.register_vmap(_folded(attention_forward))
attention_backward.register_vmap(_folded(attention_backward))


def _shapes(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> str:
    return (
        f"query has shape {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    )


def _check(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
) -> None:
    """Refuse what torch refuses."""
    name = "[mojo::scaled_dot_product_attention]"
    if min(query.dim(), key.dim(), value.dim()) < 2:
        raise ValueError(
            f"{name} {_shapes(query, key, value)}.\nPass at least two dimensions: (..., L, E)."
        )
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"{name} {_shapes(query, key, value)}.\nLet query and key have the same last dimension, key and value the"
            " same one before it."
        )
    same = query.dtype == key.dtype == value.dtype or torch.is_autocast_enabled(query.device.type)
    if not same or not query.is_floating_point():
        raise TypeError(
            f"{name} query has dtype {query.dtype}, key {key.dtype}, value {value.dtype}.\n"
            "Convert them to one floating-point dtype."
        )
    if attn_mask is not None and is_causal:
        raise ValueError(f"{name} attn_mask and is_causal are both given.\nPass one of them.")
    if attn_mask is not None and attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
        raise TypeError(
            f"{name} attn_mask has dtype {attn_mask.dtype}, query {query.dtype}.\n"
            "Convert attn_mask to bool, float32, or query's dtype."
        )
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"{name} dropout_p is {dropout_p}.\nPass a number from 0 to 1.")


def _heads(t: torch.Tensor) -> int:
    return t.shape[-3] if t.dim() > 2 else 1


def _four(t: torch.Tensor, batch: Sequence[int], heads: int) -> torch.Tensor:
    """Expand to (*batch, heads) leading dimensions and make those before heads one."""
    t = t.expand(*batch, heads, *t.shape[-2:])
    return t if t.dim() == 4 else t.reshape(math.prod(batch), heads, *t.shape[-2:])


def _room(query: torch.Tensor, value: torch.Tensor) -> int | None:
    """Return the size of a tile's rows on a GPU, 0 on the CPU, None if the features do not fit."""
    if on_host(query.device):
        return 0
    size = max(query.shape[-1], value.shape[-1])
    if size <= 64:
        return 64
    return 128 if size <= 128 and query.dtype != torch.float64 else None


def _composed(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    keep: torch.Tensor | None,
    causal: bool,
    scale: float,
) -> torch.Tensor:
    """Return attention in torch's operators, which have a gradient for the mask."""
    group = query.shape[1] // key.shape[1]
    if group > 1:
        key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.mT * scale
    if causal:
        hidden = scores.new_ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    if mask is not None:
        hides = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -math.inf) if hides else scores + mask
    weights = torch.softmax(scores, -1)
    weights = weights.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0)
    weights = weights if keep is None else weights * keep
    return weights.to(value.dtype) @ value


@composition
def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Return `softmax(query @ key.mT * scale + attn_mask) @ value`, as `torch.nn.functional` has it.

    Args:
        query: (..., H, L, E), floating-point. key: (..., Hk, S, E). value: (..., Hk, S, Ev). Leading dimensions
            broadcast; with two dimensions there is one head.
        attn_mask: broadcastable to (..., H, L, S): bool, where False hides a score, or floating-point, which is
            added. One that requires a gradient makes torch's operators compute it all, with the whole matrix.
        dropout_p: probability of dropping a weight. The mask is drawn with torch's generator as torch's CPU path
            draws it: the same seed gives the same result.
        is_causal: hide keys after the query's own position, counted from the top left.
        scale: what scores are multiplied with; default 1/sqrt(E).
        enable_gqa: let Hk divide H: neighbouring heads of query share one of key and value.

    Returns:
        (..., H, L, Ev), contiguous, of query's dtype; zeros where all scores of a row are hidden. Weights are
        never held as a matrix, in either direction, but for dropout's mask. Second derivatives are not there.

    Raises:
        ValueError, TypeError: for what torch refuses.
    """
    _check(query, key, value, attn_mask, dropout_p, is_causal)
    factor = 1 / math.sqrt(query.shape[-1] or 1) if scale is None else scale
    room = _room(query, value)
    plain = query.dim() == 4 and query.shape[:2] == key.shape[:2] == value.shape[:2]
    if plain and attn_mask is None and dropout_p == 0 and room is not None:
        return attention_forward(query, key, value, None, None, int(is_causal), factor, 1.0, room)[
            0
        ]
    heads = _heads(query)
    kv_heads = _heads(key)
    if enable_gqa and (kv_heads != heads or _heads(value) != heads):
        if kv_heads == 0 or heads % kv_heads != 0 or _heads(value) != kv_heads:
            raise ValueError(
                f"[mojo::scaled_dot_product_attention] query has {heads} heads, key {kv_heads}, value"
                f" {_heads(value)}.\nLet key and value have the same number, a divisor of query's."
            )
    else:
        heads = kv_heads = torch.broadcast_shapes((heads,), (kv_heads,), (_heads(value),))[0]
    batch = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    ranks = max(query.dim(), key.dim(), value.dim())
    lead = batch or (1,)
    q, k, v = _four(query, lead, heads), _four(key, lead, kv_heads), _four(value, lead, kv_heads)
    length, keys = query.shape[-2], key.shape[-2]
    mask = None
    if attn_mask is not None:
        mask = attn_mask.expand(*lead, heads, length, keys)
        mask = mask if mask.dim() == 4 else mask.reshape(-1, heads, length, keys)
    keep = None
    keep_scale = 1.0
    if dropout_p > 0:
        keep_scale = 1 / (1 - dropout_p) if dropout_p < 1 else 0.0
        keep = q.new_empty((q.shape[0], heads, length, keys)).bernoulli_(1 - dropout_p)
    differentiable = mask is not None and mask.requires_grad and torch.is_grad_enabled()
    if differentiable or room is None:
        scaled = None if keep is None else keep * keep_scale
        found = _composed(q, k, v, mask, scaled, is_causal, factor)
    else:
        if mask is not None and mask.dtype == torch.bool:
            mask = mask.view(torch.uint8)
        found, _ = attention_forward(q, k, v, mask, keep, int(is_causal), factor, keep_scale, room)
    if ranks == 2:
        return found[0, 0]
    return found[0] if ranks == 3 else found.reshape(*batch, heads, length, value.shape[-1])
