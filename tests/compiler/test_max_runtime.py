"""Python's side of a call, with Python in place of the compiled graph: nothing is compiled here."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from max.driver import Buffer
from torch.multiprocessing.reductions import StorageWeakRef

from torch_mojo.compiler.alias import may_share, zero_able
from torch_mojo.compiler.backend import Options, _Compilation, _overlap
from torch_mojo.compiler.importer import import_graph
from torch_mojo.compiler.runtime import MOST_KEPT, Executable, _scalar
from torch_mojo.compiler.symbols import expr

Tensors = list[torch.Tensor]


class Run:
    """An island of `f` whose graph is computed by `inside`, from what MAX would be given."""

    def __init__(
        self,
        f: Callable[..., Any],
        *args: Any,
        inside: Callable[[Tensors], Tensors],
        guarded: bool = True,
        static: bool = False,
        dynamic: bool | None = False,
    ) -> None:
        plans: list[Any] = []

        def collect(gm: torch.fx.GraphModule, inputs: Any) -> Any:
            return _Compilation(Options(), inputs, plans.append).run(gm, inputs)

        torch.compile(f, backend=collect, dynamic=dynamic)(*args)
        (self.island,) = plans[0].islands.values()
        every = set(range(len(self.island.inputs)))
        self.seen: list[Buffer] = []

        def execute(buffers: list[Buffer]) -> list[Buffer]:
            self.seen = buffers
            given = [torch.from_dlpack(b) for b in buffers]
            return [Buffer.from_dlpack(t) for t in inside(given)]

        gm = self.island.gm
        self.call = Executable(
            import_graph(gm, {}),
            execute,
            gm,
            static=every if static else set(),
            guarded=every if guarded else set(),
            sizes=list(self.island.symbols),
            positive=zero_able(gm),
            risky=may_share(gm),
        )


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def doubled(given: Tensors) -> Tensors:
    return [given[0] * 2]


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("static", [True, False])
def test_memory_is_read_anew_and_let_go(guarded: bool, static: bool) -> None:
    x = torch.arange(6.0).view(2, 3)
    run = Run(double, x, inside=doubled, guarded=guarded, static=static)
    version = x._version
    buffers = []
    for k in range(5):
        x.add_(k)
        (got,) = run.call(x)
        assert torch.equal(got, x * 2)
        buffers.append(run.seen[0])
    assert buffers[-1] is buffers[-2]  # kept
    assert x._version == version + 5
    gone = StorageWeakRef(x.untyped_storage())
    del x, buffers[:-1]  # the first of them holds its tensor
    gc.collect()
    assert gone.expired()


def test_another_layout_at_a_known_address() -> None:
    """Without guards on strides: transposed, and with gaps, where a row-major tensor lay."""
    memory = torch.arange(32.0)
    square = memory[:16].view(4, 4)
    run = Run(double, square, inside=doubled, guarded=False)
    for _ in range(3):
        for x in (square, square.t(), memory.view(4, 8)[:, ::2], square):
            assert torch.equal(run.call(x)[0], x * 2)
    negative = torch._neg_view(square)
    assert torch.equal(run.call(negative)[0], square * -2)
    assert torch.equal(run.call(square)[0], square * 2)


def test_sizes_that_change_at_one_address() -> None:
    memory = torch.arange(24.0)
    run = Run(double, memory[:6].view(2, 3), inside=doubled, dynamic=True)
    (holder,) = run.island.inputs
    dims = [expr(n) for n in holder.meta["val"].shape]
    for _ in range(3):
        for rows, cols in ((2, 3), (3, 2), (4, 6), (6, 4), (2, 3), (0, 3)):
            x = memory[: rows * cols].view(rows, cols)
            sizes = [x.shape[dims.index(s)] for s in run.island.symbols]
            (got,) = run.call(x, *sizes)
            assert torch.equal(got, x * 2)


class Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(3.0), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def test_a_weight_is_bound_once_for_all_batches() -> None:
    module = Weighted()
    x = torch.ones(4, 3)
    torch._dynamo.mark_dynamic(x, 0)
    run = Run(module, x, inside=lambda g: [torch.mul(*g)], static=True, dynamic=None)
    assert len(run.island.symbols) == 1
    (row,) = (i for i, n in enumerate(run.island.inputs) if n.meta["val"].dim() == 1)
    seen = set()
    for rows in (4, 5, 6, 7, 4):
        x = torch.rand(rows, 3)
        (got,) = run.call(*(module.weight if i == row else x for i in range(2)), rows)
        assert torch.equal(got, x * module.weight)
        seen.add(id(run.seen[row]))
    assert len(seen) == 1


def test_more_addresses_than_are_kept() -> None:
    run = Run(double, torch.ones(3), inside=doubled)
    many = [torch.full((3,), float(k)) for k in range(3 * MOST_KEPT)]
    for _ in range(3):
        for x in many:
            assert torch.equal(run.call(x)[0], x * 2)
    assert len(run.call._places) <= MOST_KEPT


def test_tensors_of_inference_mode_and_with_gradients() -> None:
    with torch.inference_mode():
        inside = torch.ones(3)
    run = Run(double, torch.ones(3), inside=doubled)
    needs = torch.ones(3, requires_grad=True)
    for x in (inside, needs):
        for _ in range(4):
            assert run.call(x)[0].tolist() == [2, 2, 2]
        with torch.inference_mode():
            for _ in range(4):
                assert run.call(x)[0].tolist() == [2, 2, 2]
    assert needs.is_leaf and needs.requires_grad and needs._version == 0


def scaled(x: torch.Tensor, k: int) -> torch.Tensor:
    return x * k


def given(run: Run, x: torch.Tensor, k: int) -> list[Any]:
    """Return a call's arguments: inputs, then the values of symbols."""
    numbers = [k] * len(run.island.symbols)
    return [
        *(x if isinstance(n.meta["val"], torch.Tensor) else k for n in run.island.inputs),
        *numbers,
    ]


def test_numbers_are_this_calls() -> None:
    """The last few are kept; more come than that, and they come again."""
    x = torch.ones(1)
    run = Run(scaled, x, 5, inside=lambda g: [g[0] * g[1]], dynamic=True)
    for k in (5, -3, 0, 5, *range(2 * MOST_KEPT), 5):
        assert run.call(*given(run, x, k))[0].tolist() == [k]


def test_zeros_nan_and_whole_numbers_as_floats() -> None:
    kept: dict[Any, Any] = {}
    for _ in range(2):
        for s in (0.0, -0.0, 0.0, math.inf, math.nan, 2.0, 2, True, 1.0, *map(float, range(40))):
            tensor, buffer = _scalar(s, torch.float64, kept)
            assert tensor.dtype == torch.float64 and tensor.data_ptr() == buffer._data_ptr()
            torch.testing.assert_close(tensor.item(), float(s), equal_nan=True, rtol=0, atol=0)
            assert math.copysign(1, tensor.item()) == math.copysign(1, s)
    assert len(kept) <= MOST_KEPT


def test_outputs_own_their_memory() -> None:
    """MAX may hand back an input, a number it was given, or one result twice."""
    x = torch.ones(3)
    run = Run(double, x, inside=lambda g: [g[0]])
    for _ in range(4):
        (got,) = run.call(x)
        got.add_(1)
        assert x.tolist() == [1, 1, 1]
    two = Run(lambda x: (x * 2, x * 3), x, inside=lambda g: 2 * [g[0] + 1])
    for _ in range(4):
        a, b = two.call(x)
        a.add_(1)
        assert a.tolist() == [3, 3, 3] and b.tolist() == [2, 2, 2]
    number = Run(
        lambda x, k: (x * k, torch.zeros((), dtype=torch.int64) + k),
        x,
        5,
        inside=lambda g: [g[0] * g[1], g[1]],
        dynamic=True,
    )
    for _ in range(4):
        product, k = number.call(*given(number, x, 5))
        assert product.tolist() == [5, 5, 5] and k.item() == 5
        k.add_(1)


@pytest.mark.parametrize(
    ("spans", "written", "overlap"),
    [
        ([(0, 4), (4, 8)], {0}, False),
        ([(0, 4), (3, 8)], {0}, True),
        ([(0, 4), (3, 8)], {1}, True),
        ([(0, 4), (0, 4), (8, 12)], {2}, False),
        ([(0, 12), (2, 4), (5, 8)], {1}, True),
        ([(0, 12), (2, 4), (5, 8)], {2}, True),
        ([(0, 2), (0, 2)], {0, 1}, True),
        ([(4, 4), (0, 8)], {0}, False),
        ([(6, 8), (0, 2), (2, 6)], {0, 1}, False),
    ],
)
def test_overlap_with_what_is_written(
    spans: list[tuple[int, int]], written: set[int], overlap: bool
) -> None:
    memory = torch.zeros(12)
    args = [memory[a:b] for a, b in spans]
    assert _overlap(args, written) is overlap
    shifted = [3, *args]  # numbers are no tensors
    assert _overlap(shifted, {i + 1 for i in written}) is overlap


def test_overlap_of_strided_tensors() -> None:
    memory = torch.zeros(4, 4)
    assert _overlap([memory[:, 0], memory[1]], {0})
    assert not _overlap([memory[:2], memory[2:].t()], {0})


def test_guards_see_what_a_call_does_not_check() -> None:
    """Other strides, also of a parameter or buffer, and the bit of negation are another graph."""

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.arange(16.0).view(4, 4))
            self.register_buffer("shift", torch.ones(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight + self.shift

    graphs: list[Any] = []
    module = Scaled()
    compiled = torch.compile(module, backend=lambda gm, _: graphs.append(gm) or gm, dynamic=True)

    def is_another_graph(x: torch.Tensor) -> bool:
        before = len(graphs)
        compiled(x)
        return len(graphs) > before

    with torch.no_grad():
        x = torch.rand(4, 4)
        assert is_another_graph(x) and not is_another_graph(x.clone())
        assert is_another_graph(x.t())
        assert is_another_graph(torch.rand(8, 8)[::2, ::2])
        assert is_another_graph(torch._neg_view(x))
        module.weight.data = module.weight.data.clone().t()
        assert is_another_graph(x)
        module.shift = module.shift.t()
        assert is_another_graph(x)
