"""Reductions, softmax and normalizations against eager torch."""

from __future__ import annotations

import torch
from packing import Case, check
from torch.nn import functional as F

nan, inf = float("nan"), float("inf")

CASES: list[Case] = [
    ("sum", lambda x, i, b, n: x.sum()),
    ("sum 0", lambda x, i, b, n: x.sum(0)),
    ("sum -1 keep", lambda x, i, b, n: x.sum(-1, keepdim=True)),
    ("sum 0 2", lambda x, i, b, n: x.sum((0, 2))),
    ("sum 0 2 keep", lambda x, i, b, n: x.sum((0, 2), keepdim=True)),
    ("sum []", lambda x, i, b, n: x.sum([])),
    ("sum 0-d", lambda x, i, b, n: x[0, 0, 0].sum(0)),
    ("sum int", lambda x, i, b, n: i.sum()),
    ("sum int 1", lambda x, i, b, n: i.sum(1)),
    ("sum bool", lambda x, i, b, n: b.sum(0)),
    ("sum dtype", lambda x, i, b, n: i.sum(dtype=torch.float64)),
    ("sum bf16", lambda x, i, b, n: (x * 100).bfloat16().sum(1)),
    ("mean", lambda x, i, b, n: x.mean()),
    ("mean 1", lambda x, i, b, n: x.mean(1)),
    ("mean keep", lambda x, i, b, n: x.mean((-1, 0), keepdim=True)),
    ("mean dtype", lambda x, i, b, n: i.mean(dtype=torch.float32)),
    ("mean bf16", lambda x, i, b, n: x.bfloat16().mean(2)),
    ("amax", lambda x, i, b, n: x.amax()),
    ("amax ()", lambda x, i, b, n: x.amax(())),
    ("amax 1 2", lambda x, i, b, n: x.amax((1, 2), keepdim=True)),
    ("amin int", lambda x, i, b, n: i.amin(1)),
    ("amax nan", lambda x, i, b, n: n.amax(1)),
    ("amin nan", lambda x, i, b, n: n.amin(0)),
    ("max", lambda x, i, b, n: x.max()),
    ("min int", lambda x, i, b, n: i.min()),
    ("max dim", lambda x, i, b, n: tuple(x.max(1))),
    ("min dim keep", lambda x, i, b, n: tuple(x.min(-1, keepdim=True))),
    ("max dim nan", lambda x, i, b, n: tuple(n.max(1))),
    ("min dim int", lambda x, i, b, n: tuple(i.min(0))),
    ("argmax", lambda x, i, b, n: x.argmax()),
    ("argmax 1", lambda x, i, b, n: x.argmax(1)),
    ("argmin keep", lambda x, i, b, n: x.argmin(2, keepdim=True)),
    ("argmax nan", lambda x, i, b, n: n.argmax(1)),
    ("argmin int", lambda x, i, b, n: i.argmin(-1)),
    ("any", lambda x, i, b, n: b.any()),
    ("any 0", lambda x, i, b, n: (x > 1).any(0)),
    ("all", lambda x, i, b, n: b.all()),
    ("all 1 keep", lambda x, i, b, n: (x < 2).all(1, keepdim=True)),
    ("any int", lambda x, i, b, n: (i - 3).any(1)),
    ("prod", lambda x, i, b, n: x.prod(2)),
    ("prod int", lambda x, i, b, n: (i + 1).prod()),
    ("var", lambda x, i, b, n: x.var()),
    ("var 1", lambda x, i, b, n: x.var(1, keepdim=True)),
    ("var 0", lambda x, i, b, n: x.var((0, 1), correction=0)),
    ("var 2", lambda x, i, b, n: x.var(2, correction=2)),
    ("std", lambda x, i, b, n: x.std(-1)),
    ("var_mean", lambda x, i, b, n: torch.var_mean(x, 1)),
    ("var offset", lambda x, i, b, n: (x + 1000).var(2)),
    ("cumsum", lambda x, i, b, n: x.cumsum(1)),
    ("cumsum int", lambda x, i, b, n: i.cumsum(-1)),
    ("cumsum bool", lambda x, i, b, n: b.cumsum(0)),
    ("norm", lambda x, i, b, n: x.norm()),
    ("norm 1", lambda x, i, b, n: torch.linalg.vector_norm(x, 1, dim=(0, 1))),
    ("logsumexp", lambda x, i, b, n: torch.logsumexp(x, 1)),
    ("softmax", lambda x, i, b, n: x.softmax(-1)),
    ("softmax 0", lambda x, i, b, n: (x * 50).softmax(0)),
    ("softmax nan", lambda x, i, b, n: n.softmax(1)),
    ("softmax bf16", lambda x, i, b, n: x.bfloat16().softmax(1)),
    ("softmax dtype", lambda x, i, b, n: x.softmax(1, dtype=torch.float64)),
    ("log_softmax", lambda x, i, b, n: x.log_softmax(-1)),
    ("log_softmax 1", lambda x, i, b, n: (x * 100).log_softmax(1)),
    ("layer_norm", lambda x, i, b, n: F.layer_norm(x, (5,))),
    ("layer_norm 2", lambda x, i, b, n: F.layer_norm(x, (4, 5), x[0], x[1], 1e-3)),
    (
        "batch_norm",
        lambda x, i, b, n: F.batch_norm(x, x[0, :, 0], x[1, :, 1].abs(), x[0, :, 2], x[0, :, 3]),
    ),
    ("softmax of one", lambda x, i, b, n: n[:, :1].softmax(1)),
    ("norm of one", lambda x, i, b, n: F.layer_norm(n[:, :1], (1,))),
    ("count", lambda x, i, b, n: torch.count_nonzero(i, 1)),
]


def test_reductions() -> None:
    """Dims, keepdim, dtypes, NaN and infinities."""
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5)
    i = torch.randint(-9, 9, (4, 6), dtype=torch.int32)
    b = torch.tensor([[True, False, True], [True, False, False]])
    n = torch.tensor([[1.0, nan, 3.0], [-inf, -inf, -inf], [inf, 1.0, 2.0], [0.0, 5.0, 5.0]])
    check(CASES, x, i, b, n)
