"""The device's tests run on two host devices; that an operator falls back to the CPU is no error here."""

from pathlib import Path

import pytest

import torch_mojo

# Before any test of any folder runs: torch's autograd engine counts the devices at a process's first backward.
torch_mojo.register_device(host_devices=2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:.*has no Mojo kernel"))
