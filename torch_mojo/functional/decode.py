"""Attention while decoding: one query token against a cache."""

import math

import torch

from torch_mojo.devices import on_host
from torch_mojo.dtypes import accumulated
from torch_mojo.functional.builtin import LOWER, composition, kernel

_TASKS = {"cpu": 16, "cuda": 256}  # below so many, sequences are cut into spans
_HALVED = {
    "cuda": 1024
}  # below so many, they are cut in two, so that the last ones to run are short
_SPAN = {"cpu": 256, "cuda": 64}  # positions that are worth a span of their own


@kernel(file="decode_attention", autocast=LOWER)
def decode_attention_forward(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    splits: int,
    head_dim: int,
    group: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what `decode_attention` returns, and the memory in which the spans of a sequence met.

    Args:
        query, key_cache, value_cache, lengths: as for `decode_attention`.
        scale: what scores are multiplied with.
        splits: into how many spans a sequence is cut, 0 for none.
        head_dim: the size of query's last dimension.
        group: heads of query for each head of the caches.
    """
    b, h, d = query.shape
    wide = accumulated(query.dtype)
    return (
        query.new_empty((b, h, d)),
        query.new_empty((b, h, splits, d), dtype=wide),
        query.new_empty((b, h, splits, 2), dtype=wide),
    )


def _check(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, lengths: torch.Tensor
) -> None:
    """Refuse shapes and dtypes that do not fit."""

    def shapes() -> str:
        found = f"query has shape {tuple(query.shape)}, key_cache {tuple(key_cache.shape)}, "
        return f"{found}value_cache {tuple(value_cache.shape)}, lengths {tuple(lengths.shape)}"

    if query.dim() != 3 or key_cache.dim() != 4 or lengths.dim() != 1:
        raise ValueError(
            f"[mojo::decode_attention] {shapes()}.\n"
            "Pass (batch, heads, head_dim), (batch, kv_heads, max_len, head_dim) twice and (batch,)."
        )
    batch, heads, size = query.shape
    kv_heads = key_cache.shape[1]
    if (
        key_cache.shape != value_cache.shape
        or key_cache.shape[0] != batch
        or key_cache.shape[3] != size
        or lengths.shape[0] != batch
        or size == 0
        or (heads != 0 if kv_heads == 0 else heads % kv_heads != 0)
    ):
        raise ValueError(
            f"[mojo::decode_attention] {shapes()}.\n"
            "Let batch and head_dim be the same in all, and heads a multiple of kv_heads."
        )
    if lengths.dtype not in (torch.int32, torch.int64):
        raise TypeError(
            f"[mojo::decode_attention] lengths has dtype {lengths.dtype}.\n"
            "Convert it to int32 or int64."
        )


@composition
def decode_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    lengths: torch.Tensor,
    *,
    scale: float | None = None,
) -> torch.Tensor:
    """Return the attention of one query token for each sequence to the first `lengths` positions of its cache.

    Args:
        query: (batch, heads, head_dim), floating-point.
        key_cache, value_cache: (batch, kv_heads, max_len, head_dim), of query's dtype, with any strides: a cache
            (batch, max_len, kv_heads, head_dim) is passed as `cache.transpose(1, 2)`. heads is a multiple of
            kv_heads, and neighbouring heads share one of the cache, as `enable_gqa` has it.
        lengths: (batch,), int32 or int64: how many positions count. Those at and after it are not read; a length
            beyond max_len counts as max_len, one below 0 as 0.
        scale: what scores are multiplied with; default 1/sqrt(head_dim).

    Returns:
        (batch, heads, head_dim); zeros for a length of 0. Accumulated in float32 (float64 for float64). There is
        no gradient: this is for inference.

    Raises:
        ValueError: if the shapes do not fit. TypeError: if lengths has another dtype.
    """
    _check(query, key_cache, value_cache, lengths)
    kv_heads, capacity, size = key_cache.shape[1:]
    pairs = max(query.shape[0] * kv_heads, 1)
    kind = "cpu" if on_host(query.device) else query.device.type
    splits = max(_TASKS.get(kind, 16) // pairs, 2 if pairs < _HALVED.get(kind, 0) else 0)
    splits = min(splits, capacity // _SPAN.get(kind, 256))
    found, _, _ = decode_attention_forward(
        query,
        key_cache,
        value_cache,
        lengths,
        1 / math.sqrt(size) if scale is None else scale,
        splits if splits > 1 else 0,
        size,
        query.shape[1] // max(kv_heads, 1),
    )
    return found
