"""The registry, user lowerings, Mojo kernels inside a graph, light imports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from compiles import Compiles
from max.graph import TensorValue, ops
from packing import compile_max

from torch_mojo.compiler import custom, rules
from torch_mojo.compiler.decompositions import decompositions
from torch_mojo.compiler.rules import lowering
from torch_mojo.dispatch.graph import GraphKernel

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture
def clean_rules() -> Iterator[None]:
    """Forget user lowerings afterwards."""
    yield
    rules._user.clear()


def test_registration_errors(clean_rules: None) -> None:
    """A second registration names the first one's line; a packet names its overloads."""

    @lowering(torch.ops.aten.sinh.default)
    def first(x: TensorValue) -> TensorValue:
        return x

    line = first.__code__.co_firstlineno
    with pytest.raises(ValueError, match=rf"test_max_rules\.py:{line}"):
        lowering(torch.ops.aten.sinh.default)(first)
    with pytest.raises(TypeError, match=r"aten\.add.*Tensor"):
        lowering(torch.ops.aten.add)
    with pytest.raises(TypeError, match="str"):
        lowering("aten.add.Tensor")


@pytest.mark.slow
def test_user_lowering_wins(clean_rules: None, compiles: Compiles) -> None:
    """A user's lowering is used instead of the built-in one, and for an operator without one."""

    @lowering(torch.ops.aten.sinh.default)
    def sinh(x: TensorValue) -> TensorValue:
        return (ops.exp(x) - ops.exp(ops.negate(x))) * 0.5

    @lowering(torch.ops.aten.sin.default)
    def sin(x: TensorValue) -> TensorValue:
        return x * 1000

    got = compile_max(lambda x: torch.sinh(x) + torch.sin(x) * 2)(torch.tensor([1.0]))
    torch.testing.assert_close(got, torch.sinh(torch.tensor([1.0])) + 2000)
    assert len(compiles) == 1


def test_a_user_lowering_comes_before_any_decomposition(clean_rules: None) -> None:
    """The table of decompositions follows the registry, also for our own decompositions."""
    ours, torchs = torch.ops.aten.convolution.default, torch.ops.aten.logit.default
    assert {ours, torchs} <= set(decompositions())
    for op in (ours, torchs):
        lowering(op)(lambda x, *_: x)
    assert not {ours, torchs} & set(decompositions())


class FakeOp:
    """A Mojo operator, as the compiler sees one."""

    def graph_kernel(self, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> GraphKernel:
        """Return the kernel for these fakes."""
        assert args[0].shape == out.shape
        operands = (("arg", 0, False), ("arg", 1, False))
        return GraphKernel("my_add", KERNELS, operands, {}, (False,))


def test_a_mojo_kernel_in_the_graph(monkeypatch: pytest.MonkeyPatch, compiles: Compiles) -> None:
    """A mojo:: operator becomes a node of the same MAX graph as its neighbours."""

    @torch.library.custom_op("torch_mojo_test::plus", mutates_args=())
    def plus(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the eager operator must not run")

    plus.register_fake(lambda x, y: torch.empty_like(x))
    overload = torch.ops.torch_mojo_test.plus.default
    monkeypatch.setattr(custom, "_find_op", lambda op: FakeOp() if op is overload else None)
    compiled = compile_max(lambda x, y: torch.relu(plus(x * 2, y)) - 1, dynamic=True)
    for n in (3, 5):
        x, y = torch.arange(float(n)), torch.full((n,), -2.0)
        assert compiled(x, y).tolist() == [max(2 * i - 2, 0) - 1 for i in range(n)]
    assert compiles.nodes == [4]


def test_importing_the_backend_is_light() -> None:
    """Neither max nor Inductor is imported before the first compile."""
    code = (
        "import sys, torch_mojo.compiler.backend, torch_mojo.compiler.rules; "
        "print([m for m in ('max', 'torch._inductor') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
