"""Run by test_max_cache.py: one function for several batch sizes, dtypes and modes, in some order.

Prints how many MAX graphs the process asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from packing import same

from torch_mojo.compiler import session


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return something that depends on every element and on the batch's size."""
    return x * w + x.shape[0]


def gradients(f: Callable[..., Any], x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
    """Return the result and the gradient of a weighted sum of it."""
    out = f(x, w)
    return [out, *torch.autograd.grad((out * torch.arange(1, len(x) + 1)[:, None]).sum(), x)]


def main(orders: list[int]) -> None:
    """Compare with eager torch in this order of sizes, then in it again, compiling nothing."""
    asked = []
    real = session.compiled

    def compiled(*args: Any) -> Any:
        asked.append(args)
        return real(*args)

    session.compiled = compiled
    for training in (False, True):
        for again in (False, True):
            g = torch.compile(f, backend="max", options={"fallback": "error"}, dynamic=True)
            before = len(asked)
            for dtype in (torch.float32, torch.float64)[: 1 if training else 2]:
                for rows in orders:
                    x = torch.linspace(-1, 2, rows * 3, dtype=dtype).view(rows, 3)
                    w = torch.tensor([0.5, -1.5, 2], dtype=dtype)
                    what = f"{rows} rows, {dtype}, training={training}"
                    if training:
                        x.requires_grad_()
                        same(gradients(g, x, w), gradients(f, x, w), what)
                    else:
                        same(g(x, w), f(x, w), what)
            assert not again or len(asked) == before, "the same backend compiled again"
    print(len(asked))


main([int(rows) for rows in sys.argv[1:]])
