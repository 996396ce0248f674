"""How long a compiled graph holds what it is given."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from compiles import Compiles
from max.driver import Buffer
from packing import compile_max, same
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from torch_mojo.compiler import session
from torch_mojo.compiler.boxed import boxed


def test_a_boxed_graph_drops_each_argument_after_its_last_use() -> None:
    """Also one that is never used; and the list is empty."""
    seen: list[list[bool]] = []
    refs: list[StorageWeakRef] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append([r.expired() for r in refs])
        return x

    graph = torch.fx.Graph()
    a, b, _unused = (graph.placeholder(n) for n in ("a", "b", "c"))
    first = graph.call_function(torch.neg, (a,))
    first = graph.call_function(look, (first,))
    second = graph.call_function(torch.add, (first, b))
    graph.output((graph.call_function(look, (second,)),))
    run = boxed(torch.fx.GraphModule({}, graph))
    given = [torch.ones(3) * i for i in (1, 2, 3)]
    refs += [StorageWeakRef(t.untyped_storage()) for t in given]
    assert run._boxed_call
    (got,) = run(given)
    assert got.tolist() == [1, 1, 1] and given == []
    assert seen == [[True, False, True], [True, True, True]]


def test_a_boxed_graph_without_arguments() -> None:
    graph = torch.fx.Graph()
    graph.output((graph.call_function(torch.ones, (2,)),))
    (got,) = boxed(torch.fx.GraphModule({}, graph))([])
    assert got.tolist() == [1, 1]


class Watch(TorchDispatchMode):
    """Notes at each operator that eager torch runs which storages are gone."""

    def __init__(self, saved: list[StorageWeakRef]) -> None:
        super().__init__()
        self.saved = saved
        self.gone: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.gone[str(func)] = sum(s.expired() for s in self.saved)
        return func(*args, **(kwargs or {}))


@pytest.mark.slow
def test_saved_tensors_die_during_the_backward(compiles: Compiles) -> None:
    """What the first MAX graph of a backward has used is gone before the next operator runs."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.fft.rfft(torch.sin(x) * torch.cos(x) * 2).abs()
        return torch.tanh(y * y + 1).exp() * y

    x = torch.randn(64, requires_grad=True)
    compiled = compile_max(f, fallback="eager")
    with pytest.warns(UserWarning, match="fft"):
        (expected,) = torch.autograd.grad(f(x).sum(), x)
        got = torch.autograd.grad(compiled(x).sum(), x)
        same(got, (expected,), "gradient", rtol=1e-4, atol=1e-4)
    assert len(compiles) >= 3
    out = compiled(x)
    refs = [
        StorageWeakRef(t.untyped_storage())
        for t in out.grad_fn.saved_tensors
        if t.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    ]
    total = out.sum()
    del out
    gc.collect()
    assert refs and not any(r.expired() for r in refs)
    with Watch(refs) as watch:
        total.backward()
    assert x.grad is not None and torch.allclose(x.grad, expected, atol=1e-4)
    before, after = (
        min(n for op, n in watch.gone.items() if part in op) for part in ("ones_like", "fft_c2c")
    )
    assert before == 0 and after > 0
    assert all(r.expired() for r in refs)


def test_reset_lets_models_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal graphs share a model while one of them is in use; torch._dynamo.reset() ends that."""

    class Model:
        def _execute_device_tensors(self, buffers: list[Buffer]) -> list[Buffer]:
            return [Buffer.from_dlpack(torch.from_dlpack(buffers[0]) * 2)]

    models: list[weakref.ref[Model]] = []

    def compile_graph(graph: Any, nodes: int) -> Model:
        model = Model()
        models.append(weakref.ref(model))
        return model

    monkeypatch.setattr(session, "compile_graph", compile_graph)
    monkeypatch.setattr(session, "_models", weakref.WeakValueDictionary())
    x = torch.ones(3)
    for f in (lambda x: x * 2, lambda y: y * 2):
        assert compile_max(f)(x).tolist() == [2, 2, 2]
    gc.collect()
    assert len(models) == 1 and models[0]() is not None
    torch._dynamo.reset()
    gc.collect()
    assert models[0]() is None
    assert compile_max(lambda x: x * 2)(x).tolist() == [2, 2, 2]
    assert len(models) == 2
