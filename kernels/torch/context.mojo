"""The device context and stream that the router puts before the flat words."""

from std.memory import Pointer

from max.gpu.host import DeviceContext, DeviceStream

from torch.words import load


@always_inline
def context(flat: Int) -> DeviceContext:
    return Pointer[DeviceContext, MutAnyOrigin](unsafe_from_address=load(flat, -2))[]


@always_inline
def stream(flat: Int) -> DeviceStream:
    return Pointer[DeviceStream, MutAnyOrigin](unsafe_from_address=load(flat, -1))[]
