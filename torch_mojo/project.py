"""The project that `python -m torch_mojo new NAME` writes: a kernel, its operator, a test, a benchmark, a setup.py."""

from pathlib import Path

from torch_mojo.errors import MojoError

_KERNEL = '''"""x + alpha * y."""

import extensibility
from extensibility import InputTensor, OutputTensor, foreach
from layout import Coord
from max.gpu.host import DeviceContext


@extensibility.register("scale_add")
struct ScaleAdd:
    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        y: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        alpha: Float32,
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](at: Coord) {var x, var y, var alpha} -> SIMD[output.dtype, width]:
            return x.load[width](at) + alpha.cast[output.dtype]() * y.load[width](at)

        foreach[target=target](f, output, ctx)
'''

_INIT = '''"""NAME: a PyTorch operator whose kernel is written in Mojo."""

from NAME.ops import scale_add

__all__ = ["scale_add"]
'''

_OPS = '''"""The operator: what it takes, what its result looks like, its gradient."""

from typing import Any

import torch

try:
    import torch_mojo
except ImportError:  # the wheel has a small loader, and the kernel built
    from NAME import _torch_mojo as torch_mojo


@torch_mojo.mojo_op("NAME::scale_add", path="scale_add.mojo")
def scale_add(x: torch.Tensor, y: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    """Return x + alpha * y, elementwise, for two tensors of one shape and floating-point dtype."""
    torch._check(x.shape == y.shape, lambda: f"x has shape {x.shape}, y has {y.shape}")
    return torch.empty_like(x)


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.alpha = inputs[2]


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
    return grad, ctx.alpha * grad, None


scale_add.register_autograd(_backward, setup_context=_save)
'''

_TEST = '''"""scale_add against torch."""

import pytest
import torch

from NAME import scale_add


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (0, 2)])
def test_values(shape: tuple[int, ...]) -> None:
    x, y = torch.randn(2, *shape)
    torch.testing.assert_close(scale_add(x, y, 2.5), x + 2.5 * y)


def test_strided() -> None:
    x, y = torch.randn(4, 3).t(), torch.randn(3, 8)[:, ::2]
    torch.testing.assert_close(scale_add(x, y), x + y)


def test_gradient() -> None:
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    scale_add(x, y, 2.0).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(3, 4))
    torch.testing.assert_close(y.grad, torch.full((3, 4), 2.0))


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(RuntimeError, match="x has shape"):
        scale_add(torch.ones(2), torch.ones(3))


def test_what_torch_expects_of_an_operator() -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    torch.library.opcheck(torch.ops.NAME.scale_add.default, (x, y, 0.5))
'''

_BENCHMARK = '''"""scale_add against torch.add: python benchmark.py."""

import torch
from torch.utils.benchmark import Timer

from NAME import scale_add


def measure(size: int) -> dict[str, float]:
    """Return the median seconds of a call on float32 vectors of this size."""
    x, y = torch.randn(size), torch.randn(size)
    calls = {"ours": lambda: scale_add(x, y, 2.0), "torch": lambda: torch.add(x, y, alpha=2.0)}
    return {
        name: Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=1).median
        for name, call in calls.items()
    }


for size in (16, 2**20):
    print(f"{size} floats:", ", ".join(f"{n} {t * 1e6:.2f} us" for n, t in measure(size).items()))
'''

_SETUP = '''"""pip wheel . --no-build-isolation --no-deps: the kernel is built into the wheel."""

import torch
from setuptools import setup

from torch_mojo.build import BuildMojo, Grid, MojoExtension

setup(
    ext_modules=[
        MojoExtension(
            "NAME.ops",
            specializations=Grid(dtypes=[torch.float32], ranks=[0, 1, 2], strided=True),
            targets=["x86-64-v3"],  # and "sm_90", where kernels shall run on a GPU
            bundle_runtime=True,
        )
    ],
    cmdclass={"build_ext": BuildMojo},
)
'''

_PYPROJECT = """[build-system]
requires = ["setuptools>=77", "torch>=2.10", "torch_mojo"]
build-backend = "setuptools.build_meta"

[project]
name = "NAME"
version = "0.1.0"
description = "A PyTorch operator whose kernel is written in Mojo"
requires-python = ">=3.10"
dependencies = ["torch>=2.10"]

[tool.setuptools]
packages = ["NAME"]
"""

FILES = {
    "pyproject.toml": _PYPROJECT,
    "setup.py": _SETUP,
    "benchmark.py": _BENCHMARK,
    "NAME/__init__.py": _INIT,
    "NAME/ops.py": _OPS,
    "NAME/scale_add.mojo": _KERNEL,
    "tests/test_NAME.py": _TEST,
}


def write(name: str, parent: Path) -> Path:
    """Write a project into a new folder of its name; return the folder.

    Raises:
        MojoError: if the name is no Python identifier, or something is there already.
    """
    if not name.isidentifier() or name.startswith("_") or name.lower() != name:
        raise MojoError(
            f"{name!r} cannot be a package.\nName it with small letters, digits and underscores."
        )
    folder = parent / name
    if folder.exists():
        raise MojoError(f"{folder} is there already.\nChoose another name or another folder.")
    for path, text in FILES.items():
        file = folder / path.replace("NAME", name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("NAME", name))
    return folder
