"""Python exceptions on their way through C: their text travels, and they wait for whoever called from Python."""

import collections
import ctypes
import threading

from torch_mojo.errors import MojoError

_local = threading.local()
_messages: collections.deque[object] = collections.deque(maxlen=1024)


def keep(error: BaseException) -> int:
    """Store an exception for the caller; return its text's address, marked as a message."""
    own = isinstance(error, MojoError) or type(error) is RuntimeError
    text = str(error) if own else f"{type(error).__name__}: {error}"
    buffer = ctypes.create_string_buffer(text.encode())
    _messages.append(buffer)
    _local.pending = (text, error)
    return ctypes.addressof(buffer)


def pending(error: RuntimeError) -> BaseException | None:
    """Return the Python exception that a RuntimeError from the dispatcher stands for, if any."""
    text, found = getattr(_local, "pending", (None, None))
    _local.pending = (None, None)
    return found if text is not None and text in str(error) else None
