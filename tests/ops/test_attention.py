"""scaled_dot_product_attention and the kernels behind it."""

from typing import Any

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F


def reference(*args: Any, **kwargs: Any) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(*args, **kwargs)


def tensors(query: int = 70, keys: int = 100, heads: int = 2, kv: int = 2) -> tuple[Any, ...]:
    """More than one block of queries, and of keys, with something left over everywhere."""
    return (
        torch.randn(2, heads, query, 10),
        torch.randn(2, kv, keys, 10),
        torch.randn(2, kv, keys, 7),
    )


def hidden(*shape: int) -> torch.Tensor:
    """A mask with a row that hides all."""
    mask = torch.rand(shape) > 0.4
    mask[..., 1, :] = False
    return mask


DTYPES = [
    torch.float64,
    torch.bfloat16,
    pytest.param(torch.float16, marks=pytest.mark.slow),
]
PLAIN = Sample(tensors())
SAMPLES = [
    Sample(tensors(), {"is_causal": True}),
    Sample(tensors(100, 70), {"is_causal": True, "scale": 0.3}),
    Sample(tensors(heads=4), {"enable_gqa": True}),
    Sample(tensors(1, 1)),
]
EMPTY = [Sample(tensors(0, 5)), Sample(tensors(5, 0)), Sample(tensors(heads=0, kv=0))]
MASKED = [
    Sample((*tensors(), hidden(2, 1, 70, 100))),
    Sample((*tensors(), (torch.rand(100) > 0.4).expand(70, 100))),
]
BIAS = Sample((*tensors(7, 5), torch.randn(1, 2, 7, 5)))
ADDED = [Sample((*tensors(), torch.randn(70, 100).masked_fill(~hidden(70, 100), -torch.inf)))]


@pytest.mark.parametrize("device", checks.DEVICES)
def test_values(device: str) -> None:
    function = F.scaled_dot_product_attention
    checks.check_values(function, reference, [PLAIN], device, scale=4)
    given = [*SAMPLES, *EMPTY]
    checks.check_values(function, reference, given, device, None, ["contiguous"], 4)


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: torch.dtype, device: str) -> None:
    checks.check_values(
        F.scaled_dot_product_attention, reference, [PLAIN], device, dtype, ["contiguous"], 4
    )


@pytest.mark.parametrize("device", checks.DEVICES)
def test_masks(device: str) -> None:
    function = F.scaled_dot_product_attention
    checks.check_values(function, reference, MASKED, device, None, ["contiguous"], 4)
    checks.check_values(function, reference, ADDED, device, None, ["contiguous"], 4)


@pytest.mark.parametrize("device", checks.DEVICES)
def test_gradients(device: str) -> None:
    function = F.scaled_dot_product_attention
    checks.check_gradients(function, reference, [PLAIN, *SAMPLES], device, scale=10)


HALVES = [
    PLAIN,
    Sample(tensors(), {"is_causal": True}),
    Sample(tuple(torch.randn(1, 150, 2, 80).transpose(1, 2) for _ in range(3))),
    Sample(
        (torch.randn(1, 4, 150, 16), torch.randn(1, 2, 70, 16), torch.randn(1, 2, 70, 24)),
        {"enable_gqa": True, "is_causal": True},
    ),
    Sample((*tensors(), hidden(2, 1, 70, 100))),
]


@pytest.mark.parametrize("device", checks.DEVICES)
def test_halves(device: str) -> None:
    """On a GPU these are made by other kernels than float32."""
    for sample in HALVES:
        given = sample.on(device)
        halves = [t.bfloat16().requires_grad_() for t in given.args[:3]]
        wide = [t.detach().float().requires_grad_() for t in halves]
        found = F.scaled_dot_product_attention(*halves, *given.args[3:], **given.kwargs)
        expected = reference(*wide, *given.args[3:], **given.kwargs)
        checks.close(found, expected.bfloat16(), 4)
        grad = torch.randn_like(found)
        found.backward(grad)
        expected.backward(grad.float())
        for ours, theirs in zip(halves, wide, strict=True):
            assert ours.grad is not None and theirs.grad is not None
            checks.close(ours.grad, theirs.grad.bfloat16(), 10)


@pytest.mark.parametrize("device", checks.DEVICES)
def test_gradients_under_a_mask(device: str) -> None:
    given = Sample((*PLAIN.args, hidden(2, 1, 70, 100)))
    ours, theirs = given.on(device).with_grad(), given.on(device).with_grad()
    theirs = Sample((*(t.detach().clone().requires_grad_() for t in ours.args[:3]), ours.args[3]))
    grad = torch.randn(2, 2, 70, 7, device=device)
    F.scaled_dot_product_attention(*ours.args).backward(grad)
    reference(*theirs.args).backward(grad)
    for a, b in zip(ours.leaves, theirs.leaves, strict=True):
        assert a.grad is not None and b.grad is not None
        checks.close(a.grad, b.grad, 10)


def test_a_mask_with_a_gradient() -> None:
    checks.check_gradients(F.scaled_dot_product_attention, reference, [BIAS], "cpu")


def test_dropout_is_torchs() -> None:
    ours, theirs = PLAIN.with_grad(), PLAIN.with_grad()
    theirs = Sample(tuple(t.detach().clone().requires_grad_() for t in ours.args))
    torch.manual_seed(3)
    found = F.scaled_dot_product_attention(*ours.args, dropout_p=0.3)
    torch.manual_seed(3)
    expected = reference(*theirs.args, dropout_p=0.3)
    checks.close(found, expected, 4)
    grad = torch.randn_like(found)
    found.backward(grad)
    expected.backward(grad)
    for a, b in zip(ours.leaves, theirs.leaves, strict=True):
        assert a.grad is not None and b.grad is not None
        checks.close(a.grad, b.grad, 10)
    assert not F.scaled_dot_product_attention(*PLAIN.args, dropout_p=1.0).any()


def test_gradcheck() -> None:
    small = (torch.randn(1, 2, 3, 2), torch.randn(1, 1, 4, 2), torch.randn(1, 1, 4, 3))
    given = Sample((*small, None, 0.0, True, None, True))
    checks.check_gradcheck(F.scaled_dot_product_attention, [given])


@pytest.mark.parametrize("lead", [(), (3,), (2, 1, 3)])
def test_leading_dimensions(lead: tuple[int, ...]) -> None:
    query, key = torch.randn(*lead, 5, 4), torch.randn(*lead[:-1], *lead[:1] and (1,), 6, 4)
    found = F.scaled_dot_product_attention(query, key, key)
    checks.close(found, reference(query, key, key), 4)


def test_operator() -> None:
    query, key, value = PLAIN.args
    numbers = (0, 0.5, 1.0, 0)
    given = Sample((query, key, value, None, None, *numbers))
    checks.check_operator(torch.ops.mojo.attention_forward.default, [given])
    out, levels = torch.ops.mojo.attention_forward(*given.args)
    given = Sample((out, query, key, value, out, levels, None, None, *numbers))
    checks.check_operator(torch.ops.mojo.attention_backward.default, [given], grad=False)


def test_compiles_whole() -> None:
    found = torch.compile(F.scaled_dot_product_attention, backend="aot_eager", fullgraph=True)
    ours = PLAIN.with_grad()
    out = found(*ours.args, is_causal=True)
    checks.close(out, reference(*PLAIN.args, is_causal=True), 4)
    out.sum().backward()
    assert all(t.grad is not None for t in ours.leaves)


def test_vmap() -> None:
    query, key, value = (t[:, 0] for t in PLAIN.args)
    cases = [
        ((query, key, value), (0, 0, 0)),
        ((query, key[0], value[0]), (0, None, None)),
        ((query.movedim(0, 2), key, value, hidden(70, 100)), (2, 0, 0, None)),
    ]
    checks.check_vmap(F.scaled_dot_product_attention, reference, cases, 4)


def test_autocast_lowers() -> None:
    query, key, value = PLAIN.args
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = F.scaled_dot_product_attention(query, key.bfloat16(), value)
    halves = [t.bfloat16().float() for t in PLAIN.args]
    checks.close(found, reference(*halves).bfloat16(), 2)


def test_errors() -> None:
    query, key, value = PLAIN.args
    f = F.scaled_dot_product_attention
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((query[0, 0, 0], key, value), {}),
        ((query[..., :3], key, value), {}),
        ((query, key, value[:, :, :3]), {}),
        ((query, key, value, hidden(70, 100)), {"is_causal": True}),
        ((query, key, value), {"dropout_p": 1.5}),
        ((query[:, :1].expand(2, 3, 70, 10), key, value), {"enable_gqa": True}),
    ]
    for args, kwargs in wrong:
        with pytest.raises(ValueError, match=r"\[mojo::scaled_dot_product_attention\]"):
            f(*args, **kwargs)
    for args in [(query.double(), key, value), (query, key, value, hidden(70, 100).long())]:
        with pytest.raises(TypeError, match=r"\[mojo::scaled_dot_product_attention\]"):
            f(*args)


@pytest.mark.parametrize("device", checks.DEVICES)
def test_large(device: str) -> None:
    large = Sample((*(torch.randn(2, 8, 512, 64) for _ in range(3)),), {"is_causal": True})
    function = F.scaled_dot_product_attention
    checks.check_values(function, reference, [large], device, None, ["contiguous"], 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_builds_for_a_gpu(dtype: torch.dtype) -> None:
    query, key, value = (t.to(dtype) for t in PLAIN.args)
    numbers = (0, 0.5, 1.0, 0)
    out, levels = torch.ops.mojo.attention_forward(query, key, value, None, None, *numbers)
    for overload, args in [
        (torch.ops.mojo.attention_forward.default, (query, key, value)),
        (torch.ops.mojo.attention_backward.default, (out, query, key, value, out, levels)),
    ]:
        built = cross_build(overload, *args, None, None, *numbers[:3], 64).read_bytes()
        assert b".target sm_90" in built
        assert (b"mma.sync.aligned.m16n8k16" in built) == (dtype == torch.bfloat16)
