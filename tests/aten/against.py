"""What every decomposition is held to: the values, dtype and shape of the ATen operator, exactly; and that it traces."""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torch_mojo.aten.decompositions import DECOMPOSITIONS
from torch_mojo.op import find_op

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
]


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small numbers, of which many are equal."""
    drawn = torch.randint(-4, 5, shape)
    if dtype == torch.bool:
        return drawn > 0
    if dtype.is_floating_point:
        return (drawn + torch.randn(shape) * 0.25).to(dtype)
    return drawn.abs().to(dtype) if dtype == torch.uint8 else drawn.to(dtype)


def strided(t: torch.Tensor) -> torch.Tensor:
    """The same values as every second of a larger tensor, its dimensions the other way round in memory."""
    base = t.new_zeros([2 * n + 1 for n in reversed(t.shape)])
    return base[(slice(1, None, 2),) * t.dim()].permute(*reversed(range(t.dim()))).copy_(t)


def same(found: Any, wanted: Any, tolerance: float = 0.0) -> None:
    """Compare results, exactly unless there is a tolerance."""
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for f, w in zip(found, wanted, strict=True):
            same(f, w, tolerance)
        return
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


def steps(t: torch.Tensor) -> list[int]:
    """The strides of the dimensions that have steps."""
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] if t.numel() else []


def agree(
    overload: Any, *args: Any, tolerance: float = 0.0, strides: bool = False, **kwargs: Any
) -> None:
    """Compare a decomposition with its operator; the arguments stay as they were."""
    wanted = overload(*args, **kwargs)
    before = [a.clone() for a in args if isinstance(a, torch.Tensor)]
    found = DECOMPOSITIONS[overload](*args, **kwargs)
    assert found is not NotImplemented
    same(found, wanted, tolerance)
    if strides:
        both = ([t] if isinstance(t, torch.Tensor) else t for t in (found, wanted))
        for f, w in zip(*both, strict=True):
            assert steps(f) == steps(w)
    for a, b in zip([a for a in args if isinstance(a, torch.Tensor)], before, strict=True):
        same(a, b)


def traces(function: Callable[..., Any], args: tuple[Any, ...], others: tuple[Any, ...]) -> None:
    """Trace a composition of ATen operators through the decompositions, with symbolic sizes; run it on other sizes.

    Every node of ours has to be one that can stand in a MAX graph.
    """
    table = dict(DECOMPOSITIONS)
    gm = make_fx(function, decomposition_table=table, tracing_mode="symbolic")(*args)
    own = [n for n in gm.graph.nodes if "mojo" in str(n.target)]
    assert own
    for node in own:
        op = find_op(node.target)
        vals = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in node.args]
        kwargs = {
            k: a.meta["val"] if isinstance(a, torch.fx.Node) else a for k, a in node.kwargs.items()
        }
        assert not any(isinstance(v, torch.SymInt) for v in (*vals, *kwargs.values())), node
        assert op.graph_kernel(vals, kwargs, node.meta["val"]) is not None, node
    same(gm(*args), function(*args))
    same(gm(*others), function(*others))
