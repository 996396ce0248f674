"""What MAX can take: dtypes, devices, layouts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from max.driver import CPU, Accelerator, Device, accelerator_count
from max.dtype import DType
from max.graph import DeviceRef

from torch_mojo.devices import on_host

from . import symbols

DTYPES: dict[torch.dtype, DType] = {
    torch.bool: DType.bool,
    torch.uint8: DType.uint8,
    torch.int8: DType.int8,
    torch.int16: DType.int16,
    torch.int32: DType.int32,
    torch.int64: DType.int64,
    torch.float16: DType.float16,
    torch.bfloat16: DType.bfloat16,
    torch.float32: DType.float32,
    torch.float64: DType.float64,
}
TORCH_DTYPES = {v: k for k, v in DTYPES.items()}
HALF = (torch.float16, torch.bfloat16)


def device_ref(device: torch.device) -> DeviceRef:
    """Return MAX's name of a torch device."""
    return DeviceRef.CPU() if on_host(device) else DeviceRef.GPU(device.index or 0)


def driver_device(device: torch.device) -> Device:
    """Return MAX's driver object of a torch device."""
    return CPU() if on_host(device) else Accelerator(device.index or 0)


def refuse_tensor(t: torch.Tensor) -> str | None:
    """Say why MAX cannot hold a tensor like the fake `t`, or None if it can."""
    if t.layout != torch.strided:
        return f"layout {t.layout}"
    if t.dtype not in DTYPES:
        return f"dtype {t.dtype}"
    if not on_host(t.device) and t.device.type != "cuda":
        return f"device {t.device}"
    if t.device.type == "cuda" and (t.device.index or 0) >= accelerator_count():
        return f"device {t.device}, which MAX does not see"
    # MAX's constant folding dies of a division by zero on some graphs with empty constants.
    if any(symbols.static(s) == 0 for s in t.shape):
        return "an empty tensor"
    return None


def order(sizes: Sequence[symbols.Size], strides: Sequence[symbols.Size]) -> list[int] | None:
    """Return the dims from outermost to innermost if the layout is dense, else None."""
    hints = [_hint(s) for s in strides]
    dims = sorted(range(len(sizes)), key=lambda d: (-hints[d], d))
    expected = symbols.expr(1)
    for d in reversed(dims):
        if symbols.static(sizes[d]) == 1:
            continue
        if symbols.expr(strides[d]) != expected:
            return None
        expected = expected * symbols.expr(sizes[d])
    return dims


def _hint(size: symbols.Size) -> int:
    if isinstance(size, torch.SymInt):
        e = symbols.expr(size)
        if e.is_Integer:
            return int(e)
        return size.node.hint if size.node.has_hint() else 2**62
    return size
