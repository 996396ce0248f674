"""Generators: a host device draws the numbers that the CPU draws for the same seed."""

import pytest
import torch


@pytest.mark.parametrize(
    "draw",
    [
        lambda d: torch.rand(5, device=d),
        lambda d: torch.randn(3, 5, device=d),
        lambda d: torch.randint(100, (7,), device=d),
        lambda d: torch.randperm(9, device=d),
        lambda d: torch.empty(4, device=d).exponential_(),
        lambda d: torch.bernoulli(torch.full((9,), 0.5, device=d)),
        lambda d: torch.nn.functional.dropout(torch.ones(20, device=d), 0.5),
        lambda d: torch.multinomial(torch.ones(5, device=d), 3),
    ],
)
def test_the_cpu_s_numbers(draw: object) -> None:
    torch.manual_seed(3)
    first, second = draw("mojo"), draw("mojo")
    before = torch.get_rng_state()
    torch.manual_seed(3)
    assert torch.equal(before, torch.get_rng_state())  # the CPU's generator was not touched
    assert torch.equal(first.cpu(), draw("cpu"))
    assert torch.equal(second.cpu(), draw("cpu"))


def test_generators() -> None:
    g = torch.Generator("mojo:1").manual_seed(1)
    assert g.device == torch.device("mojo:1") and g.initial_seed() == 1
    wanted = torch.rand(3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(torch.rand(3, device="mojo:1", generator=g).cpu(), wanted)
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(3, device="mojo", generator=torch.Generator())


def test_states() -> None:
    state = torch.mojo.get_rng_state()
    first = torch.rand(3, device="mojo")
    torch.mojo.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="mojo"), first)
    with torch.random.fork_rng(devices=[0], device_type="mojo"):
        state = torch.mojo.get_rng_state()
        torch.rand(3, device="mojo")
    assert torch.equal(state, torch.mojo.get_rng_state())
    torch.mojo.manual_seed_all(5)
    assert torch.equal(torch.rand(2, device="mojo:0").cpu(), torch.rand(2, device="mojo:1").cpu())
