"""What the CPU runs for the device: views, in-place and out= forms, one warning each, or an error."""

import subprocess
import sys

import pytest
import torch

CODE = """
import warnings, torch, torch_mojo
torch_mojo.register_device()
x = torch.eye(3, device="mojo")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    torch.linalg.inv(x); torch.linalg.inv(x)
assert len([w for w in seen if "linalg_inv" in str(w.message)]) == 1, [str(w.message) for w in seen]
"""


def test_one_warning() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True)


def test_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.eye(3, device="mojo")
    monkeypatch.setenv("TORCH_MOJO_FALLBACK", "error")
    with pytest.raises(RuntimeError, match=r"linalg_inv.*TORCH_MOJO_FALLBACK=error"):
        torch.linalg.inv(x)
    monkeypatch.delenv("TORCH_MOJO_FALLBACK")
    assert torch.linalg.inv(x).tolist() == x.tolist()


def test_out_arguments() -> None:
    x = torch.tensor([[4.0, 1], [2, 3]], device="mojo")
    wanted = torch.linalg.inv(x.cpu())
    empty = torch.empty(0, device="mojo")
    assert torch.linalg.inv(x, out=empty) is empty
    torch.testing.assert_close(empty.cpu(), wanted)
    base = torch.zeros(2, 4, device="mojo")
    torch.linalg.inv(x, out=base[:, ::2])
    torch.testing.assert_close(base.cpu()[:, ::2], wanted)
    assert base[:, 1].tolist() == [0, 0]
    small = torch.zeros(1, device="mojo")
    with pytest.warns(UserWarning, match="resized"):
        torch.linalg.inv(x, out=small)
    torch.testing.assert_close(small.cpu(), wanted)


def test_in_place_returns_itself() -> None:
    x = torch.arange(6.0, device="mojo").view(2, 3)
    row = x[1]
    assert row.polygamma_(1) is row
    torch.testing.assert_close(x.cpu()[1], torch.tensor([3.0, 4, 5]).polygamma(1))
    assert x[0].tolist() == [0, 1, 2]


def test_several_results_and_lists() -> None:
    x = torch.tensor([[2.0, 1], [1, 3]], device="mojo:1")
    values, vectors = torch.linalg.eigh(x)
    assert values.device == vectors.device == x.device
    torch.testing.assert_close(vectors @ values.diag() @ vectors.t(), x)
    assert [t.device.index for t in torch.unique(x, return_counts=True)] == [1, 1]
    made = torch.block_diag(x, x)
    assert made.shape == (4, 4) and made.device == x.device


def test_indices_of_another_device() -> None:
    x = torch.arange(4.0, device="mojo")
    assert x[torch.tensor([3, 0])].tolist() == [3, 0]
    with pytest.raises(RuntimeError, match="same device"):
        torch.cdist(x.view(2, 2), torch.ones(2, 2))
