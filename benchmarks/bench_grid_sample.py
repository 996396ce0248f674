"""grid_sample."""

from collections.abc import Iterator

import torch

from benchmarks.builtin import Case
from torch_mojo import functional as F


def composed(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """Return bilinear samples with zeros around, composed of gathers as without a kernel of its own."""
    n, c, h, w = x.shape
    column = ((grid[..., 0] + 1) * w - 1) / 2
    row = ((grid[..., 1] + 1) * h - 1) / 2
    left, top = column.floor(), row.floor()
    total = torch.zeros((), device=x.device, dtype=x.dtype)
    flat = x.reshape(n, c, h * w)
    for j in (left, left + 1):
        for i in (top, top + 1):
            weight = (1 - (column - j).abs()) * (1 - (row - i).abs())
            inside = (j >= 0) & (j < w) & (i >= 0) & (i < h)
            at = (i.clamp(0, h - 1) * w + j.clamp(0, w - 1)).long().view(n, 1, -1)
            found = flat.gather(2, at.expand(n, c, at.shape[2])).view(n, c, *row.shape[1:])
            total = total + found * (weight * inside)[:, None]
    return total


def sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """Return torch's own samples."""
    return torch.nn.functional.grid_sample(x, grid, align_corners=False)


def cases(device: str) -> Iterator[Case]:
    """Return feature maps, against the composed form and torch's own kernel, forward and with gradients."""
    small = ((1, 8, 32, 32), (2, 16, 64, 64), (4, 32, 128, 128))
    large = ((2, 16, 64, 64), (8, 64, 128, 128), (16, 64, 512, 512))
    for shape in small if device == "cpu" else large:
        x = torch.randn(shape, device=device)
        grid = torch.rand(shape[0], *shape[2:], 2, device=device) * 2.2 - 1.1
        for what, theirs in (("composed", composed), ("torch's kernel", sampled)):
            name = f"grid_sample {shape}, {what}"
            yield Case(
                name,
                F.grid_sample,
                theirs,
                (x, grid),
                memory_bound=False,
                rare=1e-3,
                moved=2 * x.nbytes,
            )
            leaves = (x.detach().requires_grad_(), grid.detach().requires_grad_())
            yield Case(
                f"{name}, with gradients",
                F.grid_sample,
                theirs,
                leaves,
                memory_bound=False,
                rare=1e-3,
            )
