"""What Inductor finds when it asks for a code generator for the device: a refusal that says what to do."""

from typing import Any

from torch_mojo import torch_private
from torch_mojo.errors import UnsupportedOpError


def _refuse(*_: Any, **__: Any) -> Any:
    raise UnsupportedOpError(
        "Inductor generates no code for the mojo device.\n"
        'Use torch.compile(backend="max"), which takes its tensors without copies.'
    )


class _Refusing(type):
    """Classes that raise whatever is asked of them."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _refuse()


class Refusal(metaclass=_Refusing):
    """Raises UnsupportedOpError when Inductor makes one, or asks it for anything."""

    __init__ = _refuse


torch_private.register_inductor_device("mojo")
