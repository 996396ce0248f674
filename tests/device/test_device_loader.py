"""DataLoader: pinned memory, workers."""

import torch
from torch.utils.data import DataLoader, TensorDataset

DATA = TensorDataset(torch.arange(8.0))


def test_pinned_batches() -> None:
    for i, (batch,) in enumerate(DataLoader(DATA, batch_size=4, pin_memory=True)):
        assert batch.is_pinned()
        moved = batch.to("mojo", non_blocking=True)
        assert moved.tolist() == [4 * i + k for k in range(4)]


def test_workers() -> None:
    (torch.ones(3, device="mojo") + 1).sum()
    loader = DataLoader(DATA, batch_size=4, num_workers=1, pin_memory=True)
    assert [b.to("mojo").sum().item() for (b,) in loader] == [6, 22]
