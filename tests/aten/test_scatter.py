"""The operators that write at indices: scatter and its reductions, index_add, index_copy, index_fill, index_put, put."""

import random

import pytest
import torch
from against import DTYPES, agree, strided, traces, values
from cross import cross_build
from test_index import patterns, refused

from torch_mojo import aten as ours
from torch_mojo.aten.decompositions import DECOMPOSITIONS

aten = torch.ops.aten
REDUCTIONS = ["sum", "prod", "mean", "amax", "amin"]
nan, inf = float("nan"), float("inf")


def drawn(seed: int) -> tuple[torch.Tensor, int, torch.Tensor, torch.Tensor]:
    """Return a tensor, a dimension, an index that may be smaller in the others, and a src that may be larger."""
    chosen = random.Random(seed)
    torch.manual_seed(seed)
    dim = seed % 3
    shape = [chosen.randint(1, 6) for _ in range(3)]
    smaller = [chosen.randint(1, n) for n in shape]
    smaller[dim] = chosen.randint(0, 9)
    larger = [n + chosen.randint(0, 1) for n in smaller]
    return values(*shape), dim, torch.randint(0, shape[dim], smaller), values(*larger)


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
def test_scatter(layout: str) -> None:
    for seed in range(12):
        x, dim, index, src = drawn(seed)
        if layout == "strided":
            x, index, src = strided(x), strided(index), strided(src)
        agree(aten.scatter.src, x, dim, index, src)


def test_scatter_value() -> None:
    for seed in range(12):
        x, dim, index, _ = drawn(seed)
        agree(aten.scatter.value, x, dim - 3, index, 2.5)
    agree(aten.scatter.value, x, 0, index[:1], nan)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_scatter_reduce(reduce: str) -> None:
    for seed in range(24):
        x, dim, index, src = drawn(seed)
        how = seed % 2 == 0
        agree(aten.scatter_reduce.two, x, dim, index, src, reduce, include_self=how, tolerance=1e-6)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_scatter_reduce_of_nan_and_infinities(reduce: str) -> None:
    special = [nan, inf, -inf, 0.0, -0.0, 1.0]
    for seed in range(12):
        chosen = random.Random(seed)
        x = torch.tensor([chosen.choice(special) for _ in range(4)]).reshape(1, 1, 4)
        src = torch.tensor([chosen.choice(special) for _ in range(9)]).reshape(1, 1, 9)
        index = torch.randint(0, 4, (1, 1, 9))
        agree(aten.scatter_reduce.two, x, 2, index, src, reduce, include_self=seed % 2 == 0)


def test_scatter_add_and_the_old_reductions() -> None:
    x, dim, index, src = drawn(7)
    agree(aten.scatter_add.default, x, dim, index, src, tolerance=1e-6)
    agree(aten.scatter.reduce, x, dim, index, src, reduce="add", tolerance=1e-6)
    agree(aten.scatter.reduce, x, dim, index, src, reduce="multiply", tolerance=1e-6)


@pytest.mark.slow
def test_scatter_value_with_the_old_reductions() -> None:
    x, dim, index, _ = drawn(7)
    for reduce in ("add", "multiply"):
        agree(aten.scatter.value_reduce, x, dim, index, 1.5, reduce=reduce, tolerance=1e-6)


def slices(dim: int, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = values(4, 3, 70)
    shape = list(x.shape)
    shape[dim] = count
    return x, torch.randint(0, x.shape[dim], (count,)), values(*shape)


def test_index_add_copy_and_fill() -> None:
    torch.manual_seed(3)
    for dim, count in ((0, 9), (1, 1), (2, 80), (-1, 3), (1, 0)):
        x, index, source = slices(dim, count)
        agree(aten.index_add.default, x, dim, index, source)
        agree(aten.index_add.default, x, dim, index, source, alpha=-0.5, tolerance=1e-6)
        agree(aten.index_copy.default, x, dim, index, source)
        agree(aten.index_fill.int_Scalar, x, dim, index - x.shape[dim] * (count % 2), 3)
        agree(aten.index_fill.int_Tensor, x, dim, index, torch.tensor(1.25))


@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(accumulate: bool) -> None:
    torch.manual_seed(4)
    for seed in range(60):
        x = values(4, 3, 5)
        x = x.transpose(0, 2) if seed % 5 == 0 else x
        indices = patterns(seed, tuple(x.shape))
        shape = list(aten.index.Tensor(x, indices).shape)
        while shape and random.Random(seed).random() < 0.3:
            shape = shape[1:]  # broadcasts
        if not accumulate:  # which of several writers wins is torch's secret: all write the same
            agree(aten.index_put.default, x, indices, values(*shape[len(shape) :]), False)
        else:
            agree(aten.index_put.default, x, indices, values(*shape), True, tolerance=1e-6)


def test_index_put_without_repetition() -> None:
    x = values(4, 3, 5)
    rows, columns = torch.tensor([[3], [0]]), torch.tensor([[1, 2, -5]])
    agree(aten.index_put.default, x, [rows, None, columns], values(2, 3, 3))
    agree(aten.index_put.default, x, [None, rows.flatten()[1:], torch.tensor([1])], values(4, 1))
    agree(aten._unsafe_index_put.default, x, [torch.tensor([2, 0])], values(2, 3, 5))


def test_put() -> None:
    x = values(4, 3, 5)
    index = torch.randperm(60)[:14].reshape(2, 7) - 60
    agree(aten.put.default, x, index, values(2, 7))
    agree(aten.put.default, x, index % 7, values(2, 7), True, tolerance=1e-6)
    agree(aten.put.default, x.transpose(0, 2), index, values(2, 7))


@pytest.mark.parametrize("bad", [7, -1, -9])
def test_out_of_range(bad: int) -> None:
    x = values(4, 3, 70)
    index = torch.tensor([0, bad])
    source = values(4, 2, 70)
    many = torch.zeros(4, 3, 70, dtype=torch.int64)
    many[1, 2, 0] = bad
    wraps = 3 * (bad == -1)
    for op, args in (
        (aten.scatter.src, (x, 1, many, x)),
        (aten.scatter.value, (x, 1, many, 1.0)),
        (aten.scatter_reduce.two, (x, 1, many, x, "amax")),
        (aten.index_add.default, (x, 1, index, source)),
        (aten.index_copy.default, (x, 1, index, source)),
        (aten.index_fill.int_Scalar, (x, 1, index - wraps, 1.0)),
        (aten.index_put.default, (x[:, :, :5], [None, index - wraps], torch.tensor(1.0), True)),
    ):
        if op is aten.index_add.default:  # torch's words depend on the shape
            with pytest.raises(RuntimeError, match=f"index {bad} is out of bounds"):
                DECOMPOSITIONS[op](*args)
            continue
        refused(
            lambda op=op, args=args: DECOMPOSITIONS[op](*args),
            lambda op=op, args=args: op(*args),
        )


def test_shapes_that_do_not_fit_are_refused() -> None:
    x, index = values(4, 3, 5), torch.zeros(4, 3, 5, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="no larger than self"):
        ours.scatter(x, 1, index, values(4, 2, 5))
    with pytest.raises(RuntimeError, match="source tensor shape must match"):
        ours.index_add(x, 1, torch.tensor([0]), values(4, 2, 5))


def test_traces_with_symbolic_sizes() -> None:
    def write(
        x: torch.Tensor, i: torch.Tensor, j: torch.Tensor, m: torch.Tensor, rows: torch.Tensor
    ) -> list[torch.Tensor]:
        return [
            x.scatter(1, m, x + 1),
            x.scatter(1, m, 1.0),
            x.scatter_reduce(1, m, x, "mean"),
            x.index_add(0, i, rows),
            x.index_copy(0, i, rows),
            x.index_fill(0, i, 2.0),
            x.index_put((i,), rows, accumulate=True),
            x.index_put((i, j), rows[0, 0, 0], accumulate=True),
            aten.index_put(x, [i, None, j], rows[:, 0], True),
            x.put(m, x, accumulate=True),
        ]

    def args(n: int, k: int) -> tuple[torch.Tensor, ...]:
        i, j = torch.randperm(n)[:k], torch.randint(-n, n, (k,))
        m = torch.randint(0, n, (n, n, n))
        return values(n, n, n).round(), i, j, m, values(k, n, n).round()

    traces(write, args(4, 3), args(6, 5))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_dtypes(dtype: torch.dtype) -> None:
    for seed in range(4):
        x, dim, index, src = drawn(seed)
        x, src = values(*x.shape, dtype=dtype), values(*src.shape, dtype=dtype)
        agree(aten.scatter.src, x, dim, index, src)
        for reduce in REDUCTIONS:
            if dtype == torch.bool and reduce == "mean":
                continue
            if dtype in (torch.float64, torch.int16, torch.int32) and reduce != "sum":
                continue  # nothing new
            for own in (True, False):
                agree(aten.scatter_reduce.two, x, dim, index, src, reduce, include_self=own)
        x, index, source = slices(1, 6)
        x, source = values(*x.shape, dtype=dtype), values(*source.shape, dtype=dtype)
        agree(aten.index_add.default, x, 1, index, source)
        if dtype != torch.bool:
            agree(aten.index_add.default, x, 1, index, source, alpha=2)
        agree(aten.index_copy.default, x, 1, index, source)
        agree(aten.index_fill.int_Scalar, x, 1, index, 1)
        agree(aten.index_put.default, x, [None, index], source, True)


@pytest.mark.slow
def test_ranks() -> None:
    one, two = torch.tensor(2.0), torch.tensor(3.0)
    for i in (torch.tensor(0), torch.tensor([0])):
        agree(aten.scatter.src, one, 0, i, two.reshape(i.shape))
        agree(aten.scatter.value, one, -1, i, 4.0)
        agree(aten.scatter_reduce.two, one, 0, i, two.reshape(i.shape), "sum")
    agree(aten.index_add.default, one, 0, torch.tensor(0), two)
    agree(aten.index_fill.int_Scalar, one, 0, torch.tensor(0), 5)
    agree(aten.index_copy.default, one, 0, torch.tensor(0), two)
    x = values(5)
    agree(aten.index_add.default, x, 0, torch.tensor([1, 1, 0]), values(3))
    agree(aten.index_add.default, x, 0, torch.tensor([1, 1, 0], dtype=torch.int32), values(3))
    agree(aten.scatter_add.default, x, 0, torch.tensor([1, 1, 0]), values(3))
    agree(aten.index_put.default, x, [torch.tensor([-1, 1])], values(2), True)


@pytest.mark.slow
def test_large() -> None:
    torch.manual_seed(5)
    x, src = torch.randn(3, 3000, 40), torch.randn(3, 5000, 40)
    index = torch.randint(0, 3000, (3, 5000, 40))
    agree(aten.scatter_reduce.two, x, 1, index, src, "sum", tolerance=1e-5)
    agree(aten.scatter_reduce.two, x, 1, index, src, "amax")
    rows = torch.randint(0, 3000, (5000,))
    agree(aten.index_add.default, x, 1, rows, src, tolerance=1e-5)


@pytest.mark.slow
def test_builds_for_a_gpu() -> None:
    x, i = values(4, 3, 5), torch.tensor([0, 1])
    index = torch.zeros(4, 3, 5, dtype=torch.int64)
    half = x.bfloat16()
    for function, args in (
        (ours.scatter, (x, 1, index, x)),
        (ours.scatter_value, (x, 1, index, torch.tensor(1.0))),
        (ours.scatter_reduce, (half, 1, index, half, "mean", False)),
        (ours.scatter_reduce, (x, 1, index, x, "amax", True)),
        (ours.index_add, (x, 1, i, values(4, 2, 5))),
        (ours.index_add, (half, 1, i, values(4, 2, 5))),
        (ours.index_fill, (x, 1, i, torch.tensor(1.0))),
    ):
        _ = function.op
        assert b".target sm_90" in cross_build(function._overload, *args).read_bytes()
