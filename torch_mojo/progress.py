"""Lines on standard error: for whatever takes more than two seconds, and for the steps of what takes many."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from torch_mojo import config

PATIENCE = 2.0  # seconds


def say(text: str) -> None:
    """Print a line, unless TORCH_MOJO_QUIET=1 turns it off."""
    if not config.quiet():
        print(f"torch_mojo: {text}", file=sys.stderr, flush=True)


@contextmanager
def slow(what: str) -> Iterator[None]:
    """Say `what` is going on if the block runs longer than two seconds, and how long it took.

    TORCH_MOJO_QUIET=1 turns it off.
    """
    if config.quiet():
        yield
        return
    said = threading.Event()

    def start_line() -> None:
        said.set()
        say(f"{what} ...")

    timer = threading.Timer(PATIENCE, start_line)
    timer.daemon = True
    start = time.perf_counter()
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if said.is_set():
            say(f"{what}: {time.perf_counter() - start:.1f} s")
