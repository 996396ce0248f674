"""torch's attention on the device: the built-in kernel, where it serves the call, else torch's composition."""

from typing import Any

import torch

from torch_mojo.device.composed import by_rule, composed

aten = torch.ops.aten
_FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
_BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def _served(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
) -> bool:
    return (
        dropout_p == 0
        and query.dim() == key.dim() == value.dim() == 4
        and query.dtype == key.dtype == value.dtype
        and query.dtype in _DTYPES
        and query.shape[:2] == key.shape[:2] == value.shape[:2]
        and query.shape[3] == key.shape[3] == value.shape[3]
        and key.shape[2] == value.shape[2]
        and min(query.numel(), key.numel()) > 0
        and (
            attn_mask is None
            or (
                not is_causal
                and attn_mask.dim() in (2, 4)
                and not (attn_mask.requires_grad and torch.is_grad_enabled())
            )
        )
    )


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Return attention by the kernel, whose gradients torch knows, or as torch composes it."""
    if _served(query, key, value, attn_mask, dropout_p, is_causal):
        found = aten._scaled_dot_product_fused_attention_overrideable.default(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale
        )
        return found[0]
    return aten.scaled_dot_product_attention.default.decompose(
        query,
        *(key, value, attn_mask, dropout_p, is_causal),
        scale=scale,
        enable_gqa=enable_gqa,
    )


@composed("_scaled_dot_product_fused_attention_overrideable")
def _forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    out, levels = by_rule(
        _FORWARD, query, key, value, dropout_p, is_causal, attn_mask=attn_bias, scale=scale
    )
    none = torch.empty(0, dtype=torch.int64, device=query.device)
    return out, levels, none, none, query.shape[2], key.shape[2], none, none, none


@composed("_scaled_dot_product_fused_attention_overrideable_backward")
def _backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    grad_input_mask: list[bool],
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: torch.Tensor,
    cum_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: torch.Tensor,
    philox_offset: torch.Tensor,
    *,
    scale: float | None = None,
) -> tuple[torch.Tensor | None, ...]:
    grads = by_rule(
        _BACKWARD,
        *(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal),
        attn_mask=attn_bias,
        scale=scale,
    )
    return *grads, None
