"""Memory: what is counted, what is freed, pinned memory."""

import gc

import pytest
import torch


def test_memory_is_counted_and_freed() -> None:
    gc.collect()
    before = torch.mojo.memory_allocated(1)
    torch.mojo.reset_peak_memory_stats(1)
    x = torch.empty(1000, device="mojo:1")
    assert torch.mojo.memory_allocated(1) == before + 4000
    y = x.view(10, 100)
    del x
    assert torch.mojo.memory_allocated(1) == before + 4000
    del y
    assert torch.mojo.memory_allocated(1) == before
    assert torch.mojo.max_memory_allocated(1) == before + 4000
    torch.mojo.reset_peak_memory_stats(1)
    assert torch.mojo.max_memory_allocated(1) == before
    free, total = torch.mojo.mem_get_info()
    assert 0 < free <= total


def test_what_the_cpu_made_is_counted() -> None:
    gc.collect()
    before = torch.mojo.memory_allocated()
    x = torch.linalg.inv(torch.eye(8, device="mojo"))
    assert torch.mojo.memory_allocated() - before == x.untyped_storage().nbytes()
    del x
    assert torch.mojo.memory_allocated() == before


def test_out_of_memory_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="mojo:0 is out of memory"):
        torch.empty(2**60, device="mojo")
    assert torch.ones(2, device="mojo").tolist() == [1, 1]


def test_resize() -> None:
    x = torch.arange(4.0, device="mojo")
    x.resize_(100)
    assert x[:4].tolist() == [0, 1, 2, 3]
    made = torch.linalg.inv(torch.eye(2, device="mojo")).resize_(50)
    assert made[:4].tolist() == [1, 0, 0, 1]


def test_pinned_memory() -> None:
    x = torch.ones(3).pin_memory()
    assert x.is_pinned() and x[:2].is_pinned() and not torch.ones(3).is_pinned()
    assert x.to("mojo", non_blocking=True).tolist() == [1, 1, 1]
    address = x.data_ptr()
    del x
    assert address


def test_empty_and_0d() -> None:
    assert torch.empty(0, 3, device="mojo").add(1).shape == (0, 3)
    assert (torch.tensor(2.0, device="mojo") * 3).item() == 6
    assert torch.empty((), device="mojo").shape == ()
