"""ATen operators as compositions of these kernels and of torch operators.

Each function takes what the operator takes, and returns NotImplemented for what it does not serve: complex numbers,
masks as indices, tensors of several devices. What the kernels check, they check when they run: tracing adds no guard.
"""

from collections.abc import Callable
from typing import Any

import torch

from torch_mojo.aten import (
    attention,
    convolution,
    distance_rules,
    embedding_rules,
    index_rules,
    pointwise_rules,
    pool_rules,
    product_rules,
    resample_rules,
    scan_rules,
    search_rules,
    shape_rules,
    sort_rules,
    view_rules,
)

DECOMPOSITIONS: dict[torch._ops.OpOverload, Callable[..., Any]] = {
    **attention.RULES,
    **convolution.RULES,
    **distance_rules.RULES,
    **embedding_rules.RULES,
    **index_rules.RULES,
    **pointwise_rules.RULES,
    **pool_rules.RULES,
    **product_rules.RULES,
    **resample_rules.RULES,
    **scan_rules.RULES,
    **search_rules.RULES,
    **shape_rules.RULES,
    **sort_rules.RULES,
    **view_rules.RULES,
}
