"""Sources of every kind, MAX's own libraries, and CustomOpLibrary."""

import subprocess
from pathlib import Path

import pytest
import torch

import torch_mojo
from torch_mojo import CustomOpLibrary
from torch_mojo.errors import KernelNotFoundError, SignatureError
from torch_mojo.jit.toolchain import toolchain

KERNEL = """
import extensibility
from extensibility import InputTensor, OutputTensor, foreach
from max.gpu.host import DeviceContext
from layout import Coord
from {helper} import shift

@extensibility.register("shifted")
struct Shifted[K: Int = 1]:
    @staticmethod
    def execute[target: StaticString, twice: Bool = False](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](idx: Coord) {{var x}} -> SIMD[output.dtype, width]:
            var v = x.load[width](idx)
            return shift(v, Self.K * (2 if twice else 1))
        foreach[target=target](f, output, ctx)
"""
HELPER = """
def shift[dtype: DType, width: Int](v: SIMD[dtype, width], k: Int) -> SIMD[dtype, width]:
    return v + SIMD[dtype, width](Scalar[dtype](k))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library") / "shifting"
    folder.mkdir()
    (folder / "__init__.mojo").write_text("")
    (folder / "kernel.mojo").write_text(KERNEL.format(helper=".helper"))
    (folder / "helper.mojo").write_text(HELPER)
    return folder


def test_a_package_through_the_interface_of_max(package: Path) -> None:
    library = CustomOpLibrary(package)
    x = torch.arange(4.0)
    out = torch.empty(4)
    assert library.shifted(out, x) is None
    assert torch.equal(out, x + 1)
    library.shifted[{"K": 3, "twice": True}](out, x)
    assert torch.equal(out, x + 6)
    assert library.shifted[{"twice": True, "K": 3}] is library.shifted[{"K": 3, "twice": True}]
    strided = torch.zeros(8)
    library.shifted(strided[::2], x)
    assert strided.tolist() == [1, 0, 2, 0, 3, 0, 4, 0]
    assert list(library.shifted.torch_signature.parameters) == ["output", "x"]
    assert library.shifted.num_outputs == 1 and "shifted" in dir(library)


def test_misspelt_names(package: Path) -> None:
    library = CustomOpLibrary(package)
    with pytest.raises(AttributeError, match=r"no kernel 'shiftet'.*registers shifted"):
        _ = library.shiftet
    with pytest.raises(SignatureError, match=r"no compile-time parameter KK; it has K"):
        library.shifted[{"KK": 1}](torch.empty(1), torch.ones(1))
    with pytest.raises(KernelNotFoundError, match="nowhere"):
        CustomOpLibrary(package / "nowhere")


def test_a_precompiled_package(package: Path, tmp_path: Path) -> None:
    tool = toolchain()
    target = tmp_path / "shifting.mojoc"
    subprocess.run(
        [str(tool.mojo), "precompile", str(package), "-o", str(target)],
        env=tool.environment(tmp_path / "cache"),
        check=True,
        capture_output=True,
    )

    @torch_mojo.mojo_op("tm_lib::shifted", path=target, kernel="shifted")
    def shifted(x: torch.Tensor, K: int = 5) -> torch.Tensor:
        return torch.empty_like(x)

    assert shifted(torch.tensor([1.0])).tolist() == [6.0]
    with pytest.raises(SignatureError, match=r"x has dtype complex64"):
        shifted(torch.ones(1, dtype=torch.complex64))


def test_an_include_folder(package: Path, tmp_path: Path) -> None:
    kernel = tmp_path / "separate.mojo"
    kernel.write_text(KERNEL.format(helper="shifting.helper"))

    @torch_mojo.mojo_op("tm_lib::separate", path=kernel, include=[package.parent], kernel="shifted")
    def separate(x: torch.Tensor, twice: bool = False) -> torch.Tensor:
        return torch.empty_like(x)

    assert separate(torch.tensor([1.0]), twice=True).tolist() == [3.0]


def test_kernels_written_to_fuse_run_alone() -> None:
    source = """
import extensibility
from extensibility import _FusedInputTensor as FusedInputTensor
from extensibility import _FusedOutputTensor as FusedOutputTensor
from extensibility import foreach
from max.gpu.host import DeviceContext
from layout import Coord

@extensibility.register("fused_double")
struct FusedDouble:
    @staticmethod
    def execute[target: StaticString](
        output: FusedOutputTensor,
        x: FusedInputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def f[width: Int](idx: Coord) {var x} -> SIMD[output.dtype, width]:
            return 2 * x._fused_load[width](idx)
        foreach[target=target](f, output, ctx)
"""

    @torch_mojo.mojo_op("tm_lib::fused_double", source=source)
    def fused_double(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    x = torch.arange(6.0).view(2, 3)
    assert torch.equal(fused_double(x), 2 * x)


@pytest.mark.slow
def test_a_kernel_that_calls_linalg() -> None:
    source = """
import extensibility
from extensibility import InputTensor, OutputTensor
from max.gpu.host import DeviceContext
from linalg.matmul import matmul

@extensibility.register("mm")
struct MatMul:
    @staticmethod
    def execute[target: StaticString](
        output: OutputTensor[dtype=DType.float32, rank=2, ...],
        x: InputTensor[dtype=DType.float32, rank=2, ...],
        y: InputTensor[dtype=DType.float32, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        matmul[target=target](
            output.to_tile_tensor(), x.to_tile_tensor(), y.to_tile_tensor(), ctx
        )
"""

    @torch_mojo.mojo_op("tm_lib::mm", source=source)
    def mm(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.new_empty(x.shape[0], y.shape[1])

    for shape in ((33, 47, 20), (1, 5, 1), (128, 256, 64)):
        x, y = torch.randn(shape[:2]), torch.randn(shape[1:])
        torch.testing.assert_close(mm(x, y), x @ y, rtol=1e-4, atol=1e-4)
