"""Matrix products."""

from __future__ import annotations

from typing import Any

import torch
from max.graph import TensorValue, ops
from torch import fx

from torch_mojo.devices import on_host

from ..context import Context, broadcast, cast
from ..rules import builtin
from ..types import TORCH_DTYPES

aten = torch.ops.aten


def refuse_product(node: fx.Node) -> str | None:
    """Say why a product is left to eager torch."""
    out = node.meta["val"]
    if not out.dtype.is_floating_point:
        return f"matrix products of {out.dtype}"
    if on_host(out.device):
        return "float16 matrix products on a CPU" if out.dtype == torch.float16 else None
    # MAX multiplies float32 in TF32 on NVIDIA GPUs without being asked.
    if out.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest":
        return "float32 products at precision 'highest'"
    return None


@builtin(aten.mm.default, aten.bmm.default, refuse=refuse_product)
def mm(ctx: Context, x: TensorValue, y: TensorValue) -> TensorValue:
    """Multiply matrices, or batches of them."""
    return ops.matmul(x, y)


@builtin(aten.addmm.default, aten.baddbmm.default, refuse=refuse_product)
def addmm(
    ctx: Context,
    bias: TensorValue,
    x: TensorValue,
    y: TensorValue,
    *,
    beta: Any = 1,
    alpha: Any = 1,
) -> TensorValue:
    """Return beta * bias + alpha * x @ y; a beta of 0 drops the bias, NaN and all."""
    wide = torch.float32 if ctx.dtype in (torch.float16, torch.bfloat16) else ctx.dtype
    product = ops.matmul(x, y)
    scaled = (
        not isinstance(alpha, (int, float))
        or alpha != 1
        or not isinstance(beta, (int, float))
        or beta != 1
    )
    if scaled:
        product = cast(product, wide) * ctx.value(alpha, wide)
    if isinstance(beta, (int, float)) and beta == 0:
        return product
    bias = cast(bias, TORCH_DTYPES[product.dtype])
    if scaled:
        bias = bias * ctx.value(beta, wide)
    return product + broadcast(bias, list(product.shape))
