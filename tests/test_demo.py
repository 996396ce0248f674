"""The demo: its kernels against plain torch, its table, its pictures."""

import sys
from pathlib import Path

import pytest
import torch

from torch_mojo import demo, demo_report
from torch_mojo.errors import MojoError

SIZES = [(1, 1), (2, 3), (5, 17), (37, 64), (64, 131)]


def picture(rows: int, columns: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows * 1000 + columns)
    return torch.randint(0, 256, (rows, columns, 3), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("size", SIZES)
def test_grayscale(size: tuple[int, int]) -> None:
    image = picture(*size)
    found = demo.grayscale(image)
    torch.testing.assert_close(found, demo.torch_grayscale(image))
    weights = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
    exact = (image.double() @ weights / 255).float()
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("amount", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("size", SIZES)
def test_sharpen(size: tuple[int, int], amount: float) -> None:
    x = demo.torch_grayscale(picture(*size))
    torch.testing.assert_close(
        demo.sharpen(x, amount), demo.torch_sharpen(x, amount), rtol=1e-5, atol=1e-5
    )
    if amount == 0:
        assert torch.equal(demo.sharpen(x, amount), x)


@pytest.mark.parametrize("size", SIZES)
def test_sobel(size: tuple[int, int]) -> None:
    x = demo.torch_grayscale(picture(*size))
    torch.testing.assert_close(demo.sobel(x), demo.torch_sobel(x), rtol=1e-5, atol=1e-5)


def test_sobel_of_a_ramp() -> None:
    x = torch.arange(9.0).expand(4, 9).contiguous() / 8
    expected = torch.ones(4, 9)
    expected[:, [0, -1]] = 0.5  # the border repeats: half the slope
    torch.testing.assert_close(demo.sobel(x), expected)


def test_sobel_of_a_transposed_picture() -> None:
    x = demo.torch_grayscale(picture(23, 37))
    torch.testing.assert_close(demo.sobel(x.t()), demo.torch_sobel(x).t(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [*SIZES, (0, 5)])
def test_histogram(size: tuple[int, int]) -> None:
    x = demo.torch_grayscale(picture(*size))
    found = demo.histogram(x)
    assert found.dtype == torch.int64
    assert torch.equal(found, demo.torch_histogram(x))
    assert int(found.sum()) == x.numel()


def test_histogram_of_the_ends() -> None:
    x = torch.tensor([[-3.0, 0.0, 0.5, 1.0, 7.0]])
    expected = torch.zeros(demo.BINS, dtype=torch.int64)
    expected[0], expected[demo.BINS // 2], expected[-1] = 2, 1, 2
    assert torch.equal(demo.histogram(x), expected)


def test_pipeline() -> None:
    image = picture(64, 131)
    results = demo.pipeline(image)
    assert demo.same_pipeline(results, image)
    wrong = (*results[:3], results[3] + 1)
    assert not demo.same_pipeline(wrong, image)


def test_same_tells_a_difference() -> None:
    x = torch.rand(4, 4)
    assert demo.same(x + 1e-7, x)
    assert not demo.same(x + 1e-3, x)
    assert not demo.same(x.double(), x)
    assert not demo.same(x[:3], x)
    counts = torch.tensor([10_000_000])
    assert not demo.same(counts + 1, counts)


# the report


@pytest.fixture
def image_file(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("rich")
    file = tmp_path / "small.png"
    image.fromarray(picture(32, 48).numpy()).save(file)
    return file


def test_report(image_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    out = tmp_path / "deep" / "out"
    assert demo_report.run(out, ["eager"], image_file) == 0
    assert torch.equal(demo_report.load_picture(out / "original.png"), picture(32, 48))
    gray, sharp, edges, _ = demo.torch_pipeline(picture(32, 48))
    for name, expected in {
        "grayscale": gray,
        "sharpen": sharp,
        "sobel": edges / edges.max(),
    }.items():
        with Image.open(out / f"{name}.png") as opened:
            assert opened.mode == "L"
        found = demo_report.load_picture(out / f"{name}.png")[..., 0]
        assert int((found.int() - (expected * 255).round().int()).abs().max()) <= 1, name
    shown = capsys.readouterr().out
    for name in (*demo.KERNEL_PAIRS, "pipeline"):
        row = next(line for line in shown.splitlines() if name in line)
        assert "eager" in row and "yes" in row


def test_bars() -> None:
    image = pytest.importorskip("PIL.Image")
    del image
    bars = demo_report._bars(torch.tensor([0, 5, 10]), height=11, width=2)
    assert bars.size == (6, 11)
    dark = [sum(bars.getpixel((x, y)) == 40 for y in range(11)) for x in range(6)]
    assert dark == [0, 0, 0, 5, 0, 10]


def test_a_wrong_result_is_a_failure(
    image_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def wrong(x: torch.Tensor) -> torch.Tensor:
        return demo.torch_sobel(x) + 1

    monkeypatch.setattr(demo, "KERNEL_PAIRS", {"sobel": (demo.sobel, wrong)})
    assert demo_report.run(tmp_path, ["eager"], image_file) == 1
    assert "NO" in capsys.readouterr().out


def test_a_missing_backend_is_none(
    image_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(gm: object, inputs: object) -> None:
        raise RuntimeError("no C++ compiler\nand more")

    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **kw: compile_(f, **(kw | {"backend": refuse})))
    assert demo_report.run(tmp_path, ["inductor"], image_file) == 0
    shown = capsys.readouterr().out
    assert "inductor: RuntimeError: no C++ compiler" in shown
    assert "and more" not in shown
    assert not list(tmp_path.glob("sobel.png"))


@pytest.mark.parametrize("package", ["rich", "PIL"])
def test_a_missing_package(
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from torch_mojo import cli

    monkeypatch.setitem(sys.modules, package, None)
    assert cli.main(["demo", "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("torch_mojo: The demo needs packages that are missing (")
    assert error.endswith("Install them: pip install 'torch_mojo[demo]'\n")
    assert error.count("\n") == 1


def test_a_missing_picture(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    with pytest.raises(MojoError, match=r"nothing\.png cannot be read as a picture: "):
        demo_report.load_picture(tmp_path / "nothing.png")
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(MojoError, match=r"text\.png cannot be read as a picture: "):
        demo_report.load_picture(tmp_path / "text.png")


@pytest.mark.slow
def test_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for package in ("matplotlib", "PIL", "rich"):
        pytest.importorskip(package)
    assert demo_report.run(tmp_path, demo_report.ROUTES, None) == 0
    shown = capsys.readouterr().out
    assert "n/a" not in shown
    assert shown.count("yes") == 3 * 5
    assert demo_report.load_picture(tmp_path / "sobel.png").shape == (600, 512, 3)
