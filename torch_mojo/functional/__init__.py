"""The built-in kernels, a function each: torch tensors, MAX graph values and MAX tensors in and out.

The same functions are `torch.ops.mojo.*`.
"""

from torch_mojo.functional.activation import (
    gelu_backward,
    gelu_double_backward,
    silu_mul,
    silu_mul_backward,
)
from torch_mojo.functional.attention import scaled_dot_product_attention
from torch_mojo.functional.bitwise import (
    bitwise_and,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
)
from torch_mojo.functional.cross_entropy import (
    cross_entropy,
    cross_entropy_backward,
    cross_entropy_forward,
)
from torch_mojo.functional.decode import decode_attention
from torch_mojo.functional.embedding import (
    embedding_dense_backward,
    embedding_sum,
    embedding_sum_few,
)
from torch_mojo.functional.grid_sample import (
    grid_sample,
    grid_sample_grid_backward,
    grid_sample_input_backward,
)
from torch_mojo.functional.linear_algebra import inv3x3, inv3x3_backward
from torch_mojo.functional.norm import (
    add_rms_norm,
    layer_norm,
    layer_norm_backward,
    rms_norm,
    rms_norm_backward,
)
from torch_mojo.functional.pooling import adaptive_avg_pool2d, adaptive_avg_pool2d_backward
from torch_mojo.functional.rotary import rotary_embedding, rotary_embedding_backward
from torch_mojo.functional.rounding import ceil
from torch_mojo.functional.softmax import (
    log_softmax,
    log_softmax_backward,
    softmax,
    softmax_backward,
)
from torch_mojo.functional.topk import topk, topk_backward

__all__ = [
    "adaptive_avg_pool2d",
    "adaptive_avg_pool2d_backward",
    "add_rms_norm",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "cross_entropy",
    "cross_entropy_backward",
    "cross_entropy_forward",
    "decode_attention",
    "embedding_dense_backward",
    "embedding_sum",
    "embedding_sum_few",
    "gelu_backward",
    "gelu_double_backward",
    "grid_sample",
    "grid_sample_grid_backward",
    "grid_sample_input_backward",
    "inv3x3",
    "inv3x3_backward",
    "layer_norm",
    "layer_norm_backward",
    "log_softmax",
    "log_softmax_backward",
    "rms_norm",
    "rms_norm_backward",
    "rotary_embedding",
    "rotary_embedding_backward",
    "scaled_dot_product_attention",
    "silu_mul",
    "silu_mul_backward",
    "softmax",
    "softmax_backward",
    "topk",
    "topk_backward",
]
