"""embedding_dense_backward."""

from collections.abc import Iterator

import torch

from benchmarks.builtin import Case
from torch_mojo import functional as F


def cases(device: str) -> Iterator[Case]:
    """Return the gradient of a table of words."""
    aten = torch.ops.aten.embedding_dense_backward.default
    for tokens, words, width in ((64, 1000, 64), (2048, 32000, 256), (8192, 32000, 1024)):
        grad = torch.randn(tokens, width, device=device)
        indices = torch.randint(0, words, (tokens,), device=device)
        args = (grad, indices, words, -1, False)
        moved = grad.nbytes + 4 * words * width
        name = f"embedding_dense_backward, {tokens} of ({words}, {width})"
        yield Case(name, F.embedding_dense_backward, aten, args, moved=moved)
