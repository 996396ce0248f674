"""Moving elements: views, joins and cuts, with torch's strides, for static and changing sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiles import Compiles
from packing import Case, check, compile_max, packed, same
from torch.utils._pytree import tree_map

from torch_mojo.compiler.explain import explain

CASES: list[Case] = [
    ("view", lambda x, y: (x + 1).view(-1)),
    ("view 2", lambda x, y: (x + 1).view(x.shape[0] * 2, -1)),
    ("reshape", lambda x, y: x.transpose(0, 1).reshape(-1, 2) * 2),
    ("permute", lambda x, y: (x + 2).permute(2, 0, 1)),
    ("t", lambda x, y: (y + 1).t()),
    ("transpose neg", lambda x, y: (x + 3).transpose(-1, 0)),
    ("unsqueeze", lambda x, y: (x + 4).unsqueeze(1).unsqueeze(-1)),
    ("squeeze", lambda x, y: (x + 5).unsqueeze(1).squeeze()),
    ("squeeze dim", lambda x, y: (x + 6).unsqueeze(1).squeeze(1)),
    ("expand", lambda x, y: (x.sum((0, 1)) + 1).expand(3, 4)),
    ("expand new", lambda x, y: (x.sum(1, keepdim=True) + 1).expand(-1, 2, -1)),
    ("slice", lambda x, y: (x * 3)[:, 1:]),
    ("slice step", lambda x, y: (x * 4)[:, ::2] + 0),
    ("slice step out", lambda x, y: (x * 4.5)[..., ::2]),
    ("slice neg", lambda x, y: (x * 5)[:, -2:, :-1] + 0),
    ("slice beyond", lambda x, y: (x * 6)[:, 1:1000] + 0),
    ("select", lambda x, y: x[:, 1] * 2),
    ("select -1", lambda x, y: x[-1] * 2),
    ("cat", lambda x, y: torch.cat([x, x * 2], 0)),
    ("cat 1", lambda x, y: torch.cat([x, x[:, :1], x.double()], 1)),
    ("stack", lambda x, y: torch.stack([x, x + 1], 1)),
    ("split", lambda x, y: [p + 1 for p in y.split(2, 1)]),
    ("split sizes", lambda x, y: [p + 1 for p in y.split([1, 2, 2], 1)]),
    ("unbind", lambda x, y: [p + 1 for p in x.unbind(1)]),
    ("chunk", lambda x, y: [p + 1 for p in y.chunk(2, 1)]),
    ("pad", lambda x, y: torch.nn.functional.pad(y, (1, 2, 0, 1), value=7.0)),
    ("full", lambda x, y: torch.full((x.shape[0], 2), 2.5) + x[:, :2, 0]),
    ("ones_like", lambda x, y: torch.ones_like(x) + torch.zeros(4)),
    ("arange", lambda x, y: torch.arange(x.shape[0]) * 2 + torch.arange(1, x.shape[0] * 2, 2)),
    ("arange float", lambda x, y: torch.arange(4, dtype=torch.float32) + x),
    ("contiguous", lambda x, y: (x * 7).permute(2, 1, 0).contiguous()),
    ("clone", lambda x, y: (x.permute(1, 0, 2) * 8).clone()),
    ("mul t", lambda x, y: x.permute(1, 2, 0) * 9),
    ("6 dims", lambda x, y: (x.reshape(-1, 2, 1, 3, 2, 1) * 2).permute(5, 4, 3, 2, 1, 0)),
    ("matmul", lambda x, y: x @ y[:4]),
    ("mm t", lambda x, y: x[:, 0] @ x[:, 1].t()),
    ("bmm", lambda x, y: torch.bmm(x, x.transpose(1, 2))),
    ("addmm", lambda x, y: torch.addmm(y[0], x[:, 0], y[:4], beta=0.5, alpha=2)),
    ("tril", lambda x, y: x.tril()),
]


def inside(cases: list[Case]) -> list[Case]:
    """Add one to every result: views that are results themselves would be left to torch."""

    def wrap(case: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: tree_map(lambda t: t + 1, case(*args))

    return [(name, wrap(case)) for name, case in cases]


def test_static() -> None:
    """Contiguous inputs of fixed sizes."""
    torch.manual_seed(0)
    check(inside(CASES), torch.randn(6, 3, 4), torch.randn(5, 5))


@pytest.mark.slow
def test_dynamic(compiles: Compiles) -> None:
    """One compile serves every size of the first dim, and strided inputs too (U8's kind)."""
    torch.manual_seed(0)
    compiled = compile_max(packed(inside(CASES)), dynamic=True)
    for rows in (6, 2, 10):
        check(inside(CASES), torch.randn(rows, 3, 4), torch.randn(5, 5), compiled=compiled)
    assert len(compiles) == 1


@pytest.mark.slow
def test_strided_inputs() -> None:
    """Transposed, cut and broadcast inputs have the right values (U8)."""

    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 2, y + 1, z.sum(1) - 1, x[0] + y[0, :2], (z * 3).amax(0)

    x = torch.arange(6.0).reshape(2, 3).t()
    y, z = torch.arange(8.0).reshape(2, 4)[:, ::2], torch.ones(1).expand(3, 1000)
    got = compile_max(f)(x, y, z)
    assert got[0].tolist() == [[0, 6], [2, 8], [4, 10]] and got[0].stride() == (1, 3)
    assert got[1].tolist() == [[1, 3], [5, 7]]
    assert got[2].tolist() == [999.0] * 3
    same(got, f(x, y, z), "strided")


@pytest.mark.slow
def test_kinds_of_inputs(compiles: Compiles) -> None:
    """An offset (U8), a 0-d bool and a 0-d float (U12), vmap over either dim (U31), float16 (U44)."""

    def f(
        c: torch.Tensor, flag: torch.Tensor, x: torch.Tensor, h: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            c * 2,
            torch.where(flag, x, -x),
            x[0] * 2,
            h + h * 2,
            torch.vmap(torch.mul, (0, None))(y, x),
            torch.vmap(torch.mul, (1, 0))(y, x),
        )

    compiled = compile_max(f)
    x, h = torch.tensor([1.0, 2, 3]), torch.tensor([0.5, 65504, -2], dtype=torch.float16)
    c, y = torch.arange(5.0)[1:4], torch.arange(6.0).view(2, 3) + 1
    for flag in (True, False):
        args = (c, torch.tensor(flag), x, h, y)
        got = compiled(*args)
        same(got, f(*args), f"flag={flag}")
        assert got[0].tolist() == [2, 4, 6]
        assert got[1].tolist() == ([1, 2, 3] if flag else [-1, -2, -3])
        assert got[2].dim() == 0 and got[2].item() == 2
        assert got[4].tolist() == [[1, 4, 9], [4, 10, 18]]
        assert got[5].tolist() == [[1, 4], [4, 10], [9, 18]]
    assert len(compiles) == 1


def test_as_strided_of_itself_is_a_view() -> None:
    """With its own sizes, strides and offset it goes into the graph as what it is."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return torch.as_strided(y, y.shape, y.stride()) + torch.as_strided(y, (3, 4), (4, 1), 0)

    report = explain(f, torch.ones(3, 4))
    assert report.graphs[0].islands[0]["aten.as_strided.default"] >= 1
    assert not report.graphs[0].eager


@pytest.mark.slow
@pytest.mark.parametrize("strides", [(77, 1), (1, 1), (5, 1)])
def test_strides_of_size_one(strides: tuple[int, int], compiles: Compiles) -> None:
    """A dim of size 1 may have any stride (U13): no rejection, and no compile for it alone."""
    compiled = compile_max(lambda x: (x * 2, x + 1, x - 1))
    plain = torch.arange(77.0).reshape(1, 77)
    odd = torch.as_strided(plain.clone(), (1, 77), strides)
    for x in (plain, odd, plain):
        same(compiled(x), (x * 2, x + 1, x - 1), str(x.stride()))
    assert len(compiles) == 1


@pytest.mark.slow
def test_promised_strides(compiles: Compiles) -> None:
    """The result of a transposed input is transposed (U22), and stays so after a product."""
    x = torch.rand(6, 5).t()

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * 2, (x + 1).contiguous(), (x @ x.t()).t(), x.double()

    same(compile_max(f)(x), f(x), "strides")
    assert compile_max(f)(x)[0].stride() == (1, 5)
    assert len(compiles) == 1
