"""A library with operators of all kinds, used where there is torch alone."""

import shutil
import sys
from pathlib import Path

import environments
import pytest
import torch

from torch_mojo import build
from torch_mojo.ahead import cases
from torch_mojo.dispatch.keys import CONTIGUOUS, DENSE, REPEATED, STRIDED, KeyReader, key_words
from torch_mojo.errors import MojoError, SignatureError

HERE = Path(__file__).parent
F32 = [torch.float32]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the module."""
    folder = tmp_path_factory.mktemp("many")
    for name in ("many.py", "use_many.py"):
        shutil.copyfile(HERE / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def ops(many: Path) -> dict[str, object]:
    """Import the module from its copy."""
    sys.path.insert(0, str(many))
    sys.modules.pop("many", None)
    import many as module

    sys.path.remove(str(many))
    return vars(module)


def test_all_kinds_of_operators_without_torch_mojo(
    many: Path, ops: dict[str, object], tmp_path: Path
) -> None:
    """Numbers, lists, options, parameters, mutation, sizes that depend on data, broadcasting, errors."""
    x = torch.empty(4)
    flags = {"negate": [False, True]}
    made = build.build_module(
        "many",
        specializations={
            "ship_many::shifted": [
                build.Grid(F32, [1], strided=True, values=flags),
                build.Grid([torch.bfloat16], [1]),
                build.Example(x, x, 1, True),
                build.Example(x[::2], x[::2], 1),
                build.Example(x, times=2, steps=[1, 2, 3]),
            ],
            "ship_many::double_": build.Grid(F32, [1], strided=True),
            "ship_many::positive": build.Grid(F32, [1]),
            "ship_many::plus": build.Grid(F32, [0, 1, 2], strided=True),
        },
        bundle_runtime=True,
    )
    assert made.path == many / "libmany_mojo.so"
    assert made.runtime == []
    python = environments.make(tmp_path / "env", "torch", "numpy")
    shown = environments.run(python, "use_many.py", "ShippedOp", cwd=many)
    assert shown.splitlines()[-1] == "done", shown


def test_key_words_are_what_the_router_pushes(ops: dict[str, object]) -> None:
    op = ops["shifted"]
    calls = (
        ((torch.empty(3),), {}),
        ((torch.empty(6)[::2], torch.empty(3), 4, True), {"times": 2, "steps": [1, 2]}),
    )
    for args, kwargs in calls:
        values, keys, _ = op.calls.example(args, kwargs)
        words = key_words(op.arguments, keys, values, op.in_key)
        read = KeyReader(op.arguments, [w for w, _, _ in words], op.in_key).keys(values)
        assert read == keys
        assert [w for w, tensor, _ in words if tensor and w] == [k.word for k in keys if k]


def test_grids(ops: dict[str, object]) -> None:
    plus = ops["plus"]
    found = cases.cases(plus, cases.Grid(F32, [1, 2], strided=True))
    layouts = {(k.rank, k.layout) for c in found for k in c.keys}
    assert layouts == {
        (1, CONTIGUOUS),
        (1, STRIDED),
        (1, REPEATED),
        (2, CONTIGUOUS),
        (2, DENSE),
        (2, STRIDED),
        (2, REPEATED),
    }
    assert {tuple(k.rank for k in c.keys) for c in found} == {(1, 1), (1, 2), (2, 1), (2, 2)}
    assert all(c.plan is not None for c in found)
    positive = cases.cases(ops["positive"], cases.Grid(F32, [1]))
    assert [c.plan for c in positive] == [None]
    # a kernel's own rank and dtype win; what it does not take is left out, unless nothing is left
    double = cases.cases(ops["double_"], cases.Grid([torch.float16], [3], strided=True))
    assert {(k.dtype, k.rank, k.layout) for c in double for k in c.keys} == {
        (torch.float32, 1, CONTIGUOUS),
        (torch.float32, 1, STRIDED),
    }
    with pytest.raises(SignatureError, match="has no argument colour; it has x, bias, by"):
        cases.cases(ops["shifted"], cases.Grid(values={"colour": [1]}))
    with pytest.raises(SignatureError, match="the grid is empty"):
        cases.cases(plus, cases.Grid(ranks=[]))


def test_names_that_are_not_there(ops: dict[str, object]) -> None:
    with pytest.raises(MojoError, match="There is no operator ship_many::minus; the module declar"):
        build.build_module("many", specializations={"ship_many::minus": build.Grid()})
    with pytest.raises(MojoError, match="json declares no operator"):
        build.build_module("json")


def test_an_editable_installation_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from setuptools import Distribution

    built: list[str] = []
    monkeypatch.setattr(build, "build_module", lambda name, *_, **__: built.append(name))
    for inplace, wanted in ((True, []), (False, ["many"])):
        extension = build.MojoExtension("many", targets=["x86-64-v2"])
        command = build.BuildMojo(Distribution({"name": "x", "ext_modules": [extension]}))
        command.inplace = inplace
        command.ensure_finalized()
        command.run()
        assert built == wanted
