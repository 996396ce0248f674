"""What counts as a difference between MAX's values and eager torch's."""

from __future__ import annotations

from typing import Any

import torch

# Allowed: this part of the value itself, and this part of the largest value of the tensor, which
# stands for the rounding of sums.
TOLERANCES: dict[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-9, 1e-10),
    torch.float32: (1e-4, 1e-5),
    torch.float16: (5e-3, 2e-3),
    torch.bfloat16: (2e-2, 1e-2),
}


def difference(actual: Any, expected: Any) -> str | None:
    """Say how a value differs from eager torch's, or return None if it agrees.

    Integers and bools must be equal; infinities and NaN must stand at the same places.

    Args:
        actual: a tensor, or a number, or a list or tuple of them.
        expected: eager torch's.
    """
    if isinstance(expected, (tuple, list)):
        pairs = zip(actual, expected, strict=True)
        return next((d for a, e in pairs if (d := difference(a, e)) is not None), None)
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        return None if actual == expected else f"MAX {actual}, eager {expected}"
    for name, a, e in (
        ("dtype", actual.dtype, expected.dtype),
        ("shape", tuple(actual.shape), tuple(expected.shape)),
        ("device", actual.device, expected.device),
    ):
        if a != e:
            return f"{name} {a}, eager {e}"
    wrong = _wrong(actual, expected)
    count = int(wrong.sum())
    if not count:
        return None
    if not expected.dim():
        return f"MAX {actual.item()}, eager {expected.item()}"
    place = _worst(actual, expected, wrong)
    return (
        f"{count} of {expected.numel()} values, most at {list(place)}: "
        f"MAX {actual[place].item()}, eager {expected[place].item()}"
    )


def _wrong(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    if not expected.dtype.is_floating_point:
        return actual != expected
    relative, of_largest = TOLERANCES[expected.dtype]
    a, e = actual.double(), expected.double()
    finite = e.isfinite()
    largest = e.abs()[finite].max() if finite.any() else 0
    near = (a - e).abs() <= relative * e.abs() + of_largest * largest
    return ~torch.where(finite, near, (a == e) | (a.isnan() & e.isnan()))


def _worst(actual: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> tuple[int, ...]:
    apart = (actual.double() - expected.double()).abs().nan_to_num(torch.inf, torch.inf)
    flat = torch.where(wrong, apart, -1).argmax()
    return tuple(int(i) for i in torch.unravel_index(flat, wrong.shape))
