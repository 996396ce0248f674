"""Elementwise operators without torch's meta function: what it says of dtypes, sizes, strides and errors still holds."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_mojo.device import fallback

CPU = {
    "vector": torch.rand(4),
    "matrix": torch.rand(3, 4),
    "row": torch.rand(1, 4),
    "column": torch.rand(3, 1),
    "single": torch.rand(1, 1).t(),
    "turned": torch.rand(4, 3).t(),
    "turned column": torch.rand(1, 3).t(),
    "every other": torch.rand(3, 8)[:, ::2],
    "repeated": torch.rand(4).expand(3, 4),
    "number": torch.tensor(2.5),
    "nothing": torch.rand(0, 4),
    "double": torch.rand(3, 4, dtype=torch.float64),
    "double number": torch.tensor(0.5, dtype=torch.float64),
    "whole": torch.arange(12).view(3, 4),
    "whole number": torch.tensor(3),
    "channels last": torch.rand(2, 3, 3, 4).contiguous(memory_format=torch.channels_last),
    "images": torch.rand(2, 3, 3, 4),
}
ON_MOJO = {
    k: v.to("mojo").as_strided(v.shape, v.stride())
    if 0 not in v.stride() and k != "every other"
    else v.to("mojo")
    for k, v in CPU.items()
}


def _outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except (RuntimeError, IndexError) as e:
        return type(e)


@pytest.mark.parametrize("name", ["add", "mul", "eq", "maximum", "atan2"])
def test_two_inputs_are_described_as_on_the_cpu(name: str) -> None:
    function = getattr(torch, name)
    for a, b in itertools.product(CPU, repeat=2):
        if {a, b} & {"repeated", "every other"}:
            continue  # their layout does not survive a copy
        wanted = _outcome(function, CPU[a], CPU[b])
        found = _outcome(function, ON_MOJO[a], ON_MOJO[b])
        if isinstance(wanted, type):
            assert found is wanted, (a, b)
            continue
        assert not isinstance(found, type), (a, b, found)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), (a, b)
        assert found.stride() == wanted.stride(), (a, b)
        torch.testing.assert_close(found.cpu(), wanted)


def test_in_place_follows_the_cpu() -> None:
    for a, b in itertools.product(CPU, repeat=2):
        ours, theirs = ON_MOJO[a].clone(), CPU[a].clone()
        wanted = _outcome(theirs.add_, CPU[b])
        found = _outcome(ours.add_, ON_MOJO[b])
        assert isinstance(found, type) == isinstance(wanted, type), (a, b, found)
        if not isinstance(wanted, type):
            assert found is ours
            torch.testing.assert_close(ours.cpu(), theirs)


def test_numbers_promote_as_on_the_cpu() -> None:
    for name, value in itertools.product(("vector", "whole", "whole number"), (2, 2.5, True, 1j)):
        for function in (torch.add, torch.mul, torch.eq, torch.Tensor.lt):
            wanted = _outcome(function, CPU[name], value)
            found = _outcome(function, ON_MOJO[name], value)
            if isinstance(wanted, type):
                assert isinstance(found, type) and issubclass(wanted, found), (name, value, found)
            else:
                assert found.dtype == wanted.dtype
                torch.testing.assert_close(found.cpu(), wanted)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: torch.clamp(t["vector"]),
        lambda t: t["vector"].clone().clamp_(),
        lambda t: torch.lerp(t["matrix"], t["double"], 0.5),
        lambda t: t["whole"].clone().add_(1.5),
        lambda t: torch.add(t["whole"], t["whole"], alpha=1.5),
        lambda t: t["vector"].expand(3, 4).add_(1),
        lambda t: t["vector"] + t["images"][0, 0, 0].expand(5, 4)[:, :3],
    ],
)
def test_refusals_are_those_of_the_cpu(call: Callable[[dict[str, torch.Tensor]], object]) -> None:
    with pytest.raises((RuntimeError, ValueError)) as wanted:
        call(CPU)
    with pytest.raises(wanted.type, match=r".") as found:
        call(ON_MOJO)
    assert str(found.value).split("\n")[0][:40] == str(wanted.value).split("\n")[0][:40]


def test_overlapping_memory_in_place() -> None:
    wanted = torch.arange(8.0)
    found = wanted.to("mojo")
    with pytest.raises(RuntimeError, match="single memory location"):
        wanted[1:].add_(wanted[:-1])
    with pytest.raises(RuntimeError, match="single memory location"):
        found[1:].add_(found[:-1])
    found.add_(found)
    torch.testing.assert_close(found.cpu(), torch.arange(8.0) * 2)


def test_other_devices_are_refused() -> None:
    a = torch.ones(3, device="mojo:0")
    for other in (torch.ones(3, device="mojo:1"), torch.ones(3)):
        with pytest.raises(RuntimeError, match="same device"):
            a + other
        with pytest.raises(RuntimeError, match="same device"):
            a.add_(other)
    assert (a + torch.tensor(1.0)).device == a.device


def test_no_call_reaches_the_cpu() -> None:
    x, y = ON_MOJO["matrix"], ON_MOJO["row"]
    fallback.ran.clear()
    for function in (torch.add, torch.sub, torch.mul, torch.div, torch.eq, torch.lt):
        function(x, y)
        function(x, 2.0)
    x.exp().add_(y, alpha=2).clamp_(0, 1).lerp_(x, 0.5)
    torch.addcmul(x, x, y, value=0.5)
    torch.nn.functional.elu(x)
    assert not fallback.ran
