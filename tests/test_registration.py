"""Declaring operators: where, how often, with which annotations; what is refused and how."""

import gc
import subprocess
import sys
import textwrap
from pathlib import Path

import ops
import pytest
import torch

import torch_mojo
from torch_mojo.dispatch.router import router
from torch_mojo.errors import KernelNotFoundError, SignatureError

PLUS = """
import extensibility
from extensibility import InputTensor, OutputTensor

@extensibility.register("plus")
struct Plus:
    @staticmethod
    def execute(
        output: OutputTensor[dtype=DType.float32, rank=1, ...],
        x: InputTensor[dtype=DType.float32, rank=1, ...],
    ) raises:
        for i in range(x.dim_size(0)):
            output[i] = x[i] + 1
"""


def declare(name: str, source: str = PLUS, kernel: str = "plus") -> torch_mojo.MojoOp:
    @torch_mojo.mojo_op(name, source=source, kernel=kernel)
    def op(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    return op


def test_an_operator_declared_in_a_function_stays() -> None:
    def helper() -> None:
        declare("tm_reg::local")

    helper()
    gc.collect()
    assert torch.ops.tm_reg.local(torch.tensor([1.0, 2.0])).tolist() == [2.0, 3.0]


def test_a_second_declaration_replaces_the_first() -> None:
    old = declare("tm_reg::twice")
    assert old(torch.tensor([1.0])).tolist() == [2.0]
    held = torch.ops.tm_reg.twice.default
    new = declare("tm_reg::twice", PLUS.replace("+ 1", "+ 100"))
    x = torch.tensor([1.0])
    for call in (new, old, held, torch.ops.tm_reg.twice):
        assert call(x).tolist() == [101.0], "no stale code, whoever holds it"


def test_a_second_declaration_may_have_another_schema() -> None:
    declare("tm_reg::grown")
    torch.ops.tm_reg.grown(torch.ones(1))

    @torch_mojo.mojo_op("tm_reg::grown", source=PLUS, kernel="plus")
    def grown(x: torch.Tensor, n: int = 3) -> torch.Tensor:
        return x.new_empty(x.shape[0])

    assert grown(torch.ones(1), 7).tolist() == [2.0]
    assert "SymInt n=3" in str(torch.ops.tm_reg.grown.default._schema)


def test_another_library_s_operator_is_not_replaced() -> None:
    with pytest.raises(SignatureError, match="aten::add"):
        declare("aten::add")
    assert torch.add(torch.ones(1), 1).item() == 2.0


ANNOTATIONS = """
from __future__ import annotations
import typing
from collections.abc import Sequence
{top}
import torch_mojo
SOURCE = {source!r}
def register():
    {inner}
    @torch_mojo.mojo_op("tm_ann::affine", source=SOURCE, kernel="affine")
    def affine(x: torch.Tensor, bias: float, times: int, shift: {ints}, weights: {floats}) -> torch.Tensor:
        return torch.empty_like(x)
    return affine
"""


@pytest.mark.parametrize(
    ("ints", "floats"),
    [
        ("list[int]", "list[float]"),
        ("typing.List[int]", "typing.List[float]"),
        ("Sequence[int]", "typing.Sequence[float]"),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_postponed_annotations(ints: str, floats: str, inside: bool, tmp_path: Path) -> None:
    text = ANNOTATIONS.format(
        top="" if inside else "import torch",
        inner="import torch" if inside else "pass",
        source=ops.LOOPS,
        ints=ints,
        floats=floats,
    )
    file = tmp_path / "declares.py"
    file.write_text(text)
    names: dict[str, object] = {"__name__": "declares"}
    exec(compile(text, str(file), "exec"), names)
    op = names["register"]()  # type: ignore[operator]
    assert op.schema == (
        "tm_ann::affine(Tensor x, float bias, SymInt times, SymInt[] shift, float[] weights) -> Tensor"
    )
    assert op(torch.tensor([1.0]), 0.5, 2, [1], [0.25]).tolist() == [3.75]


def test_an_annotation_that_cannot_be_resolved_is_named() -> None:
    with pytest.raises(SignatureError, match=r"tm_reg::lost.*annotation of x.*Missing"):

        @torch_mojo.mojo_op("tm_reg::lost", source=PLUS, kernel="plus")
        def lost(x: "Missing") -> torch.Tensor:  # noqa: F821
            return torch.empty_like(x)


def test_an_unknown_kernel_lists_what_is_there() -> None:
    with pytest.raises(KernelNotFoundError) as caught:
        declare("tm_reg::plsu", kernel="plsu")
    text = str(caught.value)
    assert "'plsu'" in text and "registers plus" in text and "Did you mean 'plus'" in text
    assert "include=" in text


@pytest.mark.parametrize("what", ["nothing", "empty folder", "text file", "bad name"])
def test_paths_without_kernels(what: str, tmp_path: Path) -> None:
    path = {
        "nothing": tmp_path / "nothing.mojo",
        "empty folder": tmp_path,
        "text file": tmp_path / "notes.txt",
        "bad name": tmp_path / "my-kernel.mojo",
    }[what]
    if path.suffix in (".txt", ".mojo") and what != "nothing":
        path.write_text("hello")
    with pytest.raises(KernelNotFoundError, match=path.name):
        torch_mojo.mojo_op("tm_reg::nowhere", path=path)(lambda x: x)


DISAGREEMENTS = [
    (lambda y: y, {"y": torch.Tensor}, torch.Tensor, r"kernel takes x.*has y"),
    (lambda x: x, {"x": float}, torch.Tensor, r"x is declared as float.*InputTensor"),
    (lambda x: x, {"x": torch.Tensor}, tuple[torch.Tensor, torch.Tensor], r"returns 2.*1 output"),
    (lambda x: x, {"x": torch.Tensor}, int, r"return 0 has type int"),
    (lambda x: x, {"x": torch.Tensor | None}, torch.Tensor, r"x may be None.*has_x: Bool"),
]


@pytest.mark.parametrize(("body", "arguments", "result", "message"), DISAGREEMENTS)
def test_declaration_and_kernel_disagree(
    body: object, arguments: dict[str, object], result: object, message: str
) -> None:
    body.__annotations__ = {**arguments, "return": result}  # type: ignore[attr-defined]
    with pytest.raises(SignatureError) as caught:
        torch_mojo.mojo_op("tm_reg::plus", source=PLUS)(body)  # type: ignore[arg-type]
    import re

    assert re.search(message, str(caught.value), re.S), caught.value
    assert "tm_reg::plus" in str(caught.value)


def test_a_list_of_tensors_is_refused_by_name() -> None:
    with pytest.raises(SignatureError, match=r"xs is a list of tensors.*cannot be given a list"):

        @torch_mojo.mojo_op(
            "tm_reg::plus", source=PLUS.replace("x: InputTensor", "xs: InputVariadicTensors")
        )
        def plus(xs: list[torch.Tensor]) -> torch.Tensor:
            return xs[0].new_empty(1)


def test_mutation_must_be_said_on_both_sides() -> None:
    with pytest.raises(
        SignatureError, match=r'kernel writes x.*\n.*\n.*\nAdd mutates_args=\("x",\)'
    ):

        @torch_mojo.mojo_op("tm_reg::plus_one_", source=ops.LOOPS)
        def plus_one_(x: torch.Tensor) -> None: ...

    with pytest.raises(SignatureError, match="x is declared as mutated, and the kernel only reads"):

        @torch_mojo.mojo_op("tm_reg::plus", source=PLUS, mutates_args=("x",))
        def plus(x: torch.Tensor) -> torch.Tensor:
            return torch.empty_like(x)


def test_a_fake_must_have_the_operator_s_parameters() -> None:
    with pytest.raises(SignatureError, match=r"tm_test::fill_value.*lacks the parameter value"):
        ops.fill_value.register_fake(lambda n, dtype, device: torch.empty(n))


def test_declaring_builds_and_imports_nothing(tmp_path: Path) -> None:
    program = f"""
        import sys
        import torch
        before = set(sys.modules)
        import torch_mojo
        @torch_mojo.mojo_op("tm_reg::plus", source={PLUS!r})
        def plus(x: torch.Tensor) -> torch.Tensor:
            return torch.empty_like(x)
        new = {{m.split(".")[0] for m in set(sys.modules) - before}}
        assert not new & {{"max", "mojo", "rich", "sympy", "filelock"}}, new
        print(torch.ops.tm_reg.plus(torch.empty(3, device="meta")).shape)
    """
    import os

    environment = {**os.environ, "TORCH_MOJO_CACHE_DIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "torch.Size([3])\n"
    assert not list(tmp_path.rglob("*.so"))


def test_there_is_room_for_more_operators_than_the_router_has_functions() -> None:
    native = router()
    while len(native._slots) < native._library.tm_slots():
        native.new_slot()
    double = declare("tm_reg::one_more")
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    double.register_autograd(lambda ctx, grad: grad * 3)
    y = double(x)
    y.sum().backward()
    assert y.tolist() == [2.0, 3.0]
    assert x.grad is not None and x.grad.tolist() == [3.0, 3.0]
    with pytest.raises(TypeError, match="float32"):
        double(torch.tensor([1]))
    assert declare("tm_reg::and_another")(x.detach()).tolist() == [2.0, 3.0]
