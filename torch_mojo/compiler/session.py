"""The one InferenceSession of the process, and compiling with it."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from torch_mojo.progress import slow

if TYPE_CHECKING:
    from max.engine import InferenceSession, Model
    from max.graph import Graph

# MLIR contexts and the graph compiler are not for several threads at once.
lock = threading.RLock()


@cache
def session() -> InferenceSession:
    """Return the process's session, on the CPU and every accelerator that MAX sees."""
    from max.driver import Accelerator, accelerator_count
    from max.engine import InferenceSession

    return InferenceSession([Accelerator(i) for i in range(accelerator_count())])


def compile_graph(graph: Graph, nodes: int) -> Model:
    """Compile a MAX graph of `nodes` operators; hold `lock` while calling."""
    with slow(f"compiling a MAX graph of {nodes} nodes"):
        return session().load(graph)


_models: dict[bytes, Model] = {}


def model_of(graph: Graph, nodes: int, extensions: Sequence[Path]) -> Model:
    """Return the compiled graph, from an equal one of this process if there was one.

    Hold `lock` while calling.

    Args:
        graph: the graph.
        nodes: how many operators it has, for the progress line.
        extensions: the kernel packages it uses; as their content may change, such a graph is left
            to MAX's own cache.
    """
    if extensions:
        return compile_graph(graph, nodes)
    from max import mlir

    code = io.BytesIO()  # the text would not do: it rounds constants to six digits
    mlir.Operation._CAPICreate(graph._module._CAPIPtr).write_bytecode(code)
    key = hashlib.sha256(code.getvalue()).digest()
    if key not in _models:
        _models[key] = compile_graph(graph, nodes)
    return _models[key]
