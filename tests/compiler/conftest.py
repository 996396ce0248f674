"""What the compiler's tests share: a clean Dynamo, a count of MAX compiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from packing import Compiles

from torch_mojo.compiler import backend, session


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    """Start each test with nothing compiled and nothing warned of."""
    torch._dynamo.reset()
    backend._warned.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Compiles:
    """Count MAX compiles."""
    seen = Compiles()
    real = session.compile_graph

    def counted(graph: Any, nodes: int) -> Any:
        seen.nodes.append(nodes)
        return real(graph, nodes)

    monkeypatch.setattr(session, "compile_graph", counted)
    monkeypatch.setattr(session, "_models", {})
    return seen
