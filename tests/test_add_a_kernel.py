"""docs/add_a_kernel.md, followed to the letter in a copy of the project."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILE = re.compile(r"\*\*The \w+\*\*,[^`]*`([\w/]+\.(?:mojo|py))`.*?\n```\w+\n(.*?)```", re.S)


def test_the_walk(tmp_path: Path) -> None:
    for folder in ("kernels", "torch_mojo", "benchmarks", "tests/ops"):
        shutil.copytree(
            ROOT / folder,
            tmp_path / folder,
            ignore=shutil.ignore_patterns("__pycache__", "test_*.py", "results"),
        )
    (tmp_path / "torch_mojo" / "kernels").symlink_to(tmp_path / "kernels")
    files = FILE.findall((ROOT / "docs" / "add_a_kernel.md").read_text())
    assert [f.split("/")[0] for f, _ in files] == [
        "kernels",
        "torch_mojo",
        "torch_mojo",
        "tests",
        "benchmarks",
    ]
    for name, text in files:
        path = tmp_path / name
        if path.exists():
            text = path.read_text() + text
        path.write_text(text)
    with (tmp_path / "torch_mojo/functional/__init__.py").open("a") as f:
        f.write('__all__.append("hardshrink")\n')
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(tmp_path / p) for p in (".", "tests/ops")),
    }

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/ops/test_hardshrink.py")
    assert "mojo::hardshrink(Tensor input, float lambd=0.5)" in run("-m", "torch_mojo", "ops")
