"""The bitwise operators."""

from collections.abc import Iterator

import torch

from benchmarks.builtin import Case
from torch_mojo import functional as F


def cases(device: str) -> Iterator[Case]:
    """Return int32 vectors, and a row against a matrix."""
    for n in (2**10, 2**18, 2**22 if device == "cpu" else 2**27):
        a, b = (torch.randint(-999, 999, (n,), dtype=torch.int32, device=device) for _ in range(2))
        size = f"2^{n.bit_length() - 1}"
        yield Case(f"bitwise_and, {size}", F.bitwise_and, torch.bitwise_and, (a, b), moved=12 * n)
    yield Case(f"bitwise_xor with 5, {size}", F.bitwise_xor, torch.bitwise_xor, (a, 5), moved=8 * n)
    yield Case(f"bitwise_not, {size}", F.bitwise_not, torch.bitwise_not, (a,), moved=8 * n)
    yield Case(
        f"bitwise_left_shift, {size}",
        F.bitwise_left_shift,
        torch.bitwise_left_shift,
        (a, b & 15),
        moved=12 * n,
    )
    x, y = a.view(-1, 1024), b[:1024]
    yield Case(f"bitwise_or, {size} and a row", F.bitwise_or, torch.bitwise_or, (x, y), moved=8 * n)
