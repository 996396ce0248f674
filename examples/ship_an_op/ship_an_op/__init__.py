"""ship_an_op: a PyTorch operator whose kernel is written in Mojo."""

from ship_an_op.ops import scale_add

__all__ = ["scale_add"]
