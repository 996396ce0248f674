"""grid_sample."""

from functools import partial

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F

slow = pytest.mark.slow
WAYS = [
    ("bilinear", "zeros"),
    ("nearest", "border"),
    ("bicubic", "reflection"),
    pytest.param("bilinear", "border", marks=slow),
    pytest.param("bilinear", "reflection", marks=slow),
    pytest.param("nearest", "zeros", marks=slow),
    pytest.param("nearest", "reflection", marks=slow),
    pytest.param("bicubic", "zeros", marks=slow),
    pytest.param("bicubic", "border", marks=slow),
]


def places(*shape: int) -> torch.Tensor:
    """A grid that leaves the picture on all sides."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) * 3 - 1.5


def pictures(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def forms(mode: str, padding: str, align: bool) -> tuple[partial[torch.Tensor], ...]:
    how = {"mode": mode, "padding_mode": padding, "align_corners": align}
    return partial(F.grid_sample, **how), partial(torch.nn.functional.grid_sample, **how)


SAMPLES = [
    Sample((pictures(2, 3, 7, 9), places(2, 5, 7, 2))),
    Sample((pictures(1, 2, 1, 4), places(1, 1, 10, 2))),
]
ENDS = [
    Sample((pictures(1, 2, 4, 6), torch.zeros(1, 1, 9, 2))),  # halfway between two pixels
    Sample((pictures(0, 3, 4, 4), places(0, 2, 2, 2))),
    Sample((pictures(1, 3, 4, 4), places(1, 0, 2, 2))),
]


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize("mode, padding", WAYS)
def test_values(mode: str, padding: str, device: str) -> None:
    layouts = tuple(checks.LAYOUTS) if mode == "bilinear" else ["contiguous"]
    for align in (False, True):
        samples = SAMPLES + ENDS
        checks.check_values(*forms(mode, padding, align), samples, device, layouts=layouts)


@slow
@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize("mode, padding", [("bilinear", "reflection"), ("nearest", "zeros")])
def test_volumes(mode: str, padding: str, device: str) -> None:
    volumes = [Sample((pictures(2, 3, 4, 5, 6), places(2, 3, 4, 5, 3)))]
    for align in (False, True):
        pair = forms(mode, padding, align)
        checks.check_values(*pair, volumes, device, layouts=["contiguous"])
        same_gradients(pair, volumes[0], device)


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, *(pytest.param(d, marks=slow) for d in (torch.float16,))]
)
def test_dtypes(dtype: torch.dtype, device: str) -> None:
    pair = forms("bilinear", "zeros", False)
    checks.check_values(*pair, SAMPLES[:1], device, dtype, ["contiguous"])
    ours = SAMPLES[0].on(device, dtype).with_grad()
    F.grid_sample(*ours.args).sum().backward()
    assert [t.grad.dtype for t in ours.leaves if t.grad is not None] == [dtype, dtype]


def same_gradients(pair: tuple[partial[torch.Tensor], ...], sample: Sample, device: str) -> None:
    found = []
    for function in pair:
        given = sample.on(device).with_grad()
        result = function(*given.args)
        grad = torch.randn(result.shape, generator=torch.Generator().manual_seed(5)).to(device)
        found.append(torch.autograd.grad(result, given.args, grad))
    for a, b in zip(*found, strict=True):
        checks.close(a, b, scale=4)


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize(
    "mode, padding", [WAYS[0], *(pytest.param(*w, marks=slow) for w in WAYS[1:3]), *WAYS[3:]]
)
def test_gradients(mode: str, padding: str, device: str) -> None:
    for align in (False, True):
        for sample in SAMPLES:
            same_gradients(forms(mode, padding, align), sample, device)
    if (mode, padding) == WAYS[0]:
        checks.check_gradients(*forms(mode, padding, False), SAMPLES[:1], device, scale=4)


def test_gradcheck() -> None:
    checks.check_gradcheck(
        forms("bilinear", "zeros", True)[0], [Sample((pictures(1, 2, 3, 4), places(1, 2, 3, 2)))]
    )


@pytest.mark.parametrize("device", checks.DEVICES)
def test_large(device: str) -> None:
    sample = Sample((pictures(3, 8, 128, 131), places(3, 127, 130, 2)))
    pair = forms("bilinear", "zeros", False)
    checks.check_values(*pair, [sample], device, layouts=["contiguous"])
    same_gradients(pair, sample, device)


@pytest.mark.parametrize("device", checks.DEVICES)
def test_what_is_not_read_does_not_matter(device: str) -> None:
    x, grid = pictures(1, 2, 1, 4).to(device), torch.full((1, 1, 10, 2), 9.0, device=device)
    x[:] = float("nan")
    grid[..., :5, :] = torch.tensor([float("nan"), float("inf")], device=device)
    assert torch.equal(F.grid_sample(x, grid), torch.zeros(1, 2, 1, 10, device=device))


def test_operator() -> None:
    op = torch.ops.mojo.grid_sample.default
    for needs in (False, True):
        args = [t.clone().requires_grad_(needs) for t in SAMPLES[0].args]
        torch.library.opcheck(op, (*args, "bilinear", "zeros", True))


def test_vmap() -> None:
    x, grid = pictures(3, 2, 3, 5, 6), places(3, 2, 4, 3, 2)
    pair = forms("bilinear", "zeros", False)
    checks.check_vmap(*pair, [((x, grid), (0, 0)), ((x, grid[0]), (0, None))])


def test_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert F.grid_sample(*SAMPLES[0].on("cpu", torch.bfloat16).args).dtype == torch.float32


def test_errors() -> None:
    x, grid = SAMPLES[0].args
    for args, message in [
        ((x[0], grid), r"\(3, 7, 9\)"),
        ((x, grid[..., :1]), r"\(2, 5, 7, 1\)"),
        ((x[:1], grid), r"1 picture"),
        ((x, grid.double()), "float64"),
        ((x[:, :, :0], grid), "only the batch"),
        ((x, grid, "cubic"), "'cubic'"),
        ((x, grid, "nearest", "zero"), "'zero'"),
        ((pictures(1, 1, 2, 2, 2), places(1, 1, 1, 1, 3), "bicubic"), "5 dimensions"),
    ]:
        with pytest.raises((ValueError, TypeError, RuntimeError), match=message):
            F.grid_sample(*args)


def test_builds_for_a_gpu() -> None:
    args = SAMPLES[0].args
    library = cross_build(torch.ops.mojo.grid_sample.default, *args)
    assert b".target sm_90" in library.read_bytes()
    op = torch.ops.mojo.grid_sample_input_backward.default
    library = cross_build(op, pictures(2, 3, 5, 7), *args)
    assert b".target sm_90" in library.read_bytes()


@slow
def test_the_gradient_of_the_grid_builds_for_a_gpu() -> None:
    op = torch.ops.mojo.grid_sample_grid_backward.default
    library = cross_build(op, pictures(2, 3, 5, 7), *SAMPLES[0].args)
    assert b".target sm_90" in library.read_bytes()
