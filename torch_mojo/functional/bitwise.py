"""And, or, xor, not and shifts.

Operands are promoted as torch does, `torch.result_type`: a number or a 0-d tensor does not widen a tensor of its own
kind. Floating-point operands are refused. A shift by less than 0 or by all bits or more gives 0, or -1 for a negative
number shifted right, on every device. Each operation is three operators: `.Tensor`, `.Scalar` (tensor and int) and
`.Scalar_Tensor` (int and tensor); and, or and xor also have `.Bool` (tensor and bool), which
`torch.ops.mojo.bitwise_and(x, True)` does not choose by itself: there True is 1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from torch_mojo.functional.builtin import Kernel, kernel

Operand = torch.Tensor | int | bool
_Binary = Callable[[Operand, Operand], torch.Tensor]


def _refuse(name: str, dtype: torch.dtype, shift: bool) -> None:
    """Refuse dtypes that have no bits to work on, or none to shift."""
    if dtype.is_floating_point or dtype.is_complex or (shift and dtype == torch.bool):
        raise TypeError(
            f"[mojo::{name}] the operands have dtype {dtype} together; it takes integers"
            f"{'' if shift else ' and bools'}.\nConvert them, for example to int64."
        )


class _Overloads(NamedTuple):
    tensor: Kernel[..., torch.Tensor]
    scalar: Kernel[..., torch.Tensor]
    scalar_tensor: Kernel[..., torch.Tensor]
    bool: Kernel[..., torch.Tensor] | None


def _declare(name: str, symbol: str, what: str, shift: bool = False) -> _Overloads:
    """Declare the overloads of one operation."""
    constants = {"operation": name.removeprefix("bitwise_")}
    tags = (torch.Tag.pointwise,)

    def tensor(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        dtype = torch.result_type(input, other)
        _refuse(name, dtype, shift)
        if input.shape == other.shape:
            return torch.empty_like(input, dtype=dtype)
        shape = torch.broadcast_shapes(input.shape, other.shape)
        return torch.empty(shape, dtype=dtype, device=input.device)

    def scalar(input: torch.Tensor, other: int) -> torch.Tensor:
        _refuse(name, input.dtype, False)
        dtype = torch.int64 if input.dtype == torch.bool else input.dtype
        return torch.empty_like(input, dtype=dtype)

    def scalar_tensor(input: int, other: torch.Tensor) -> torch.Tensor:
        _refuse(name, other.dtype, False)
        dtype = torch.int64 if other.dtype == torch.bool else other.dtype
        return torch.empty_like(other, dtype=dtype)

    def truth(input: torch.Tensor, other: bool) -> torch.Tensor:
        _refuse(name, input.dtype, False)
        return torch.empty_like(input)

    def made(
        body: Callable[..., torch.Tensor], overload: str, kernel_name: str, operands: str
    ) -> Kernel[..., torch.Tensor]:
        body.__name__ = name
        body.__doc__ = (
            f"{what}\n\n{operands}; integers{'' if shift else ' or bools'}, shapes that broadcast. "
            f"The dtype is `torch.result_type`'s."
        )
        return kernel(
            f"{name}.{overload}",
            file="bitwise",
            kernel=kernel_name,
            constants=constants,
            broadcast=True,
            tags=tags,
        )(body)

    return _Overloads(
        made(tensor, "Tensor", "bitwise", f"Tensor {symbol} tensor"),
        made(scalar, "Scalar", "bitwise_scalar", f"Tensor {symbol} int"),
        made(scalar_tensor, "Scalar_Tensor", "bitwise_scalar_tensor", f"Int {symbol} tensor"),
        None if shift else made(truth, "Bool", "bitwise_scalar", f"Tensor {symbol} bool"),
    )


def _call(overloads: _Overloads, input: Any, other: Any) -> Any:
    """Choose the overload by which operands are numbers."""
    if isinstance(input, torch.Tensor) and isinstance(other, torch.Tensor):
        if input.device != other.device:
            if other.dim() == 0 and other.is_cpu:
                other = other.to(input.device)
            elif input.dim() == 0 and input.is_cpu:
                input = input.to(other.device)
        return overloads.tensor(input, other)
    name = overloads.tensor.__name__
    for label, value in (("input", input), ("other", other)):
        if isinstance(value, (float, complex)):
            raise TypeError(
                f"[mojo::{name}] {label} is {value!r}, a {type(value).__name__}; it takes tensors, ints and "
                "bools.\nRound it to an int."
            )
    if isinstance(input, int):
        if isinstance(other, int):
            raise TypeError(
                f"[mojo::{name}] input is {input!r} and other is {other!r}; one of them has to be a tensor.\n"
                "Use Python's own operator for two numbers."
            )
        if isinstance(input, bool) and overloads.bool is not None:
            return _call(overloads, other, input)  # and, or, xor: the order does not matter
        return overloads.scalar_tensor(int(input), other)
    if isinstance(other, int):
        bools = not isinstance(input, torch.Tensor) or input.dtype == torch.bool
        if isinstance(other, bool) and bools and overloads.bool is not None:
            return overloads.bool(input, other)
        return overloads.scalar(input, int(other))
    return overloads.tensor(input, other)


_AND = _declare("bitwise_and", "&", "Return the bits that both operands have.")
_OR = _declare("bitwise_or", "|", "Return the bits that either operand has.")
_XOR = _declare("bitwise_xor", "^", "Return the bits that one operand has and the other has not.")
_LEFT = _declare("bitwise_left_shift", "<<", "Return input's bits moved up, zeros behind.", True)
_RIGHT = _declare(
    "bitwise_right_shift", ">>", "Return input's bits moved down, its sign on top.", True
)


def bitwise_and(input: Operand, other: Operand) -> torch.Tensor:
    """Return the bits that both operands have, as `torch.bitwise_and`.

    Args:
        input, other: tensors of shapes that broadcast, or one of them an int or a bool. Integers or bools.

    Returns:
        the broadcast shape, in the dtype of `torch.result_type`; of bools, a bool: logical and.

    Raises:
        TypeError: for floating-point operands, and for two numbers.
    """
    return _call(_AND, input, other)


def bitwise_or(input: Operand, other: Operand) -> torch.Tensor:
    """Return the bits that either operand has, as `torch.bitwise_or`.

    Arguments, result and errors are those of `bitwise_and`.
    """
    return _call(_OR, input, other)


def bitwise_xor(input: Operand, other: Operand) -> torch.Tensor:
    """Return the bits that one operand has and the other has not, as `torch.bitwise_xor`.

    Arguments, result and errors are those of `bitwise_and`.
    """
    return _call(_XOR, input, other)


def bitwise_left_shift(input: Operand, other: Operand) -> torch.Tensor:
    """Return input * 2**other by moving bits, as `torch.bitwise_left_shift`.

    Arguments, result and errors are those of `bitwise_and`, except that a result of dtype bool is refused. A
    shift by less than 0, or by as many bits as there are or more, gives 0.
    """
    return _call(_LEFT, input, other)


def bitwise_right_shift(input: Operand, other: Operand) -> torch.Tensor:
    """Return floor(input / 2**other) by moving bits, as `torch.bitwise_right_shift`.

    Arguments, result and errors are those of `bitwise_and`, except that a result of dtype bool is refused. A
    shift by less than 0, or by as many bits as there are or more, gives 0 or, for a negative input, -1.
    """
    return _call(_RIGHT, input, other)


@kernel(file="bitwise", broadcast=True, tags=(torch.Tag.pointwise,))
def bitwise_not(input: torch.Tensor) -> torch.Tensor:
    """Return each element with all its bits the other way, as `torch.bitwise_not`.

    Args:
        input: any shape; integers, or bools, which are negated.

    Returns:
        the same shape and dtype.
    """
    _refuse("bitwise_not", input.dtype, False)
    return torch.empty_like(input)
