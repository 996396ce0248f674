"""What a lowering works with: its node's context, constants, casts, shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from max.driver import Buffer
from max.graph import DeviceRef, Dim, Shape, TensorValue, ops
from torch import fx

from . import symbols
from .types import DTYPES, device_ref


def constant(value: Any, dtype: torch.dtype, device: DeviceRef) -> TensorValue:
    """Return a 0-d constant of torch's own rounding of `value` to `dtype`."""
    return bake(torch.tensor(value, dtype=dtype), device)


def bake(tensor: torch.Tensor, device: DeviceRef) -> TensorValue:
    """Return a tensor's present value as a constant."""
    return ops.constant(Buffer.from_dlpack(tensor.detach().cpu().contiguous()), device=device)


def broadcast(x: TensorValue, shape: Sequence[Dim]) -> TensorValue:
    """Broadcast `x` to `shape`, which may have more dims; sizes as in `reshape`."""
    if list(x.shape) == list(shape):
        return x
    if x.rank < len(shape):
        x = ops.reshape(x, [Dim(1)] * (len(shape) - x.rank) + list(x.shape))
    try:
        return ops.broadcast_to(x, shape)
    except ValueError:
        return ops.broadcast_to(sized_as(x, shape), shape)


def sized_as(x: TensorValue, shape: Sequence[Dim]) -> TensorValue:
    """Give `x` the last sizes of `shape`, except where its own is 1; that they are the same is asserted at run time."""
    own = list(x.shape)
    wanted = [d if d == 1 else s for d, s in zip(own, shape[len(shape) - len(own) :], strict=True)]
    return x if own == wanted else ops.rebind(x, wanted)


def reshape(x: TensorValue, shape: Sequence[Dim]) -> TensorValue:
    """Reshape `x`; sizes whose equality only torch can prove are asserted at run time."""
    shape = Shape(shape)
    if list(x.shape) == list(shape):
        return x
    try:
        return ops.reshape(x, shape)
    except ValueError:
        total = Dim(1)
        for d in shape:
            total = total * d
        return ops.reshape(ops.rebind(ops.reshape(x, [-1]), [total]), shape)


@dataclass
class Context:
    """What a built-in lowering knows of its node, besides the arguments.

    Attributes:
        node: the FX node.
        args: the node's positional arguments with each tensor fake.
        kwargs: the same for the keyword arguments.
        out: what torch promised: a fake tensor, or a tuple of them.
    """

    node: fx.Node
    names: symbols.Names
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any

    @property
    def result(self) -> torch.Tensor:
        """The fake of the first result."""
        return self.out[0] if isinstance(self.out, (tuple, list)) else self.out

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the first result."""
        return self.result.dtype

    @property
    def device(self) -> DeviceRef:
        """The device of the first result."""
        return device_ref(self.result.device)

    def shape(self, fake: torch.Tensor | None = None) -> list[Dim]:
        """Return the dimensions of `fake`, by default of the first result."""
        return [self.names.dim(s) for s in (self.result if fake is None else fake).shape]

    def dim(self, size: symbols.Size) -> Dim:
        """Return a size as a MAX dimension."""
        return self.names.dim(size)

    def value(self, x: Any, dtype: torch.dtype) -> TensorValue:
        """Return a tensor or a number in `dtype`, on the result's device."""
        if isinstance(x, TensorValue):
            return (
                cast(x, dtype)
                if x.device == self.device
                else ops.transfer_to(cast(x, dtype), self.device)
            )
        return constant(x, dtype, self.device)


def cast(x: TensorValue, dtype: torch.dtype) -> TensorValue:
    """Cast as torch does: what is not zero (also NaN) is True."""
    target = DTYPES[dtype]
    if x.dtype == target:
        return x
    if dtype == torch.bool:
        # MAX's != is False at NaN.
        return ops.logical_not(ops.equal(x, ops.cast(constant(0, torch.int8, x.device), x.dtype)))
    return ops.cast(x, target)
