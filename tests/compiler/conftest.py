"""What the compiler's tests share: a clean Dynamo."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from torch_mojo.compiler import backend


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    """Start each test with nothing compiled and nothing warned of."""
    torch._dynamo.reset()
    backend._warned.clear()
    yield
    torch._dynamo.reset()
