"""Operators of inline kernels, built ahead of time: with a compiler, with torch_mojo alone, with torch alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import environments
import pytest
import torch

from torch_mojo import build

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> build.Built:
    """Build the module's operators in a copy of it, beside it."""
    folder = tmp_path_factory.mktemp("pools")
    for name in ("pools.py", "use_pools.py"):
        shutil.copyfile(HERE / name, folder / name)
    f32 = [torch.float32]
    signs = {"largest": [True, False]}
    return build.build_module(
        "pools",
        root=folder,
        specializations={
            "ship_pools::pool": [
                build.Grid(f32, [1, 2], values=signs),
                build.Grid(f32, [2], strided=True),
                build.Example(torch.empty(4, 4), 1.0, K=4),
            ],
            "ship_pools::pool_backward": build.Example(torch.empty(2), torch.empty(4), 1.0),
        },
        bundle_runtime=True,
    )


def run(built: build.Built, kind: str, **variables: str) -> str:
    env = os.environ | {"PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, "use_pools.py", kind],
        cwd=built.path.parent,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_what_was_built(built: build.Built) -> None:
    pool, backward = built.manifest["operators"]
    assert pool["schema"] == (
        "pool(Tensor x, float scale, *, int K=2, bool largest=True) -> Tensor"
    )
    assert {b["what"] for b in pool["built"]} == {
        "x: float32[1], K=2, largest=True",
        "x: float32[1], K=2, largest=False",
        "x: float32[2], K=2, largest=True",
        "x: float32[2], K=2, largest=False",
        "x: float32[2] strided, K=2, largest=True",
        "x: float32[2], K=4, largest=True",
    }
    assert [b["what"] for b in backward["built"]] == ["grad: float32[1], x: float32[1]"]
    assert built.runtime == []


def test_where_there_is_torch_alone(built: build.Built, tmp_path: Path) -> None:
    python = environments.make(tmp_path / "env", "torch", "numpy")
    shown = environments.run(python, "use_pools.py", "ShippedOp", "--alone", cwd=built.path.parent)
    assert shown.splitlines()[-1].strip() == "done", shown


def test_where_there_is_torch_mojo_and_no_compiler(built: build.Built, tmp_path: Path) -> None:
    nowhere = {"TORCH_MOJO_COMPILER": str(tmp_path / "none"), "TORCH_MOJO_CACHE_DIR": str(tmp_path)}
    assert run(built, "ShippedOp", **nowhere) == "done"


def test_where_there_is_a_compiler(built: build.Built) -> None:
    """What was built is used, for tensors of any strides, too; nothing is built."""
    assert run(built, "InlineOp", TORCH_MOJO_BUILD="never") == "done libpools_mojo.so"


def test_an_inline_kernel_that_nothing_names(tmp_path: Path) -> None:
    (tmp_path / "unnamed.py").write_text(
        "import torch_mojo\n"
        "f = torch_mojo.kernel('f', inputs={'x': 'f32[n]'}, outputs={'y': 'f32[n]'}, grid='n',\n"
        "    source='y[thread_position_in_grid.x] = x[thread_position_in_grid.x]')\n"
    )
    from torch_mojo.errors import MojoError

    with pytest.raises(MojoError) as caught:
        build.build_module("unnamed", root=tmp_path)
    assert str(caught.value) == (
        "unnamed declares no operator.\n"
        "Declare one with torch_mojo.mojo_op, or name an inline kernel: .as_op('NAMESPACE::NAME')."
    )
