"""What the device is held to: the CPU's values, dtypes, shapes and strides, without the CPU's help."""

from collections.abc import Callable
from typing import Any

import torch

from torch_mojo.device import fallback


def moved(value: Any) -> Any:
    """The same on the device, with the same strides."""
    return value.to("mojo") if isinstance(value, torch.Tensor) else value


def agree(
    function: Callable[..., Any], *args: Any, tolerance: float = 1e-5, on_cpu: bool = False
) -> None:
    """Compare a function's results on both; it may call the CPU only if `on_cpu`."""
    wanted = function(*args)
    given = [moved(a) for a in args]
    fallback.ran.clear()
    found = function(*given)
    assert on_cpu or not fallback.ran, fallback.ran
    if isinstance(wanted, torch.Tensor):
        wanted, found = (wanted,), (found,)
    assert len(wanted) == len(found)
    for w, f in zip(wanted, found, strict=True):
        assert f.device.type == "mojo" and (f.dtype, f.shape) == (w.dtype, w.shape)
        torch.testing.assert_close(f.cpu(), w, rtol=tolerance, atol=tolerance, equal_nan=True)
