"""Helpers of the compiler's tests: a packed comparison with eager torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_mojo.compiler.backend import max_backend

Case = tuple[str, Callable[..., Any]]


def compile_max(
    f: Callable[..., Any], *, fallback: str = "error", **kwargs: Any
) -> Callable[..., Any]:
    """Compile with the max backend, by default refusing to fall back."""
    return torch.compile(f, backend=max_backend, options={"fallback": fallback}, **kwargs)


def packed(cases: list[Case]) -> Callable[..., tuple[Any, ...]]:
    """Return one function that computes every case."""

    def f(*args: torch.Tensor) -> tuple[Any, ...]:
        return tuple(case(*args) for _, case in cases)

    return f


def same(actual: Any, expected: Any, what: str, **tolerance: float) -> None:
    """Compare values, dtype, sizes and strides with eager torch's."""
    if isinstance(expected, (tuple, list)):
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            same(a, e, f"{what}[{i}]", **tolerance)
        return
    assert actual.dtype == expected.dtype, f"{what}: {actual.dtype}, eager has {expected.dtype}"
    assert actual.shape == expected.shape, f"{what}: {actual.shape}, eager has {expected.shape}"
    if expected.numel():
        kept = [d for d, s in enumerate(expected.shape) if s != 1]
        strides = [[t.stride(d) for d in kept] for t in (actual, expected)]
        assert strides[0] == strides[1], f"{what}: strides {strides[0]}, eager has {strides[1]}"
    torch.testing.assert_close(
        actual,
        expected,
        equal_nan=True,
        msg=lambda m: f"{what}: {m}\n{actual}\n{expected}",
        **tolerance,
    )


def check(
    cases: list[Case], *args: torch.Tensor, compiled: Callable[..., Any] | None = None
) -> None:
    """Compare every case with eager torch; all cases are one MAX graph."""
    f = packed(cases)
    actual = (compiled or compile_max(f))(*args)
    wrong = []
    for (name, _), a, e in zip(cases, actual, f(*args), strict=True):
        try:
            same(a, e, name)
        except AssertionError as error:
            wrong.append(str(error))
    assert not wrong, "\n\n".join(wrong)
