"""Decompositions of embedding bags: rows of a table, added up or averaged in groups."""

from typing import Any

import torch

from torch_mojo.aten.rules import Rules, served

aten = torch.ops.aten
RULES = Rules()
_SUM, _MEAN = 0, 1


@RULES.add(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Return the bags, the bag of each index, the number of indices in each bag, and an unused tensor.

    The last three are what torch's own gradient takes; their shapes are those of its fake implementation.
    """
    del scale_grad_by_freq, sparse
    bags: Any = offsets.shape[0] - int(include_last_offset)
    if mode not in (_SUM, _MEAN) or not served(weight) or weight.dtype == torch.float64:
        return NotImplemented
    places = torch.arange(indices.shape[0], dtype=offsets.dtype, device=offsets.device)
    bag = aten.searchsorted.Tensor(offsets[:bags], places, right=True) - 1
    # added up in float32, as torch does
    rows = aten.index_select(weight, 0, indices).float()
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.float().unsqueeze(1)
    counted = torch.ones_like(indices)
    if padding_idx >= 0:
        kept = indices != padding_idx
        rows = torch.where(kept.unsqueeze(1), rows, 0.0)
        counted = kept.to(indices.dtype)
    total = aten.index_add(rows.new_zeros([bags, weight.shape[1]]), 0, bag, rows)
    size = aten.index_add(indices.new_zeros([bags]), 0, bag, counted)
    if mode == _MEAN:
        total = total / size.clamp(min=1).unsqueeze(1)
    fast = (
        mode == _SUM
        and weight.dtype in (torch.float32, torch.float16)
        and weight.stride(1) == 1
        and padding_idx < 0
        and (per_sample_weights is None or per_sample_weights.stride(0) == 1)
        and offsets.device.type == "cpu"
    )
    of_index = offsets.new_empty([0]) if fast else bag.to(offsets.dtype)
    return total.to(weight.dtype), of_index, size.to(offsets.dtype), torch.zeros_like(size)
