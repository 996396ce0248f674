"""Autocast on the device: which operators are computed in the block's dtype, which in float32."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

from torch_mojo import torch_private

# As torch does on CUDA.
LOWER = """_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution
prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot
scaled_dot_product_attention
_thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell""".split()
FLOAT32 = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm
native_layer_norm group_norm cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d
hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss
soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm
logsumexp softmax log_softmax sum prod cumsum cumprod norm""".split()
WIDEST = """
addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add cat stack""".split()

_library = torch.library.Library("aten", "IMPL")
_everything = torch.library.Library("_", "IMPL")


def register() -> None:
    """Register what `torch.autocast("mojo")` does."""
    _everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for names, dtype_of in (
        (LOWER, lambda args: torch.get_autocast_dtype("mojo")),
        (FLOAT32, lambda args: torch.float32),
        (WIDEST, _widest),
    ):
        for name in names:
            packet = getattr(torch.ops.aten, name, None)
            for overload in packet.overloads() if packet is not None else ():
                if not overload.endswith("out"):
                    _cast(getattr(packet, overload), dtype_of)
    _library.impl("binary_cross_entropy", _unsafe, "AutocastPrivateUse1")


def _floats(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _floats(value)
        elif isinstance(value, torch.Tensor) and value.is_floating_point():
            yield value


def _widest(args: tuple[Any, ...]) -> torch.dtype:
    found = torch.get_autocast_dtype("mojo")
    if any(t.dtype == torch.float32 for t in _floats(args)):
        found = torch.float32
    return found


def _cast(overload: torch._ops.OpOverload, dtype_of: Callable[[tuple[Any, ...]], Any]) -> None:
    def cast(*args: Any, **kwargs: Any) -> Any:
        to = dtype_of(args)
        with torch_private.without_autocast():
            return overload(
                *torch_private.cast_tensors(args, "mojo", to),
                **torch_private.cast_tensors(kwargs, "mojo", to),
            )

    _library.impl(torch_private.overload_name(overload), cast, "AutocastPrivateUse1")


def _unsafe(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
        "Use torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss."
    )
