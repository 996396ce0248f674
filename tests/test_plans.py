"""Output plans against the bodies that they were traced from, and the parser of kernel signatures."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_mojo.dispatch import libtorch, plans, standins, symints
from torch_mojo.jit import signature


def run(plan: plans.Plan, tensors: list[torch.Tensor], ints: list[int]) -> list[Any] | None:
    """Run a plan as the router does; None if a guard fails."""
    words = iter(plan.words)
    flat: list[Any] = []
    for t in tensors:
        flat += [None, list(t.shape), list(t.stride())]
    flat += ints
    binary = {
        symints.ADD: operator.add, symints.SUB: operator.sub, symints.MUL: operator.mul,
        symints.FLOORDIV: operator.floordiv, symints.MOD: operator.mod, symints.MIN: min, symints.MAX: max,
        symints.EQ: operator.eq, symints.NE: operator.ne, symints.LT: operator.lt, symints.LE: operator.le,
    }  # fmt: skip

    def evaluate() -> int:
        stack: list[int] = []
        while (op := next(words)) != symints.END:
            if op == symints.CONST:
                stack.append(next(words))
            elif op == symints.SIZE:
                stack.append(flat[next(words) + 1][next(words)])
            elif op == symints.STRIDE:
                stack.append(flat[next(words) + 2][next(words)])
            elif op == symints.VALUE:
                stack.append(flat[next(words)])
            else:
                b, a = stack.pop(), stack.pop()
                stack.append(int(binary[op](a, b)))
        return stack[0]

    if not all([evaluate() for _ in range(next(words))]):
        return None
    outs = []
    for _ in range(next(words)):
        kind, dtype, _, _, rank = (next(words) for _ in range(5))
        if kind == standins.LIKE:
            at = next(words)
            outs.append((dtype, flat[at + 1], flat[at + 2]))
            continue
        sizes = [evaluate() for _ in range(rank)]
        strides = [evaluate() for _ in range(rank)] if kind == standins.STRIDED else None
        outs.append((dtype, sizes, strides or list(torch.empty(sizes, device="meta").stride())))
    return outs


def pad(x: torch.Tensor, y: torch.Tensor, k: int) -> torch.Tensor:
    n = x.shape[0]
    return x.new_empty((n + 3) // 4 * 4, *x.shape[1:], k)


def matmul(x: torch.Tensor, y: torch.Tensor, k: int) -> torch.Tensor:
    torch._check(x.size(1) == y.size(0))
    return torch.empty(x.shape[0], y.shape[1], dtype=x.dtype, device=x.device)


def broadcast(x: torch.Tensor, y: torch.Tensor, k: int) -> torch.Tensor:
    return torch.empty(torch.broadcast_shapes(x.shape, y.shape), dtype=torch.int32)


def branch(x: torch.Tensor, y: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    n = x.numel() if x.shape[0] > 4 else k - 1
    return x.new_empty(n), torch.empty_like(y, dtype=torch.bool)


def strided(x: torch.Tensor, y: torch.Tensor, k: int) -> torch.Tensor:
    return torch.empty_strided((x.shape[1], x.shape[0]), (1, x.shape[1] + k % 3))


def layout(x: torch.Tensor, y: torch.Tensor, k: int) -> torch.Tensor:
    return torch.zeros_like(x) if x.is_contiguous() else x.new_ones(min(x.shape[0], 5), x.stride(0))


def _rows(n: int, like: torch.Tensor) -> torch.Tensor:
    return torch.empty(n, 2, dtype=like.dtype) if n < 4 else _rows(n - 4, like)


def helped(x: torch.Tensor, y: torch.Tensor, k: int) -> torch.Tensor:
    def rows(n: int) -> torch.Tensor:
        return _rows(n, x)

    return rows(k)


def _maker(columns: int) -> Callable[[int], torch.Tensor]:
    def make(rows: int) -> torch.Tensor:
        return torch.empty(rows, columns)

    return make


_make = _maker(3)


def enclosed(x: torch.Tensor, y: torch.Tensor, k: int) -> torch.Tensor:
    return _make(x.shape[0] + k)


BODIES = [pad, matmul, broadcast, branch, strided, layout, helped, enclosed]
SIZES = [
    ((2, 3), (3, 4), 1),
    ((6, 3), (3, 1), 5),
    ((5, 3), (1, 3), 2),
    ((1, 1), (1, 7), 9),
    ((0, 3), (3, 2), 4),
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("first", SIZES)
def test_a_plan_says_what_its_body_says(body: Callable[..., Any], first: Any) -> None:
    x, y, k = torch.empty(first[0]), torch.empty(first[1]), first[2]

    def arguments(trace: symints.Trace) -> tuple[list[object], dict[str, object]]:
        tensors: list[object] = [
            standins.TensorIn(trace, t, 3 * i, 0) for i, t in enumerate((x, y))
        ]
        return [*tensors, symints.Sym(trace, [symints.VALUE, 6], k)], {}

    def real(a: torch.Tensor, b: torch.Tensor, n: int) -> list[Any] | None:
        try:
            made = body(a, b, n)
        except RuntimeError:
            return None
        made = made if isinstance(made, tuple) else (made,)
        return [(libtorch.dtype_code(t.dtype), list(t.shape), list(t.stride())) for t in made]

    plan = plans.trace(
        body, arguments, 2 if body is branch else 1, libtorch.dtype_code, libtorch.device_code
    )
    wanted = real(x, y, k)
    if plan is None:
        assert wanted is None, "what cannot be traced here is an error"
        return
    assert run(plan, [x, y], [k]) == wanted
    for shape, other, n in SIZES:
        a, b = torch.empty(shape), torch.empty(other)
        found = run(plan, [a, b], [n])
        assert found is None or found == real(a, b, n), "right, or a guard fails"


@pytest.mark.parametrize(
    "body",
    [
        lambda x, y, k: x.new_empty(int(x.sum())),
        lambda x, y, k: torch.empty_like(x.t()),
        lambda x, y, k: x,
        lambda x, y, k: torch.empty(k / 2),
        lambda x, y, k: None,
    ],
)
def test_what_cannot_be_traced_is_not(body: Callable[..., Any]) -> None:
    x = torch.ones(2, 3)

    def arguments(trace: symints.Trace) -> tuple[list[object], dict[str, object]]:
        tensors: list[object] = [standins.TensorIn(trace, x, 3 * i, 0) for i in range(2)]
        return [*tensors, symints.Sym(trace, [symints.VALUE, 6], 1)], {}

    assert plans.trace(body, arguments, 1, libtorch.dtype_code, libtorch.device_code) is None


def test_the_parser_reads_what_mojo_allows() -> None:
    text = '''
# @register("commented")
@compiler.register("first")  # a comment with ( and [
struct First[K: Int = 3, name: StaticString = "a, b"]:
    """Says @register("no") and def execute(nothing)."""

    @staticmethod
    fn helper(x: Int): pass

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, target: StaticString, f: Bool = (1 > 2)
    ](
        output: OutputTensor[dtype=dtype, rank=rank + 1, ...],  # the first
        mut state: _MutableInputTensor[dtype=DType.float32, rank=2, ...],
        xs: InputVariadicTensors[dtype, rank, ...],
        `in`: _FusedInputTensor[dtype=output.dtype, ...],
        alpha: Scalar[dtype],
        ctx: DeviceContext,
    ) raises:
        pass


@register("second")
struct Second:
    @staticmethod
    def execute(x: InputTensor): ...
'''
    first, second = signature.parse(text, "module")
    assert (first.name, first.struct, second.name, second.struct) == (
        "first",
        "First",
        "second",
        "Second",
    )
    assert [(p.name, p.default) for p in first.struct_parameters] == [
        ("K", "3"),
        ("name", '"    "'),
    ]
    assert [(p.name, p.inferred) for p in first.parameters] == [
        ("dtype", True),
        ("rank", True),
        ("target", False),
        ("f", False),
    ]
    assert [(a.name, a.io, a.many, a.fused) for a in first.arguments] == [
        ("output", "Output", False, False),
        ("state", "MutableInput", False, False),
        ("xs", "Input", True, False),
        ("in", "Input", False, True),
        ("alpha", None, False, False),
        ("ctx", None, False, False),
    ]
    assert first.arguments[0].constraints == {"dtype": "dtype", "rank": "rank + 1"}
    assert first.arguments[1].constraints == {"dtype": "DType.float32", "rank": "2"}
