"""torch's attention operators as the built-in attention kernel."""

from __future__ import annotations

import math

import torch

from torch_mojo.aten.rules import Rules
from torch_mojo.devices import on_host
from torch_mojo.functional.attention import attention_backward, attention_forward

aten = torch.ops.aten
RULES = Rules()


def _served(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, p: float) -> bool:
    kinds = (torch.bool, torch.float32, query.dtype)
    return (
        p == 0
        and on_host(query.device)
        and query.dim() == 4
        and query.shape[:2] == key.shape[:2]
        and (mask is None or (mask.dtype in kinds and mask.dim() <= 4))
    )


def _mask(mask: torch.Tensor | None) -> torch.Tensor | None:
    if mask is None:
        return None
    mask = mask.view(torch.uint8) if mask.dtype == torch.bool else mask
    return mask[(None,) * (4 - mask.dim())]


def _factor(query: torch.Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _laid_out_as(t: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return (B, H, L, E) in the order in memory that torch's kernel gives it: that of the argument."""
    if like.is_contiguous() or not like.transpose(1, 2).is_contiguous():
        return t
    return t.transpose(1, 2).contiguous().transpose(1, 2)


@RULES.add(aten._scaled_dot_product_flash_attention_for_cpu.default)
def forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return attention and the logarithm of the sums of its weights."""
    if not _served(query, key, attn_mask, dropout_p):
        return NotImplemented
    found, levels = attention_forward(
        query, key, value, _mask(attn_mask), None, int(is_causal), _factor(query, scale), 1.0, 0
    )
    return _laid_out_as(found, query), levels


@RULES.add(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """Return the gradients of query, key and value."""
    if not _served(query, key, attn_mask, dropout_p):
        return NotImplemented
    found = attention_backward(
        grad_out,
        query,
        key,
        value,
        out,
        logsumexp,
        _mask(attn_mask),
        None,
        int(is_causal),
        _factor(query, scale),
        1.0,
        0,
    )
    return tuple(_laid_out_as(f, t) for f, t in zip(found, (query, key, value), strict=False))
