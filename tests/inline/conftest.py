"""Inline kernels are tested on each device: tensors are made on it unless a test says otherwise."""

from collections.abc import Iterator

import pytest
import torch

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with torch.device(request.param):
        yield request.param
