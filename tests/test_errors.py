"""Errors name operator, argument and both sides; the process goes on."""

import re
from pathlib import Path

import ops
import pytest
import torch

import torch_mojo
from torch_mojo.errors import KernelError, MojoCompileError, SignatureError

BROKEN = """
import extensibility
from extensibility import InputTensor, OutputTensor

@extensibility.register("broken")
struct Broken:
    @staticmethod
    def execute(
        output: OutputTensor[dtype=DType.float32, rank=1, ...],
        x: InputTensor[dtype=DType.float32, rank=1, ...],
    ) raises:
        output[0] = undefined_name(x[0])
"""
BROKEN_LINE = next(
    i
    for i, line in enumerate(Path(__file__).read_text().splitlines(), 1)
    if "undefined_name(x" in line
)


def still_works() -> None:
    assert ops.only_float32(torch.tensor([1.0])).tolist() == [1.0]


def test_a_compile_error_in_inline_text_shows_the_python_line() -> None:
    @torch_mojo.mojo_op("tm_err::broken", source=BROKEN)
    def broken(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    for call, kind in ((broken, MojoCompileError), (torch.ops.tm_err.broken, RuntimeError)):
        with pytest.raises(kind) as caught:
            call(torch.ones(1))
        text = str(caught.value)
        assert (
            f"{__file__}:{BROKEN_LINE}: error: use of unknown declaration 'undefined_name'" in text
        )
        assert "tm_run" not in text and "main.mojo" not in text, "the generated text is not shown"
    still_works()


def test_a_compile_error_in_a_file_shows_that_file(tmp_path: Path) -> None:
    (tmp_path / "helper.mojo").write_text(
        "def twice(x: Float32) -> Float32:\n    return x * nothing\n"
    )
    file = tmp_path / "kernels.mojo"
    file.write_text("from helper import twice\n" + BROKEN.replace("undefined_name", "twice"))

    @torch_mojo.mojo_op("tm_err::in_file", path=file, kernel="broken")
    def in_file(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    with pytest.raises(MojoCompileError, match=rf"{re.escape(str(tmp_path))}/helper.mojo:2: error"):
        in_file(torch.ones(1))
    # the corrected file is built: a failure is not remembered
    (tmp_path / "helper.mojo").write_text("def twice(x: Float32) -> Float32:\n    return x * 2\n")
    assert in_file(torch.tensor([3.0])).tolist() == [6.0]


def test_a_wrong_dtype_names_argument_and_both_dtypes() -> None:
    with pytest.raises(SignatureError) as caught:
        ops.only_float32(torch.tensor([1.0, 2.0], dtype=torch.float64))
    text = str(caught.value)
    assert text.startswith(
        "[tm_test::only_float32] x has dtype float64; the kernel takes dtype float32"
    )
    assert text.endswith("x.to(torch.float32).")
    still_works()


def test_mixed_dtypes_name_the_arguments() -> None:
    with pytest.raises(SignatureError, match=r"y has dtype float64.*float32"):
        ops.mul(torch.ones(2), torch.ones(2, dtype=torch.float64))


def test_a_wrong_rank_names_expected_and_given() -> None:
    with pytest.raises(
        SignatureError, match=r"only_float32\] x has rank 2; the kernel takes rank 1"
    ):
        ops.only_float32(torch.ones(2, 2))
    with pytest.raises(SignatureError, match=r"row_sum\] x has rank 1; the kernel takes rank 2"):
        ops.row_sum(torch.ones(2))
    still_works()


def test_a_dtype_that_mojo_lacks() -> None:
    with pytest.raises(SignatureError, match=r"tm_test::double\] x has dtype complex64"):
        ops.double(torch.ones(2, dtype=torch.complex64))


def test_a_wrong_number_of_arguments() -> None:
    with pytest.raises(RuntimeError, match=r"tm_test::mul\(\) is missing value for argument 'y'"):
        ops.mul(torch.ones(2))
    with pytest.raises(RuntimeError, match="tm_test::mul"):
        ops.mul(torch.ones(2), torch.ones(2), torch.ones(2))


def test_an_error_of_the_kernel_arrives_with_its_text() -> None:
    with pytest.raises(KernelError, match=r"\[tm_test::only_float32\] negative size: -1"):
        ops.only_float32(torch.tensor([-1.0]))
    with pytest.raises(RuntimeError, match="negative size: -2"):
        torch.ops.tm_test.only_float32(torch.tensor([-2.0]))
    still_works()


def test_a_number_that_does_not_fit_is_refused() -> None:
    source = ops.LOOPS.replace("times: Int64", "times: Int8")

    @torch_mojo.mojo_op("tm_err::narrow", source=source, kernel="affine")
    def narrow(
        x: torch.Tensor, bias: float, times: int, shift: list[int], weights: list[float]
    ) -> torch.Tensor:
        return torch.empty_like(x)

    x = torch.tensor([1.0])
    assert narrow(x, 0.0, -128, [], []).tolist() == [-128.0]
    for value in (128, 2**40):
        with pytest.raises(KernelError, match=rf"times={value} does not fit"):
            narrow(x, 0.0, value, [], [])


def test_a_body_that_returns_an_argument_is_refused() -> None:
    @torch_mojo.mojo_op("tm_err::alias", source=ops.POINTWISE, kernel="double")
    def alias(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1)

    with pytest.raises(SignatureError, match="output 0 of its body shares memory"):
        alias(torch.ones(2))


def test_errors_leak_neither_tensors_nor_much_memory() -> None:
    import resource

    big = torch.full((1 << 20,), -1.0)
    for i in range(60):
        if i == 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(KernelError):
            ops.only_float32(big)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 50 * 1024, f"{grown} KiB for 50 failed calls with 4 MiB each"
