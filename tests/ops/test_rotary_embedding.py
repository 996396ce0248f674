"""rotary_embedding and its transpose."""

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def reference(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The formula of Llama models, in torch's own operators."""
    if cos.shape[-1] != x.shape[-1]:
        cos, sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
    return x * cos + rotate_half(x) * sin


def sample(*shape: int, table: tuple[int, ...]) -> Sample:
    return Sample((torch.randn(shape), torch.randn(table), torch.randn(table)))


DTYPES = [
    torch.float64,
    torch.bfloat16,
    pytest.param(torch.float16, marks=pytest.mark.slow),
]
# one pair of ranks: few builds
SAMPLES = [
    sample(2, 3, 5, 8, table=(1, 5, 8)),
    sample(2, 3, 5, 16, table=(3, 1, 8)),
    sample(2, 3, 5, 6, table=(1, 1, 6)),  # halves that no vector fits
    sample(1, 1, 1, 2, table=(1, 1, 1)),
    sample(2, 0, 5, 8, table=(1, 5, 8)),
    sample(2, 3, 5, 0, table=(1, 5, 0)),
]
SMALL = [sample(2, 1, 3, 4, table=(1, 3, 4)), sample(2, 1, 3, 4, table=(1, 1, 2))]


@pytest.mark.parametrize("device", checks.DEVICES)
def test_values(device: str) -> None:
    checks.check_values(F.rotary_embedding, reference, SAMPLES[:1], device)
    checks.check_values(F.rotary_embedding, reference, SAMPLES[1:], device, layouts=["contiguous"])


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: torch.dtype, device: str) -> None:
    checks.check_values(
        F.rotary_embedding, reference, SAMPLES[:2], device, dtype, layouts=["contiguous"]
    )


@pytest.mark.parametrize("device", checks.DEVICES)
def test_tables_may_be_more_precise_than_x(device: str) -> None:
    x, cos, sin = SAMPLES[0].on(device).args
    x = x.bfloat16()
    found = F.rotary_embedding(x, cos, sin)
    checks.close(found, reference(x.float(), cos, sin).bfloat16())


@pytest.mark.parametrize("device", checks.DEVICES)
def test_gradients(device: str) -> None:
    checks.check_gradients(F.rotary_embedding, reference, SAMPLES[:2], device, scale=4)


def test_gradcheck() -> None:
    checks.check_gradcheck(F.rotary_embedding, [s.on("cpu", torch.float64) for s in SMALL])
    exact = SMALL[1].on("cpu", torch.float64).with_grad()
    assert torch.autograd.gradgradcheck(F.rotary_embedding, exact.args)


def test_transpose_is_the_inverse_of_a_rotation() -> None:
    x, angle = torch.randn(2, 3, 5, 8), torch.randn(1, 5, 4)
    there = F.rotary_embedding(x, angle.cos(), angle.sin())
    back = F.rotary_embedding_backward(there, angle.cos(), angle.sin())
    checks.close(back, x)


def test_operator() -> None:
    checks.check_operator(torch.ops.mojo.rotary_embedding.default, SMALL[:1])
    checks.check_operator(torch.ops.mojo.rotary_embedding_backward.default, SMALL[:1])


def test_vmap() -> None:
    x, cos = torch.randn(2, 3, 5, 8), torch.randn(2, 1, 5, 8)
    cases = [
        ((x, cos[0], cos[0]), (0, None, None)),
        ((x.movedim(0, 1), cos[:, 0], cos[:, 0]), (1, 0, 0)),
        ((x[0], cos, cos), (None, 0, 0)),
    ]
    checks.check_vmap(F.rotary_embedding, reference, cases)


def test_autocast_leaves_dtypes_alone() -> None:
    x, cos, sin = SAMPLES[0].args
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert F.rotary_embedding(x, cos, sin).dtype == torch.float32


def test_errors() -> None:
    x, cos = torch.randn(2, 3, 5, 8), torch.randn(5, 8)
    for args in [
        (x[..., :7], cos, cos),
        (x, cos, cos[:1]),
        (x, cos[:3], cos[:3]),
        (x, cos[:, :6], cos[:, :6]),
        (cos, x, x),
    ]:
        with pytest.raises(ValueError, match=r"\[mojo::rotary_embedding\]"):
            F.rotary_embedding(*args)
    with pytest.raises(TypeError, match="dtype"):
        F.rotary_embedding(x, cos, cos.double())


@pytest.mark.parametrize("device", checks.DEVICES)
def test_large(device: str) -> None:
    large = sample(4, 16, 512, 128, table=(1, 512, 64))
    checks.check_values(F.rotary_embedding, reference, [large], device, layouts=["contiguous"])


def test_builds_for_a_gpu() -> None:
    for overload in (
        torch.ops.mojo.rotary_embedding.default,
        torch.ops.mojo.rotary_embedding_backward.default,
    ):
        library = cross_build(overload, *SAMPLES[0].args)
        assert b".target sm_90" in library.read_bytes()
