"""The one InferenceSession of the process, and compiling with it."""

from __future__ import annotations

import hashlib
import io
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from torch_mojo import config

if TYPE_CHECKING:
    from max.engine import InferenceSession, Model
    from max.graph import Graph

# MLIR contexts and the graph compiler are not for several threads at once.
lock = threading.RLock()

PATIENCE = 2.0  # seconds before a compile says that it is at work


@cache
def session() -> InferenceSession:
    """Return the process's session, on the CPU and every accelerator that MAX sees."""
    from max.driver import Accelerator, accelerator_count
    from max.engine import InferenceSession

    return InferenceSession([Accelerator(i) for i in range(accelerator_count())])


def compile_graph(graph: Graph, nodes: int) -> Model:
    """Compile a MAX graph of `nodes` operators; hold `lock` while calling."""
    with progress(nodes):
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


@contextmanager
def progress(nodes: int) -> Iterator[None]:
    """Say on standard error what takes so long, if it does."""
    said = threading.Event()

    def say() -> None:
        said.set()
        print(
            f"torch_mojo: compiling a MAX graph of {nodes} nodes ...", file=sys.stderr, flush=True
        )

    start = time.monotonic()
    timer = threading.Timer(PATIENCE, say)
    timer.daemon = True
    if not config.quiet():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if said.is_set():
        seconds = time.monotonic() - start
        print(f"torch_mojo: compiled it in {seconds:.1f} s", file=sys.stderr, flush=True)
