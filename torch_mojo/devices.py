"""Which devices there are, as far as kernels care."""

import torch

HOST = ("cpu", "mojo")  # torch.device("mojo") is the host's: torch_mojo/device


def on_host(device: torch.device) -> bool:
    """Tell whether kernels for the host CPU run on a device's memory."""
    return device.type in HOST
