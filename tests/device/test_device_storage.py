"""Views, storages, copies, serialization, DLPack."""

import copy
import io
import pickle

import pytest
import torch
from torch.utils import dlpack


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3).to("mojo")


def test_views(x: torch.Tensor) -> None:
    base = x.data_ptr()
    cases = {
        "view": (x.view(-1)[1:3], [1, 2]),
        "t": (x.t(), [[0, 3], [1, 4], [2, 5]]),
        "diagonal": (x.diagonal(), [0, 4]),
        "as_strided": (x.as_strided((2,), (2,), 1), [1, 3]),
        "unfold": (x.unfold(1, 2, 1)[0], [[0, 1], [1, 2]]),
        "expand": (x[:, :1].expand(2, 2), [[0, 0], [3, 3]]),
        "split": (x.split(2, 1)[1], [[2], [5]]),
    }
    for name, (view, wanted) in cases.items():
        assert view.tolist() == wanted, name
        assert view.untyped_storage().data_ptr() == base, name
    assert x.view(torch.int32)[0, 1].item() == 0x3F800000
    z = torch.ones(2, dtype=torch.complex64, device="mojo")
    torch.view_as_real(z)[:, 1] = 3
    assert z.tolist() == [1 + 3j, 1 + 3j]
    assert (z.conj() + 1).tolist() == [2 - 3j, 2 - 3j] and z.conj().imag.tolist() == [-3, -3]


def test_printing(x: torch.Tensor) -> None:
    assert repr(x) == "tensor([[0., 1., 2.],\n        [3., 4., 5.]], device='mojo:0')"
    assert repr(x[0, 1]) == "tensor(1., device='mojo:0')"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int8, torch.bool])
def test_copies(x: torch.Tensor, dtype: torch.dtype) -> None:
    y = x.to(dtype)
    assert y.dtype == dtype and torch.equal(y.cpu(), x.cpu().to(dtype))
    target = torch.zeros(3, 4, device="mojo:1", dtype=dtype)
    target[:, ::2].copy_(x.t())
    assert torch.equal(target.cpu()[:, ::2], x.cpu().t().to(dtype))
    assert target[:, 1].tolist() == [0, 0, 0]
    back = torch.empty(3, 2)
    back.copy_(x.t())
    assert torch.equal(back, x.cpu().t())
    assert x.clone().data_ptr() != x.data_ptr()


def test_save_and_load(x: torch.Tensor) -> None:
    file = io.BytesIO()
    torch.save({"whole": x, "row": x[1]}, file)
    for location, kind in ((None, "mojo"), ("cpu", "cpu"), ("mojo:1", "mojo")):
        file.seek(0)
        found = torch.load(file, map_location=location)
        assert found["whole"].device.type == kind
        assert found["whole"].tolist() == x.tolist() and found["row"].tolist() == [3, 4, 5]
        found["row"][0] = 9
        assert found["whole"][1, 0].item() == 9


def test_copy_and_pickle(x: torch.Tensor) -> None:
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert made.device == x.device and made.tolist() == x.tolist()
        assert made.data_ptr() != x.data_ptr()


def test_modules() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    module.append(torch.nn.Linear(2, 2))
    module[2].weight = module[0].weight
    module.to("mojo:1")
    assert module[2].weight is module[0].weight and module[0].weight.device.index == 1
    other = copy.deepcopy(module)
    assert other[0].weight.data_ptr() != module[0].weight.data_ptr()
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, map_location="cpu")
    for name, value in module.state_dict().items():
        assert torch.equal(loaded[name], value.cpu())
    other.load_state_dict(loaded)
    assert torch.equal(other[0].weight.cpu(), module[0].weight.cpu())


def test_dlpack(x: torch.Tensor) -> None:
    y = dlpack.from_dlpack(dlpack.to_dlpack(x))
    assert y.device == x.device and y.data_ptr() == x.data_ptr() and type(y) is torch.Tensor
    address = x.data_ptr()
    del x
    y.add_(1)
    assert y.tolist() == [[1, 2, 3], [4, 5, 6]] and y.data_ptr() == address


def test_what_it_cannot_hold(x: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="strided"):
        x.to_sparse()
    with pytest.raises(TypeError, match="mojo"):
        x.numpy()
