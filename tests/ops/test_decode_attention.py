"""decode_attention."""

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F


def reference(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
) -> torch.Tensor:
    """torch's attention with a mask; zeros where it has no position."""
    positions = torch.arange(key.shape[2], device=key.device)
    mask = positions < lengths[:, None, None, None]
    found = torch.nn.functional.scaled_dot_product_attention(
        query[:, :, None], key, value, attn_mask=mask, scale=scale, enable_gqa=True
    )[:, :, 0]
    return found.masked_fill(lengths[:, None, None] <= 0, 0)


def sample(batch: int, kv: int, capacity: int, *lengths: int) -> Sample:
    """Two heads of 20 features for each one of the cache: vectors and what is left of them."""
    caches = (torch.randn(batch, kv, capacity, 20) for _ in range(2))
    return Sample(
        (torch.randn(batch, 2 * kv, 20), *caches, torch.tensor(lengths, dtype=torch.int64))
    )


SAMPLES = [
    sample(3, 2, 150, 150, 1, 67),
    sample(2, 2, 150, 0, 99),  # of a length of 0 stay zeros
    sample(2, 2, 1500, 1500, 3),  # cut into spans, most of them empty
    sample(1, 1, 1, 1),
    sample(0, 2, 5),
]


@pytest.mark.parametrize("device", checks.DEVICES)
def test_values(device: str) -> None:
    contiguous = ["contiguous"]
    checks.check_values(F.decode_attention, reference, SAMPLES[:1], device, scale=4)
    checks.check_values(F.decode_attention, reference, SAMPLES[1:], device, None, contiguous, 4)


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize("dtype", checks.FLOATS[1:])
def test_dtypes(dtype: torch.dtype, device: str) -> None:
    checks.check_values(
        F.decode_attention, reference, SAMPLES[:1], device, dtype, ["contiguous"], scale=4
    )


@pytest.mark.parametrize("device", checks.DEVICES)
def test_positions_beyond_the_length_are_not_read(device: str) -> None:
    query, key, value, lengths = SAMPLES[0].on(device).args
    expected = F.decode_attention(query, key, value, lengths)
    key, value = key.clone(), value.clone()
    for b, n in enumerate(lengths.tolist()):
        key[b, :, n:] = value[b, :, n:] = float("nan")
    assert torch.equal(F.decode_attention(query, key, value, lengths), expected)
    assert not expected.isnan().any()


def test_lengths_are_clamped_and_may_be_int32() -> None:
    query, key, value, _ = SAMPLES[0].args
    lengths = torch.tensor([200, -3, 2], dtype=torch.int32)
    expected = reference(query, key, value, lengths.clamp(0, 150))
    checks.close(F.decode_attention(query, key, value, lengths), expected, 4)


def test_scale() -> None:
    args = SAMPLES[0].args
    checks.close(F.decode_attention(*args, scale=0.5), reference(*args, scale=0.5), 4)


def test_operator() -> None:
    query, key, value, lengths = SAMPLES[0].args
    given = Sample((query, key, value, lengths, 0.5, 0, 20, 2))
    overload = torch.ops.mojo.decode_attention_forward.default
    checks.check_operator(overload, [given], grad=False)


def test_compiles_whole() -> None:
    found = torch.compile(F.decode_attention, backend="aot_eager", fullgraph=True)
    checks.close(found(*SAMPLES[0].args), reference(*SAMPLES[0].args), 4)


def test_no_gradient() -> None:
    query, key, value, lengths = SAMPLES[0].args
    found = F.decode_attention(query.clone().requires_grad_(), key, value, lengths)
    with pytest.raises(RuntimeError, match="decode_attention_forward"):
        found.sum().backward()


def test_vmap() -> None:
    query, key, value, lengths = SAMPLES[0].args
    batch = torch.stack((query, query + 1))
    checks.check_vmap(
        F.decode_attention, reference, [((batch, key, value, lengths), (0, None, None, None))], 4
    )


def test_autocast_lowers() -> None:
    args = SAMPLES[0].args
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = F.decode_attention(*args)
    halves = [a.bfloat16().float() for a in args[:3]]
    checks.close(found, reference(*halves, args[3]).bfloat16())


def test_errors() -> None:
    query, key, value, lengths = SAMPLES[0].args
    for args in [
        (query[0], key, value, lengths),
        (query[:, :3], key, value, lengths),
        (query, key, value[..., :3], lengths),
        (query, key, value, lengths[:2]),
        (query[..., :3], key, value, lengths),
    ]:
        with pytest.raises((ValueError, RuntimeError), match=r"\[mojo::decode_attention\]"):
            F.decode_attention(*args)
    with pytest.raises((TypeError, RuntimeError), match="int32 or int64"):
        F.decode_attention(query, key, value, lengths.float())


@pytest.mark.parametrize("device", checks.DEVICES)
def test_large(device: str) -> None:
    large = sample(4, 8, 2048, 2048, 2047, 1000, 5)
    checks.check_values(F.decode_attention, reference, [large], device, None, ["contiguous"], 4)


def test_builds_for_a_gpu() -> None:
    overload = torch.ops.mojo.decode_attention_forward.default
    library = cross_build(overload, *SAMPLES[2].args, 0.5, 5, 20, 2)
    assert b".target sm_90" in library.read_bytes()
