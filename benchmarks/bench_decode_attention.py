"""decode_attention."""

from collections.abc import Iterator

import torch

from benchmarks.builtin import Case
from torch_mojo import functional as F


def cases(device: str) -> Iterator[Case]:
    """Return one query of 32 heads against a cache of 8, full to the end."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16

    def theirs(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor
    ) -> torch.Tensor:
        attention = torch.nn.functional.scaled_dot_product_attention
        return attention(q[:, :, None], k, v, enable_gqa=True)[:, :, 0]

    small = ((1, 128), (1, 2048), (4, 2048))
    large = ((1, 1024), (16, 4096), (64, 8192))
    for batch, length in small if device == "cpu" else large:
        q = torch.randn(batch, 32, 128, device=device, dtype=dtype)
        k, v = (torch.randn(batch, 8, length, 128, device=device, dtype=dtype) for _ in range(2))
        lengths = torch.full((batch,), length, device=device, dtype=torch.int32)
        yield Case(
            f"decode_attention, batch {batch}, length {length}",
            F.decode_attention,
            theirs,
            (q, k, v, lengths),
            moved=2 * k.nbytes,
            loose=2e-2,
        )
