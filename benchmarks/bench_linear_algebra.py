"""inv3x3."""

from collections.abc import Iterator

import torch

from benchmarks.builtin import Case
from torch_mojo import functional as F


def composed(a: torch.Tensor) -> torch.Tensor:
    """Return the inverses by the adjugate, as one writes it with torch's cross product."""
    x, y, z = a.unbind(-2)
    rows = torch.stack((y.cross(z, -1), z.cross(x, -1), x.cross(y, -1)), -1)
    return rows / (x * rows[..., 0]).sum(-1)[..., None, None]


def cases(device: str) -> Iterator[Case]:
    """Return batches of well-conditioned matrices, forward and with gradients."""
    for n in (64, 2**14, 2**18 if device == "cpu" else 2**22):
        a = torch.eye(3, device=device) + 0.1 * torch.randn(n, 3, 3, device=device)
        name = f"inv3x3, 2^{n.bit_length() - 1}"
        yield Case(name, F.inv3x3, composed, (a,), moved=72 * n)
        yield Case(f"{name}, against linalg.inv", F.inv3x3, torch.linalg.inv, (a,), moved=72 * n)
        leaf = a.detach().requires_grad_()
        yield Case(f"{name} with gradients", F.inv3x3, composed, (leaf,), moved=180 * n)
