"""And, or, xor, not and shifts."""

import checks
import pytest
import torch
from checks import Sample
from cross import cross_build

from torch_mojo import functional as F

LOGIC = ["bitwise_and", "bitwise_or", "bitwise_xor"]
SHIFTS = ["bitwise_left_shift", "bitwise_right_shift"]


def numbers(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    return torch.randint(-100, 100, shape, generator=generator).to(dtype)


def counts(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Shifts by less than nothing and by more than there is, too."""
    return torch.randint(-3, 70, shape, generator=torch.Generator().manual_seed(1)).to(dtype)


SAMPLES = [  # of one rank: the first tensor's
    Sample((numbers(4, 5), counts(4, 5))),
    Sample((numbers(4, 5), counts(5))),
    Sample((numbers(4, 1), counts(1, 5))),
    Sample((numbers(0, 3), counts(1, 3))),
    Sample((numbers(3, 2), torch.tensor(3))),
]
RANKS = [
    Sample((numbers(4, 1), counts(3, 1, 5))),
    Sample((torch.tensor(-7), torch.tensor(1))),
]


@pytest.mark.parametrize("device", checks.DEVICES)
@pytest.mark.parametrize("name", [*LOGIC, *SHIFTS])
def test_values(name: str, device: str) -> None:
    samples = SAMPLES + RANKS if name == "bitwise_and" else SAMPLES
    checks.check_values(getattr(F, name), getattr(torch, name), samples, device)


@pytest.mark.parametrize("device", checks.DEVICES)
def test_not(device: str) -> None:
    samples = [Sample((numbers(3, 5),)), Sample((numbers(0, 3),))]
    checks.check_values(F.bitwise_not, torch.bitwise_not, samples, device)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool])
def test_not_of_other_dtypes(dtype: torch.dtype) -> None:
    x = numbers(3, 5, dtype=dtype)
    assert torch.equal(F.bitwise_not(x), torch.bitwise_not(x))


@pytest.mark.parametrize("device", checks.DEVICES)
def test_bools_stay_bools(device: str) -> None:
    a, b = numbers(3, 40, dtype=torch.bool).to(device), numbers(40, dtype=torch.bool).to(device)
    checks.check_values(F.bitwise_and, torch.bitwise_and, [Sample((a, b))], device)
    for value in (True, False):
        checks.close(F.bitwise_and(a, value), torch.bitwise_and(a, value))
        checks.close(F.bitwise_and(value, a), torch.bitwise_and(value, a))


@pytest.mark.parametrize("device", checks.DEVICES)
def test_numbers(device: str) -> None:
    x = numbers(3, 5).to(device)
    for value in (3, -1, 0, 2**40, True):
        checks.close(F.bitwise_and(x, value), torch.bitwise_and(x, value))
        checks.close(torch.ops.mojo.bitwise_and(x, value), torch.bitwise_and(x, value))
        checks.close(F.bitwise_left_shift(value, x), torch.bitwise_left_shift(value, x))
    y = numbers(5).to(device)
    checks.close(torch.ops.mojo.bitwise_and(x, y), torch.bitwise_and(x, y))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bitwise_or", *SHIFTS])
def test_promotion(name: str) -> None:
    """Every pair that has another dtype together; numbers that do not fit; the last shift that leaves a bit."""
    ours, theirs = getattr(F, name), getattr(torch, name)
    for a, b in [
        (torch.uint8, torch.int8),
        (torch.int8, torch.int8),
        (torch.bool, torch.int32),
    ]:
        x, y = numbers(4, 6, dtype=a), counts(6, dtype=b)
        checks.close(ours(x, y), theirs(x, y))
        checks.close(ours(x, y[3]), theirs(x, y[3]))
    for value in (300, 7, 8, -1, True):
        x = numbers(4, 6, dtype=torch.int8)
        checks.close(ours(x, value), theirs(x, value))
        checks.close(ours(value, x), theirs(value, x))
    x = numbers(4, 6, dtype=torch.bool)
    checks.close(ours(x, 3), theirs(x, 3))


@pytest.mark.parametrize("device", checks.DEVICES)
def test_large(device: str) -> None:
    a, b = numbers(1000, 1031).to(device), numbers(1031).to(device)
    assert torch.equal(F.bitwise_xor(a, b), torch.bitwise_xor(a, b))
    assert torch.equal(F.bitwise_xor(a.mT, a.mT), torch.bitwise_xor(a.mT, a.mT))


def test_errors() -> None:
    x, floats = numbers(3), torch.ones(3)
    for args in [(floats, x), (x, floats), (floats, 1), (1, floats), (x, 1.5), (1.5, x), (1, 2)]:
        with pytest.raises((TypeError, RuntimeError), match=r"\[mojo::bitwise_or\]"):
            F.bitwise_or(*args)
    with pytest.raises((TypeError, RuntimeError), match=r"\[mojo::bitwise_not\].*float32"):
        F.bitwise_not(floats)
    with pytest.raises((TypeError, RuntimeError), match=r"\[mojo::bitwise_left_shift\].*bool"):
        F.bitwise_left_shift(x > 0, x > 0)
    with pytest.raises(RuntimeError, match=r"(?i)shape mismatch|broadcast"):
        F.bitwise_or(x, numbers(4))


def test_operator() -> None:
    op = torch.ops.mojo.bitwise_and
    checks.check_operator(op.Tensor, SAMPLES[1:4], grad=False)
    checks.check_operator(op.Scalar, [Sample((numbers(3, 5), 7))], grad=False)
    left = torch.ops.mojo.bitwise_left_shift.Scalar_Tensor
    checks.check_operator(left, [Sample((7, numbers(3, 5)))], grad=False)
    bools = Sample((numbers(3, 40, dtype=torch.bool), True))
    checks.check_operator(op.Bool, [bools], grad=False)


def test_vmap() -> None:
    x, y = numbers(3, 4), counts(3, 4)
    cases = [((x, y), (0, 0)), ((x, y), (0, 1)), ((x, y[0]), (1, None))]
    cases[1] = ((x, numbers(4, 3)), (0, 1))
    cases[2] = ((x, counts(3)), (1, None))
    checks.check_vmap(F.bitwise_and, torch.bitwise_and, cases)
    checks.check_vmap(F.bitwise_and, torch.bitwise_and, [((x, 3), (0, None))])


def test_torch_compile_sees_one_operator() -> None:
    compiled = torch.compile(F.bitwise_and, backend="aot_eager", fullgraph=True)
    x = numbers(3, 5)
    assert torch.equal(compiled(x, x), x)
    assert torch.equal(compiled(x, 3), torch.bitwise_and(x, 3))


def test_builds_for_a_gpu() -> None:
    x = numbers(3, 5)
    library = cross_build(torch.ops.mojo.bitwise_left_shift.Tensor, x, x[0])
    assert b".target sm_90" in library.read_bytes()
