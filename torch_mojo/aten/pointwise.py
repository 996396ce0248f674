"""Functions of one and of two numbers, elementwise.

Operands are promoted as torch does, `torch.result_type`. Of a function that has no integers as results, integers and
bools are taken in the default dtype. Halves are computed in float32.
"""

from collections.abc import Callable
from typing import ParamSpec

import torch

from torch_mojo.aten.indexing import NAMESPACE
from torch_mojo.functional.builtin import Kernel, kernel

P = ParamSpec("P")
Unary = Kernel[[torch.Tensor], torch.Tensor]
Binary = Kernel[[torch.Tensor, torch.Tensor], torch.Tensor]


def _pointwise(
    kernel_name: str, **constants: object
) -> Callable[[Callable[P, torch.Tensor]], Kernel[P, torch.Tensor]]:
    return kernel(
        namespace=NAMESPACE,
        file="aten_pointwise",
        kernel=kernel_name,
        constants=constants,
        broadcast=True,
        tags=(torch.Tag.pointwise,),
    )


ONE = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan"),
    *("erfc", "erfcx", "erfinv", "ndtri", "lgamma", "digamma", "trigamma"),
    *("i0", "i0e", "i1", "i1e", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"),
)
TWO = (  # and whether the result is floating-point whatever the operands
    *((name, True) for name in ("atan2", "copysign", "fmax", "fmin", "hypot", "zeta")),
    *((name, False) for name in ("fmod", "remainder", "div_floor", "div_trunc")),
    *((name, False) for name in ("gcd", "lcm", "pow")),
)


def _floating(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def _one(name: str) -> Unary:
    def body(input: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(input, dtype=_floating(input.dtype))

    body.__name__ = name
    body.__doc__ = f"Return {name} of each element."
    return _pointwise("aten_unary", function=name)(body)


def _both(input: torch.Tensor, other: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if input.shape == other.shape:
        return torch.empty_like(input, dtype=dtype)
    shape = torch.broadcast_shapes(input.shape, other.shape)
    return torch.empty(shape, dtype=dtype, device=input.device)


def _two(name: str, floating: bool) -> Binary:
    def body(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        dtype = torch.result_type(input, other)
        return _both(input, other, _floating(dtype) if floating else dtype)

    body.__name__ = name
    body.__doc__ = f"Return {name} of each pair of elements, of shapes that broadcast."
    return _pointwise("aten_binary", function=name)(body)


@_pointwise("aten_signbit")
def signbit(input: torch.Tensor) -> torch.Tensor:
    """Return whether each element is less than 0 or has a minus, as `torch.signbit`."""
    return torch.empty_like(input, dtype=torch.bool)


@_pointwise("aten_nextafter")
def nextafter(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the number behind each element, in the direction of the other, as `torch.nextafter`."""
    return _both(input, other, torch.result_type(input, other))


FUNCTIONS: dict[str, Unary] = {name: _one(name) for name in ONE}
PAIRS: dict[str, Binary] = {name: _two(name, floating) for name, floating in TWO}
