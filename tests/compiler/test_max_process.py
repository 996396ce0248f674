"""Threads, forked children, and Python's side of a call."""

from __future__ import annotations

import os
import threading

import pytest
import torch
from packing import Compiles, compile_max


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
def test_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A compile that takes long says so on standard error, unless it is told not to."""
    from torch_mojo.compiler import session

    monkeypatch.setattr(session, "PATIENCE", 0.0)
    for quiet, expected in (("0", "compiling a MAX graph of 12 nodes"), ("1", "")):
        monkeypatch.setenv("TORCH_MOJO_QUIET", quiet)
        with session.progress(12):
            for t in threading.enumerate():
                if isinstance(t, threading.Timer):
                    t.join()
        said = capsys.readouterr().err
        assert expected in said and bool(said) == bool(expected)
