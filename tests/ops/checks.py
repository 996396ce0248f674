"""What every built-in kernel is held to: torch's values and gradients, in every layout, on every route."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]

# of the reference's own rounding: float16 and bfloat16 results are compared with float32 ones, rounded once
TOLERANCE = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (2e-5, 2e-5),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
}


@dataclass
class Sample:
    """Arguments of one call. Tensors are made on the CPU; `on` moves them."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "Sample":
        def each(value: Any) -> Any:
            return function(value) if isinstance(value, torch.Tensor) else value

        return Sample(
            tuple(tree_map(each, a) for a in self.args),
            {k: each(v) for k, v in self.kwargs.items()},
        )

    def on(self, device: str, dtype: torch.dtype | None = None) -> "Sample":
        """Move the tensors, and cast the floating-point ones."""
        return self.map(
            lambda t: t.to(device, dtype if dtype and t.is_floating_point() else t.dtype)
        )

    def with_grad(self) -> "Sample":
        return self.map(
            lambda t: t.detach().clone().requires_grad_() if t.is_floating_point() else t
        )

    @property
    def tensors(self) -> list[torch.Tensor]:
        flat, _ = tree_flatten((self.args, self.kwargs))
        return [t for t in flat if isinstance(t, torch.Tensor)]

    @property
    def leaves(self) -> list[torch.Tensor]:
        return [t for t in self.tensors if t.requires_grad]


def strided(t: torch.Tensor) -> torch.Tensor:
    """The same values, every second element of a larger tensor, at an offset."""
    if t.dim() == 0:
        return torch.stack([t, t])[1]
    base = t.new_empty((*t.shape[:-1], 2 * t.shape[-1] + 1))
    view = base[..., 1::2]
    return view.copy_(t)


def transposed(t: torch.Tensor) -> torch.Tensor:
    """The same values, with the last two dimensions the other way round in memory."""
    return t if t.dim() < 2 else t.mT.contiguous().mT


def expanded(t: torch.Tensor) -> torch.Tensor:
    """A tensor whose first dimension has stride 0 (other values: all rows are the first)."""
    return t[:1].expand(t.shape) if t.dim() and t.shape[0] > 1 else t


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda t: t.contiguous(),
    "strided": strided,
    "transposed": transposed,
    "expanded": expanded,
}


def outputs(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def close(found: torch.Tensor, expected: torch.Tensor, scale: float = 1.0) -> None:
    """Compare values, shape and dtype; `scale` multiplies the tolerance of the dtype."""
    assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    assert found.device == expected.device
    rtol, atol = TOLERANCE.get(expected.dtype, (0.0, 0.0))
    torch.testing.assert_close(
        found, expected, rtol=rtol * scale, atol=atol * scale, equal_nan=True
    )


def _wide(sample: Sample) -> Sample:
    """The halves in float32: what a kernel that accumulates in float32 is compared with."""
    halves = (torch.float16, torch.bfloat16)
    return sample.map(lambda t: t.float() if t.dtype in halves else t)


def _reference(
    reference: Callable[..., Any], sample: Sample, like: Sequence[torch.Tensor]
) -> list[Any]:
    """The reference's results, rounded once to the dtypes that the kernel returned."""
    found = outputs(reference(*_wide(sample).args, **_wide(sample).kwargs))
    return [r.to(f.dtype) if r.is_floating_point() else r for r, f in zip(found, like, strict=True)]


def check_values(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    samples: Sequence[Sample],
    device: str,
    dtype: torch.dtype | None = None,
    layouts: Sequence[str] = tuple(LAYOUTS),
    scale: float = 1.0,
) -> None:
    """Compare with the reference for every sample in every layout; the arguments stay as they were."""
    for sample in samples:
        for layout in layouts:
            laid = sample.on(device, dtype).map(LAYOUTS[layout])
            before = [t.clone() for t in laid.tensors]
            found = outputs(function(*laid.args, **laid.kwargs))
            for f, r in zip(found, _reference(reference, laid, found), strict=True):
                close(f, r, scale)
            for t, b in zip(laid.tensors, before, strict=True):
                assert torch.equal(
                    t.nan_to_num() if t.is_floating_point() else t,
                    b.nan_to_num() if b.is_floating_point() else b,
                )


def _incoming(like: torch.Tensor, layout: str) -> torch.Tensor:
    """A gradient as autograd may bring it: a slice of a larger one, transposed, or expanded from one number."""
    generator = torch.Generator().manual_seed(like.numel() + 1)
    values = torch.randn(like.shape, generator=generator).to(like.device, like.dtype)
    if layout == "expanded":
        return values.new_full((), 0.75).expand(like.shape)
    return LAYOUTS[layout](values)


def check_gradients(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    samples: Sequence[Sample],
    device: str,
    dtype: torch.dtype = torch.float32,
    scale: float = 1.0,
) -> None:
    """Compare all gradients with the reference's, for incoming gradients of every layout (CASES.md U26)."""
    for sample in samples:
        for layout in LAYOUTS:
            ours = sample.on(device, dtype).with_grad()
            theirs = _wide(sample.on(device, dtype)).with_grad()
            found = outputs(function(*ours.args, **ours.kwargs))
            wanted = outputs(reference(*theirs.args, **theirs.kwargs))
            grads = [_incoming(f, layout) for f in found if f.requires_grad]
            torch.autograd.backward([f for f in found if f.requires_grad], grads)
            torch.autograd.backward(
                [w for w in wanted if w.requires_grad],
                [
                    g.to(w.dtype)
                    for g, w in zip(grads, [w for w in wanted if w.requires_grad], strict=True)
                ],
            )
            for a, b in zip(ours.leaves, theirs.leaves, strict=True):
                assert (a.grad is None) == (b.grad is None)
                if a.grad is not None and b.grad is not None:
                    close(a.grad, b.grad.to(a.dtype), scale)


def check_gradcheck(function: Callable[..., Any], samples: Sequence[Sample]) -> None:
    """Compare the gradients with finite differences in float64."""
    for sample in samples:
        exact = sample.on("cpu", torch.float64).with_grad()
        names = list(exact.kwargs)
        count = len(exact.args)

        def call(*values: Any, names: list[str] = names, count: int = count) -> Any:
            return function(*values[:count], **dict(zip(names, values[count:], strict=True)))

        assert torch.autograd.gradcheck(
            call, (*exact.args, *exact.kwargs.values()), fast_mode=False
        )


def check_operator(
    overload: Any, samples: Sequence[Sample], device: str = "cpu", grad: bool = True
) -> None:
    """Run opcheck, all of its tests, contiguous and strided, with and without a gradient."""
    for sample in samples:
        for layout in ("contiguous", "strided"):
            laid = sample.on(device).map(LAYOUTS[layout])
            for needs in (False, True) if grad else (False,):
                given = (
                    laid.map(lambda t: t.detach().requires_grad_() if t.is_floating_point() else t)
                    if needs
                    else laid
                )
                torch.library.opcheck(overload, given.args, given.kwargs, test_utils="ALL")


def check_vmap(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    cases: Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]] | Sequence[Any],
    scale: float = 1.0,
) -> None:
    """Compare under vmap with calling the reference for each item; a case is (args, in_dims)."""
    for args, in_dims in cases:
        size = next(a.shape[d] for a, d in zip(args, in_dims, strict=True) if d is not None)
        found = outputs(torch.vmap(function, in_dims=in_dims)(*args))
        items = [
            outputs(
                reference(
                    *(
                        a if d is None else a.select(d, i)
                        for a, d in zip(args, in_dims, strict=True)
                    )
                )
            )
            for i in range(size)
        ]
        for f, *rows in zip(found, *items, strict=True):
            close(f, torch.stack(rows), scale)
