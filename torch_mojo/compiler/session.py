"""The one InferenceSession of the process, and compiling with it."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from torch_mojo.progress import slow

if TYPE_CHECKING:
    from max.driver import Buffer
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


Execute = Callable[[list["Buffer"]], list["Buffer"]]

# Each lives as long as an island that uses it: torch._dynamo.reset() lets go of all.
_models: WeakValueDictionary[bytes, partial[list[Buffer]]] = WeakValueDictionary()


def compiled(graph: Graph, nodes: int) -> Execute:
    """Return what runs a graph, compiled now, or for an equal one that is in use in this process.

    Hold `lock` while calling. Kernel packages are part of the graph by their paths, which tell their
    content.

    Args:
        graph: the graph.
        nodes: how many operators it has, for the progress line.
    """
    from max import mlir

    code = io.BytesIO()  # the text would not do: it rounds constants to six digits
    mlir.Operation._CAPICreate(graph._module._CAPIPtr).write_bytecode(code)
    key = hashlib.sha256(code.getvalue()).digest()
    execute = _models.get(key)
    if execute is None:
        # MAX's own objects take no weak references, a partial does
        execute = partial(compile_graph(graph, nodes)._execute_device_tensors)
        _models[key] = execute
    return execute
