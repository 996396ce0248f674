"""What two broadcasts made is broadcast again, for sizes that are symbols."""

from __future__ import annotations

from collections.abc import Callable

import torch
from compiles import Compiles
from packing import compile_max

LOW = torch.finfo(torch.float32).min
Case = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def _causal(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    rows, columns = torch.arange(z.shape[1]), torch.arange(z.shape[2])
    return torch.where((rows[:, None] >= columns[None, :])[None], z, LOW)


CASES: dict[str, Case] = {
    "difference": lambda x, y, z: z * (x[:, None] - y[None, :]),
    "in place of a view": lambda x, y, z: z * (x[:, None] - y[None, :]).unsqueeze(0),
    "behind others": lambda x, y, z: torch.relu((x[:, None] + y).exp() * 2) + z[None],
    "expanded": lambda x, y, z: (x[:, None] - y[None, :]).expand(4, -1, -1) * 2,
    "one expanded": lambda x, y, z: z * (x[:, None].expand(z.shape) - y),
    "both of lower rank": lambda x, y, z: z * (x[:, None] - z[:, :1, :]),
    "distances": lambda x, y, z: (x[:, None, None] - z.permute(2, 0, 1)[None, :, 0]).pow(2).sum(1),
    "three dims": lambda x, y, z: z.permute(1, 2, 0) * (x[:, None, None] - y[None, :, None]),
    "mask": lambda x, y, z: torch.where((x[:, None] >= y).view(1, *z.shape[1:]), z, LOW),
    "causal": _causal,
    "summed": lambda x, y, z: (x[:, None, None] - y[None, :, None]).sum(0) + z.sum(),
}


def test_broadcast_again(compiles: Compiles) -> None:
    """Every case with sizes of its own, all in one graph; then for other sizes."""

    def f(*args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(case(*args[3 * i : 3 * i + 3]) for i, case in enumerate(CASES.values()))

    def arguments(add: int) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        for i in range(len(CASES)):
            n, m = 4 + i + add, 7 + 2 * i + add
            found += [torch.randn(n), torch.randn(m), torch.randn(4, n, m)]
        return found

    torch.manual_seed(0)
    compiled = compile_max(f)
    for add in (0, 1):
        given = arguments(add)
        if not add:
            for t in given:
                torch._dynamo.mark_dynamic(t, (0,) if t.dim() == 1 else (1, 2))
        results = zip(CASES, compiled(*given), f(*given), strict=True)
        wrong = [name for name, a, b in results if not torch.allclose(a, b, 1e-4, 1e-4)]
        assert not wrong, f"wrong: {wrong}"
    assert len(compiles) == 1
