"""Streams and events."""

import torch


def test_streams() -> None:
    default = torch.mojo.current_stream()
    assert default == torch.mojo.default_stream() and default.device == torch.device("mojo:0")
    stream = torch.mojo.Stream()
    assert stream != default
    with torch.mojo.stream(stream):
        assert torch.mojo.current_stream() == stream
        x = torch.ones(3, device="mojo") * 2
        x.record_stream(stream)
    assert torch.mojo.current_stream() == default
    default.wait_stream(stream)
    assert x.tolist() == [2, 2, 2] and stream.query()
    other = torch.mojo.Stream("mojo:1")
    with other:
        assert torch.mojo.current_stream(1) == other and torch.mojo.current_device() == 1
    assert torch.mojo.current_device() == 0


def test_events() -> None:
    first, second = (torch.mojo.Event(enable_timing=True) for _ in range(2))
    first.record()
    torch.ones(1000, device="mojo").sum()
    second.record()
    second.synchronize()
    torch.mojo.synchronize()
    assert second.query() and first.elapsed_time(second) > 0
    torch.mojo.current_stream().wait_event(second)
