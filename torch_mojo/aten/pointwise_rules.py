"""Decompositions of pointwise functions."""

from collections.abc import Callable
from typing import Any

import torch

from torch_mojo import functional
from torch_mojo.aten import pointwise
from torch_mojo.aten.rules import Rule, Rules, served
from torch_mojo.devices import on_host

aten = torch.ops.aten
RULES = Rules()
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
ON_CPU = ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")  # what C alone has


def _takes(*tensors: torch.Tensor) -> bool:
    return served(*tensors) and all(
        t.dtype in FLOATS or not t.dtype.is_floating_point for t in tensors
    )


def _unary(function: pointwise.Unary, on_cpu: bool = False) -> Rule:
    def rule(self: torch.Tensor) -> torch.Tensor:
        """Return a function of each element."""
        if not _takes(self) or (on_cpu and not on_host(self.device)):
            return NotImplemented
        return function(self)

    return rule


for _name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan"):
    RULES.add(getattr(aten, _name).default)(_unary(pointwise.FUNCTIONS[_name]))
for _name in ("erfc", "erfinv", "lgamma", "digamma", "i0"):
    RULES.add(getattr(aten, _name).default)(_unary(pointwise.FUNCTIONS[_name]))
for _name in ("erfcx", "ndtri", "i0e", "i1", "i1e", *ON_CPU):
    _op = getattr(aten, f"special_{_name}").default
    RULES.add(_op)(_unary(pointwise.FUNCTIONS[_name], _name in ON_CPU))
RULES.add(aten.special_modified_bessel_i0.default)(_unary(pointwise.FUNCTIONS["i0"]))
RULES.add(aten.special_modified_bessel_i1.default)(_unary(pointwise.FUNCTIONS["i1"]))


@RULES.add(aten.signbit.default)
def signbit(self: torch.Tensor) -> torch.Tensor:
    """Return whether each element has a minus."""
    return pointwise.signbit(self) if _takes(self) else NotImplemented


@RULES.add(aten.polygamma.default)
def polygamma(n: int, self: torch.Tensor) -> torch.Tensor:
    """Return the n-th derivative of digamma."""
    if not _takes(self) or not isinstance(n, int) or n < 0:
        return NotImplemented
    if n < 2:
        return pointwise.FUNCTIONS["trigamma" if n else "digamma"](self)
    dtype = self.dtype if self.dtype.is_floating_point else torch.get_default_dtype()
    order = torch.full((), n + 1, dtype=dtype, device=self.device)
    factor = torch.lgamma(order).exp()
    return (factor if n % 2 else -factor) * pointwise.PAIRS["zeta"](order, self)


def _operand(value: Any, other: Any) -> torch.Tensor | None:
    """Return an operand as a tensor: a number as a 0-d one of the dtype that both have together."""
    if isinstance(value, torch.Tensor):
        if value.dim() == 0 and value.is_cpu and isinstance(other, torch.Tensor):
            return value.to(other.device)
        return value
    if not isinstance(value, (bool, int, float)):
        return None
    dtype = torch.result_type(value, other)
    return torch.full((), value, dtype=dtype, device=other.device)


def _pair(self: Any, other: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return both operands as tensors, or None if they are not for these kernels."""
    a, b = _operand(self, other), _operand(other, self)
    if a is None or b is None or not _takes(a, b):
        return None
    return a, b


def _binary(function: Callable[..., torch.Tensor], kinds: str) -> Rule:
    """Return a rule for operands that together are floating-point (f), integers (i) or bools (b)."""

    def rule(self: Any, other: Any) -> torch.Tensor:
        """Return a function of each pair of elements."""
        both = _pair(self, other)
        if both is None or _kind(torch.result_type(*both)) not in kinds:
            return NotImplemented
        return function(*both)

    return rule


def _kind(dtype: torch.dtype) -> str:
    return "f" if dtype.is_floating_point else "b" if dtype == torch.bool else "i"


for _name in ("atan2", "zeta"):
    _op = getattr(aten, _name if _name == "atan2" else f"special_{_name}")
    RULES.add(_op.default)(_binary(pointwise.PAIRS[_name], "fib"))
RULES.add(aten.special_zeta.self_scalar, aten.special_zeta.other_scalar)(
    _binary(pointwise.PAIRS["zeta"], "fib")
)
RULES.add(aten.copysign.Tensor, aten.copysign.Scalar)(_binary(pointwise.PAIRS["copysign"], "fib"))
RULES.add(aten.hypot.default)(_binary(pointwise.PAIRS["hypot"], "f"))


@RULES.add(aten.nextafter.default)
def nextafter(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the number behind each element, in the direction of the other."""
    if self.dtype != other.dtype or self.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    return pointwise.nextafter(self, other) if _takes(self, other) else NotImplemented


RULES.add(aten.gcd.default)(_binary(pointwise.PAIRS["gcd"], "i"))
RULES.add(aten.lcm.default)(_binary(pointwise.PAIRS["lcm"], "i"))


def _without_nan(function: pointwise.Binary, plain: Callable[..., torch.Tensor]) -> Rule:
    def rule(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return the larger or smaller of two, and what is not nan of a number and nan."""
        both = _pair(self, other)
        if both is None:
            return NotImplemented
        floating = torch.result_type(*both).is_floating_point
        return function(*both) if floating else plain(*both)

    return rule


RULES.add(aten.fmax.default)(_without_nan(pointwise.PAIRS["fmax"], torch.maximum))
RULES.add(aten.fmin.default)(_without_nan(pointwise.PAIRS["fmin"], torch.minimum))


def _by_constant(self: Any, other: Any) -> bool:
    """Tell whether integers are divided by a constant, which MAX's own operators do."""
    return (
        isinstance(self, torch.Tensor)
        and _kind(self.dtype) == "i"
        and isinstance(other, int)
        and not isinstance(other, bool)
        and other != 0
    )


def _quotient(name: str) -> Rule:
    inner = _binary(pointwise.PAIRS[name], "fi")

    def rule(self: Any, other: Any) -> torch.Tensor:
        """Return rounded quotients, or what is left of them."""
        return NotImplemented if _by_constant(self, other) else inner(self, other)

    return rule


RULES.add(aten.fmod.Tensor, aten.fmod.Scalar)(_quotient("fmod"))
RULES.add(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)(
    _quotient("remainder")
)
RULES.add(aten.floor_divide.default, aten.floor_divide.Scalar)(_quotient("div_floor"))


@RULES.add(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div(self: Any, other: Any, *, rounding_mode: str | None) -> torch.Tensor:
    """Return quotients rounded down or towards 0."""
    if rounding_mode not in ("floor", "trunc"):
        return NotImplemented
    return _quotient(f"div_{rounding_mode}")(self, other)


_POWER = _binary(pointwise.PAIRS["pow"], "i")


@RULES.add(aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, aten.pow.Scalar)
def power(self: Any, exponent: Any) -> torch.Tensor:
    """Return powers of integers that are not small constants; MAX has the others."""
    if isinstance(exponent, (int, float)) and (exponent < 0 or exponent <= 16):
        return NotImplemented
    return _POWER(self, exponent)


def _bits(name: str) -> Rule:
    function = getattr(functional, f"bitwise_{name}")
    shift = name.endswith("shift")

    def rule(self: Any, other: Any) -> torch.Tensor:
        """Return the bits of two integers together."""
        for value in (self, other):
            if isinstance(value, torch.Tensor):
                integral = not value.dtype.is_floating_point and not value.dtype.is_complex
                if not served(value) or not integral or (shift and value.dtype == torch.bool):
                    return NotImplemented
            elif not isinstance(value, int):
                return NotImplemented
        if all(isinstance(v, bool) or v.dtype == torch.bool for v in (self, other)):
            return NotImplemented  # logic, which MAX has
        return function(self, other)

    return rule


for _name in ("and", "or", "xor"):
    _op = getattr(aten, f"bitwise_{_name}")
    RULES.add(_op.Tensor, _op.Scalar, _op.Scalar_Tensor)(_bits(_name))
for _name in ("left", "right"):
    _op = getattr(aten, f"bitwise_{_name}_shift")
    RULES.add(_op.Tensor, _op.Tensor_Scalar, _op.Scalar_Tensor)(_bits(f"{_name}_shift"))
    _op = aten.__lshift__ if _name == "left" else aten.__rshift__
    RULES.add(_op.Tensor, _op.Scalar)(_bits(f"{_name}_shift"))


@RULES.add(aten.bitwise_not.default)
def bitwise_not(self: torch.Tensor) -> torch.Tensor:
    """Return the bits of integers the other way."""
    if not served(self) or _kind(self.dtype) != "i":
        return NotImplemented
    return functional.bitwise_not(self)
