"""Options of the suite, and a count of MAX compiles."""

from typing import Any
from weakref import WeakValueDictionary

import pytest
import torch
from compiles import Compiles


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


def pytest_configure() -> None:
    if torch.cuda.is_available():  # the tests know how near float32 comes; cuDNN's default is TF32
        torch.backends.cudnn.allow_tf32 = False


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> Compiles:
    """Count MAX compiles; what was compiled before the test does not count as there."""
    from torch_mojo.compiler import session

    seen = Compiles()
    real = session.compile_graph

    def counted(graph: Any, nodes: int) -> Any:
        seen.nodes.append(nodes)
        return real(graph, nodes)

    monkeypatch.setattr(session, "compile_graph", counted)
    monkeypatch.setattr(session, "_models", WeakValueDictionary())
    return seen
