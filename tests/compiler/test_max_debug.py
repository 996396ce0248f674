"""TORCH_MOJO_DEBUG: what is written, and which operator is named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from compiles import Compiles
from max.graph import TensorValue, ops
from packing import compile_max

from torch_mojo.compiler import debug, rules, whole
from torch_mojo.compiler.compare import difference
from torch_mojo.compiler.rules import lowering


@pytest.fixture
def debugging(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Turn it on, with a cache folder of its own for what is written."""
    monkeypatch.setenv("TORCH_MOJO_DEBUG", "1")
    monkeypatch.setattr(debug.kernel_cache, "cache", lambda: debug.kernel_cache.Cache(tmp_path))
    yield tmp_path / "debug"
    rules._user.clear()


def inner(x: torch.Tensor) -> torch.Tensor:
    return torch.cos(x) * 2  # the line to be named


def halves(x: torch.Tensor) -> torch.Tensor:
    """Two MAX graphs around an operator that MAX does not have."""
    s = torch.special.airy_ai(inner(torch.sin(x) + 1) - 0.5)
    return torch.relu(s) * 3 - 1


@pytest.mark.slow
def test_a_wrong_lowering_is_named(
    debugging: Path, compiles: Compiles, capsys: pytest.CaptureFixture[str]
) -> None:
    """With an operator in eager torch, and sizes that change; the rest of the graph agrees."""

    @lowering(torch.ops.aten.cos.default)
    def wrong(x: TensorValue) -> TensorValue:
        return ops.cos(x) * 1.25

    compiled = compile_max(halves, fallback="eager", dynamic=True)
    with pytest.warns(UserWarning, match="airy_ai"):
        got = compiled(torch.linspace(-1, 1, 12).view(3, 4))
    compiled(torch.linspace(-1, 1, 10).view(5, 2))
    assert not torch.allclose(got, halves(torch.linspace(-1, 1, 12).view(3, 4)))
    said = capsys.readouterr().err
    assert said.count("MAX graph 0 differs from eager torch: ") == 1
    assert "The first operator that does, given the same inputs, is aten.cos.default: 12 of" in said
    line = inner.__code__.co_firstlineno + 1
    assert f'test_max_debug.py", line {line}, in inner: return torch.cos(x) * 2' in said
    assert re.search(rf"lowering: \S*test_max_debug.py:{wrong.__code__.co_firstlineno}", said)
    assert said.count("MAX graph 1 agrees with eager torch in its first call.") == 1
    assert said.count("The results differ from eager torch") == 1
    assert len(compiles) == 3  # the two, and the first with all its values
    (folder,) = debugging.glob("*/graph_*_inference")
    assert str(folder) in said
    assert "torch.ops.aten.cos.default" in (folder / "fx.py").read_text()
    assert "return torch.cos(x) * 2" in (folder / "max_0_fx.py").read_text()
    assert "cos" in (folder / "max_0.mlir").read_text()
    assert "relu" in (folder / "max_1_fx.py").read_text()
    assert "airy_ai.default: no lowering" in (folder / "eager.txt").read_text()
    assert "aten.cos.default" in (folder / "report.txt").read_text()


@pytest.mark.slow
def test_a_right_graph_reports_no_difference(
    debugging: Path, compiles: Compiles, capsys: pytest.CaptureFixture[str]
) -> None:
    """Forward and backward, a reduction, a view, several dtypes."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(x * w).t() + w.sum(1)).to(torch.bfloat16) * 2

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    compiled = compile_max(f)
    wanted = torch.autograd.grad(f(x, w).sum(), x)
    for _ in range(2):
        got = torch.autograd.grad(compiled(x, w).sum(), x)
        torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2)
    said = capsys.readouterr().err
    assert "differ" not in said
    assert said.count("(forward): MAX graph 0 agrees") == 1
    assert said.count("(backward): MAX graph 0 agrees") == 1
    assert len(compiles) == 2


def test_nodes_of_a_backward_have_a_line() -> None:
    """A node of a gradient is blamed on the line of the forward."""
    x = torch.randn(3, requires_grad=True)
    lines: list[str | None] = []

    def record(plan: object) -> None:
        lines.extend(debug.line_of(n) for n in plan.decisions)  # type: ignore[attr-defined]

    from torch_mojo.compiler.backend import Options, _Compilation

    def collect(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        return _Compilation(Options(), inputs, record).run(gm, inputs)

    torch.compile(inner, backend=collect)(x).sum().backward()
    assert len(lines) >= 4
    assert all("in inner: return torch.cos(x) * 2" in line for line in lines if line)
    assert sum(line is not None for line in lines) >= 3


def test_a_wrong_decomposition_is_named() -> None:
    """It is at fault where each MAX graph agrees with its own operators."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.relu(torch.cumsum(x * 2, 0)),)

    graphs = []
    torch.compile(f, backend=lambda gm, _: graphs.append(gm) or gm)(torch.ones(3))
    x = torch.tensor([1.0, 2.0, 3.0])
    table = {
        torch.ops.aten.cumsum.default: lambda x, dim: x + 1,
        torch.ops.aten.mul.Tensor: lambda x, y: NotImplemented,
        torch.ops.aten.relu.default: lambda x: x.clamp(min=0),
    }
    op, what, line = whole.wrong_decomposition(graphs[0], (x,), table)
    assert op == "aten.cumsum.default"
    assert what == "3 of 3 values, most at [2]: MAX 7.0, eager 12.0"
    assert line is not None and line.endswith("torch.relu(torch.cumsum(x * 2, 0)),)")
    del table[torch.ops.aten.cumsum.default]
    assert whole.wrong_decomposition(graphs[0], (x,), table) is None
    said: list[str] = []
    run = whole.checked(lambda x: [graphs[0](x)[0] + 1], graphs[0], said.append)
    assert run(x)[0].tolist() == [3, 7, 13] and run(x)[0].tolist() == [3, 7, 13]
    assert len(said) == 1 and said[0].startswith("The results differ from eager torch: 3 of 3")
    whole.checked(lambda x: list(graphs[0](x)), graphs[0], said.append)(x)
    assert len(said) == 1


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_rounding_is_no_difference(dtype: torch.dtype) -> None:
    expected = torch.tensor([1.0, -3.0, 1e-3, INF, -INF, NAN], dtype=dtype)
    assert difference(expected.clone(), expected) is None
    assert difference(expected * (1 + torch.finfo(dtype).eps), expected) is None
    assert difference(expected * 1.1, expected) is not None


@pytest.mark.parametrize(
    ("actual", "expected", "what"),
    [
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "1 of 2 values, most at [1]: MAX 2, eager 3"),
        (torch.tensor(True), torch.tensor(False), "MAX True, eager False"),
        (
            torch.tensor([NAN]),
            torch.tensor([1.0]),
            "1 of 1 values, most at [0]: MAX nan, eager 1.0",
        ),
        (
            torch.tensor([1.0]),
            torch.tensor([NAN]),
            "1 of 1 values, most at [0]: MAX 1.0, eager nan",
        ),
        (torch.tensor([INF]), torch.tensor([-INF]), "MAX inf, eager -inf"),
        (torch.ones(2, 1), torch.ones(2), "shape (2, 1), eager (2,)"),
        (torch.ones(2), torch.ones(2).double(), "dtype torch.float32, eager torch.float64"),
        ([torch.ones(1), 3], [torch.ones(1), 4], "MAX 3, eager 4"),
        (
            torch.tensor([[0.0, 1.0], [2.0, 2.0]]),
            torch.tensor([[0.0, 1.5], [0.0, 2.0]]),
            "2 of 4 values, most at [1, 0]: MAX 2.0, eager 0.0",
        ),
    ],
)
def test_differences(actual: object, expected: object, what: str) -> None:
    found = difference(actual, expected)
    assert found is not None and what in found


def test_empty_and_equal() -> None:
    assert difference([torch.ones(0, 3), None, 2], [torch.ones(0, 3), None, 2]) is None
