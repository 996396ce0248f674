"""One line on standard error for whatever takes more than two seconds."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from torch_mojo import config

PATIENCE = 2.0  # seconds


@contextmanager
def slow(what: str) -> Iterator[None]:
    """Say `what` is going on if the block runs longer than two seconds, and how long it took.

    TORCH_MOJO_QUIET=1 turns it off.
    """
    if config.quiet():
        yield
        return
    said = threading.Event()

    def say() -> None:
        said.set()
        print(f"torch_mojo: {what} ...", file=sys.stderr, flush=True)

    timer = threading.Timer(PATIENCE, say)
    timer.daemon = True
    start = time.perf_counter()
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if said.is_set():
            seconds = time.perf_counter() - start
            print(f"torch_mojo: {what}: {seconds:.1f} s", file=sys.stderr, flush=True)
