"""What is compiled again, and what MAX's own cache holds for the next process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_two_processes_and_two_orders(tmp_path: Path) -> None:
    """U57: batch 1 then 4, and elsewhere 4 then 1, with the graphs of the first process."""

    def run(*orders: str) -> tuple[int, set[Path]]:
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name("orders.py"), *orders],
            env={**os.environ, "MODULAR_CACHE_DIR": str(tmp_path), "TORCH_MOJO_QUIET": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout), {p for p in tmp_path.rglob("*") if p.is_file()}

    graphs, made = run("1", "4")
    assert graphs == 8 and made
    asked, found = run("4", "1")
    assert asked == graphs
    assert found == made, "the second process compiled something"
