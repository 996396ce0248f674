"""The operators that read at indices: gather, index_select, embedding, index, take."""

import random
from typing import Any

import pytest
import torch
from against import DTYPES, agree, same, strided, traces, values
from cross import cross_build

from torch_mojo import aten as ours
from torch_mojo.aten.decompositions import DECOMPOSITIONS

aten = torch.ops.aten


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
def test_gather(layout: str) -> None:
    torch.manual_seed(0)
    for seed in range(12):
        dim = seed % 3
        shape = [random.Random(seed + d).randint(1, 7) for d in range(3)]
        smaller = [max(1, n - seed % 2) for n in shape]
        smaller[dim] = 9 if seed else 0
        x, index = values(*shape), torch.randint(0, shape[dim], smaller)
        if layout == "strided":
            x, index = strided(x), strided(index)
        agree(aten.gather.default, x, dim - 3 if seed % 2 else dim, index)


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
def test_index_select(layout: str) -> None:
    torch.manual_seed(1)
    for dim, count in ((0, 5), (1, 3), (2, 4), (-1, 1), (1, 0)):
        x = values(4, 3, 70)
        index = torch.randint(0, x.shape[dim], (count,))
        if layout == "strided":
            x, index = strided(x), strided(index)
        agree(aten.index_select.default, x, dim, index)


def test_embedding() -> None:
    weight = values(7, 5)
    for shape in ((2, 3), (0, 4), (1, 1)):
        agree(aten.embedding.default, weight, torch.randint(0, 7, shape))
    agree(aten.embedding.default, strided(weight), strided(torch.randint(0, 7, (2, 3))))
    agree(aten.embedding.default, weight, torch.randint(0, 7, (2, 3)), 3)


def patterns(seed: int, shape: tuple[int, ...]) -> list[torch.Tensor | None]:
    """Indices that broadcast, for some of the dimensions, negative ones among them."""
    chosen = random.Random(seed)
    count = chosen.randint(1, len(shape))
    dims = chosen.sample(range(len(shape)), count)
    common = [chosen.randint(1, 4) for _ in range(chosen.randint(1, 2))]
    if chosen.random() < 0.1:
        common[0] = 0
    indices: list[torch.Tensor | None] = [None] * (max(dims) + 1)
    for d in dims:
        own = [1 if chosen.random() < 0.3 and n else n for n in common]
        own = own[chosen.randint(0, len(own) - 1) :]
        indices[d] = torch.randint(-shape[d], shape[d], own)
    return indices


@pytest.mark.parametrize("part", range(3))
def test_index(part: int) -> None:
    torch.manual_seed(part)
    for seed in range(40):
        shape = (4, 3, 5)
        x = values(*shape)
        x = x.transpose(0, 2) if seed % 5 == 0 else x
        agree(aten.index.Tensor, x, patterns(100 * part + seed, tuple(x.shape)))


def test_index_with_other_integers_and_single_ones() -> None:
    x = values(4, 3, 5)
    agree(aten.index.Tensor, x, [None, torch.tensor([2, -1, 0], dtype=torch.int32)])
    agree(aten.index.Tensor, x, [torch.tensor(-1)])
    agree(aten.index.Tensor, x, [torch.tensor(1), None, torch.tensor([0, 4])])
    agree(aten._unsafe_index.Tensor, x, [None, None, torch.tensor([[0], [4]])])
    empty = values(4, 0, 5)
    agree(aten.index.Tensor, empty, [torch.tensor([1, 2, -1])])
    agree(aten.index.Tensor, empty, [None, torch.empty(0, dtype=torch.int64)])


def test_take() -> None:
    x = values(4, 3, 5)
    for index in (torch.randint(-60, 60, (2, 6)), torch.tensor(-3), torch.empty(0, 2).long()):
        agree(aten.take.default, x, index)
        agree(aten.take.default, x.transpose(0, 1), index)


def refused(call: Any, wanted: Any) -> None:
    """Both raise, with the same words."""
    with pytest.raises((RuntimeError, IndexError)) as theirs:
        wanted()
    with pytest.raises((RuntimeError, IndexError)) as own:
        call()
    assert str(theirs.value).splitlines()[0] in str(own.value)


@pytest.mark.parametrize("bad", [7, -1, -9])
def test_out_of_range(bad: int) -> None:
    x = values(4, 3, 5)
    index = torch.tensor([0, bad])
    many = torch.zeros(4, 3, 3, dtype=torch.int64)
    many[1, 2, 0] = bad
    for op, args in (
        (aten.gather.default, (x, 2, many)),
        (aten.index_select.default, (x, 0, index)),
        (aten.embedding.default, (x[0], index.reshape(1, 2))),
        (aten.index.Tensor, (x, [None, index - 3 * (bad == -1)])),
        (aten.index.Tensor, (x, [torch.tensor([0, 1]), None, index - 5 * (bad == -1)])),
        (aten.take.default, (x, index * 60 - int(bad == -1))),
    ):
        if op is aten.index_select.default:  # torch's words depend on the rank
            with pytest.raises(RuntimeError, match="index out of range in self"):
                DECOMPOSITIONS[op](*args)
            continue
        refused(
            lambda op=op, args=args: DECOMPOSITIONS[op](*args), lambda op=op, args=args: op(*args)
        )


def test_a_larger_index_is_refused() -> None:
    with pytest.raises(RuntimeError, match="no larger than self"):
        ours.gather(values(4, 3, 5), 1, torch.zeros(5, 3, 5, dtype=torch.int64))


def test_what_is_left_to_torch() -> None:
    x = values(4, 3, 5)
    mask = torch.ones(4, dtype=torch.bool)
    assert DECOMPOSITIONS[aten.index.Tensor](x, [mask]) is NotImplemented
    assert DECOMPOSITIONS[aten.index.Tensor](x, [mask.byte()]) is NotImplemented
    complex_ = x.to(torch.complex64)
    assert DECOMPOSITIONS[aten.take.default](complex_, torch.tensor([0])) is NotImplemented


def test_traces_with_symbolic_sizes() -> None:
    def read(x: Any, i: Any, j: Any, m: Any) -> list[torch.Tensor]:
        return [
            x.gather(1, m),
            x.index_select(2, i),
            torch.nn.functional.embedding(x[:, :, 0], m[0]),
            x[i],
            x[:, i, j],
            x[i, :, j],
            x[i[:, None], j],
            x.take(m),
        ]

    def args(n: int, k: int) -> tuple[torch.Tensor, ...]:
        i, j = torch.randint(-n, n, (k,)), torch.randint(-n, n, (k,))
        return torch.randint(0, n, (n, n, n)), i.abs() % n, j, torch.randint(0, n, (n, n, n))

    traces(read, args(4, 3), args(6, 5))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_dtypes(dtype: torch.dtype) -> None:
    x = values(4, 3, 5, dtype=dtype)
    agree(aten.gather.default, x, 1, torch.randint(0, 3, (4, 6, 5)))
    agree(aten.index.Tensor, x, [None, torch.randint(-3, 3, (6,))])


@pytest.mark.slow
def test_ranks() -> None:
    index = torch.tensor([0, 1, 1])
    for x in (values(5), values(4, 3, 5, 2)):
        agree(aten.index_select.default, x, 0, index)
        agree(aten.gather.default, x, 0, torch.randint(0, 4, x.shape))
        agree(aten.index.Tensor, x, [index - 2])
    one = torch.tensor(2.0)
    for i in (torch.tensor(0), torch.tensor([0]), torch.tensor([0, 0])):
        agree(aten.gather.default, one, 0, i)
    agree(aten.index_select.default, one, 0, torch.tensor(0))
    agree(aten.index_select.default, values(5), -1, torch.tensor(4))
    agree(aten.embedding.default, values(5, 2), torch.tensor(3))
    agree(aten.gather.default, values(4, 3, 5), 1, torch.zeros(4, 3, 5, dtype=torch.int32))


@pytest.mark.slow
def test_large() -> None:
    x = torch.randn(3, 3000, 40)
    index = torch.randint(0, 3000, (3, 5000, 40))
    same(ours.gather(x, 1, index), x.gather(1, index))
    agree(aten.index.Tensor, x, [None, torch.randint(-3000, 3000, (50000,))])


@pytest.mark.slow
def test_builds_for_a_gpu() -> None:
    x, i = values(4, 3, 5), torch.tensor([0, 1])
    for function, args in (
        (ours.gather, (x, 1, torch.zeros(4, 3, 5, dtype=torch.int64))),
        (ours.index_select, (x, 1, i)),
        (ours.embedding, (x[0], i)),
        (ours.checked_index, (i, x, 1, True, 0)),
    ):
        _ = function.op
        assert b".target sm_90" in cross_build(function._overload, *args).read_bytes()
