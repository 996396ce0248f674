"""scale_add against torch.add: python benchmark.py."""

import torch
from torch.utils.benchmark import Timer

from ship_an_op import scale_add


def measure(size: int) -> dict[str, float]:
    """Return the median seconds of a call on float32 vectors of this size."""
    x, y = torch.randn(size), torch.randn(size)
    calls = {"ours": lambda: scale_add(x, y, 2.0), "torch": lambda: torch.add(x, y, alpha=2.0)}
    return {
        name: Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=1).median
        for name, call in calls.items()
    }


for size in (16, 2**20):
    print(f"{size} floats:", ", ".join(f"{n} {t * 1e6:.2f} us" for n, t in measure(size).items()))
