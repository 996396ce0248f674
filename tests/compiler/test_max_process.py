"""Threads, forked children, and Python's side of a call."""

from __future__ import annotations

import gc
import os
import re
import threading
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from compiles import Compiles
from packing import compile_max

from torch_mojo import progress
from torch_mojo.compiler import session


def shifted(x: torch.Tensor) -> torch.Tensor:
    """Return something that only the right input gives."""
    return torch.relu(x * 3 - 1).sum(1)


@pytest.mark.slow
def test_threads_and_forked_children(compiles: Compiles) -> None:
    """U49 and U50: eight threads with their own sizes; then a forked child gets eager's values."""
    compiled = compile_max(shifted, dynamic=True)
    compiled(torch.ones(3, 2))
    wrong: list[str] = []

    def work(rows: int) -> None:
        for k in range(50):
            x = torch.full((rows, 4), float(k + 1))
            got = compiled(x)
            if not torch.equal(got, torch.full((rows,), 4 * (3.0 * (k + 1) - 1))):
                wrong.append(f"{rows} rows, call {k}: {got}")

    threads = [threading.Thread(target=work, args=(rows,)) for rows in range(2, 10)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert len(compiles) == 1
    child = os.fork()
    if child == 0:
        ok = torch.equal(compiled(torch.ones(5, 4)), torch.full((5,), 8.0))
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.slow
def test_kept_addresses(compiles: Compiles) -> None:
    """Inputs at a known address are read anew, in their present sizes, and not kept alive."""
    compiled = compile_max(lambda x, y: x * 2 - y, dynamic=True)
    array = np.arange(24, dtype=np.float32).reshape(6, 4)
    memory = torch.from_numpy(array)
    for rows in (6, 6, 6, 4, 4, 4, 6):
        memory += 1
        for y in (torch.ones(rows, 4), memory[:rows]):
            assert torch.equal(compiled(memory[:rows], y), memory[:rows] * 2 - y)
    turned = memory[:4].t()  # the address and the sizes of before
    assert torch.equal(compiled(turned, turned), turned)
    alive = weakref.ref(array)
    del array, memory, turned, y
    gc.collect()
    assert alive() is None
    assert len(compiles) <= 3


def test_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A compile that takes long says so on standard error, unless it is told not to."""

    class Slow:
        def load(self, graph: Any) -> None:
            for t in threading.enumerate():
                if isinstance(t, threading.Timer):
                    t.join()

    monkeypatch.setattr(session, "session", Slow)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setenv("TORCH_MOJO_QUIET", "0")
    session.compile_graph(None, 12)
    begun, done = capsys.readouterr().err.splitlines()
    assert begun == "torch_mojo: compiling a MAX graph of 12 nodes ..."
    assert re.fullmatch(r"torch_mojo: compiling a MAX graph of 12 nodes: \d+\.\d s", done)
    monkeypatch.setenv("TORCH_MOJO_QUIET", "1")
    session.compile_graph(None, 12)
    assert not capsys.readouterr().err
