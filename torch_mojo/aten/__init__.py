"""ATen operators as Mojo kernels, `torch.ops.mojo_aten.*`: what torch computes, below autograd.

`decompositions.DECOMPOSITIONS` says which ATen operator is made of which of them. Nothing here has gradients or
batching rules.
"""

from torch_mojo.aten.indexing import (
    checked_index,
    checked_position,
    embedding,
    gather,
    index_select,
    take_rows,
)
from torch_mojo.aten.pooling import (
    adaptive_avg_pool,
    adaptive_avg_pool_backward,
    adaptive_max_pool,
    adaptive_max_pool_backward,
    avg_pool,
    avg_pool_backward,
    max_pool,
    max_pool_backward,
)
from torch_mojo.aten.scanning import (
    cummax,
    cummin,
    cumprod,
    cumsum,
    logcumsumexp,
    median_of_sorted,
    mode_of_sorted,
    nanmedian_of_sorted,
)
from torch_mojo.aten.scattering import (
    index_add,
    index_copy,
    index_fill,
    put_rows,
    scatter,
    scatter_reduce,
    scatter_value,
)
from torch_mojo.aten.sorting import sort

__all__ = [
    "adaptive_avg_pool",
    "adaptive_avg_pool_backward",
    "adaptive_max_pool",
    "adaptive_max_pool_backward",
    "avg_pool",
    "avg_pool_backward",
    "checked_index",
    "checked_position",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "embedding",
    "gather",
    "index_add",
    "index_copy",
    "index_fill",
    "index_select",
    "logcumsumexp",
    "max_pool",
    "max_pool_backward",
    "median_of_sorted",
    "mode_of_sorted",
    "nanmedian_of_sorted",
    "put_rows",
    "scatter",
    "scatter_reduce",
    "scatter_value",
    "sort",
    "take_rows",
]
