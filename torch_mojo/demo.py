"""The demo's operators: four Mojo kernels for pictures, and the same in plain torch.

`kernels/demo.mojo` has the kernels; `python -m torch_mojo demo` runs them.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from torch_mojo.jit import toolchain
from torch_mojo.op import MojoOp, mojo_op

KERNELS = toolchain.kernels() / "demo.mojo"
AMOUNT = 1.5
BINS = 64


@mojo_op("mojo_demo::grayscale", path=KERNELS)
def grayscale(picture: torch.Tensor) -> torch.Tensor:
    """Return the brightness, float32 in [0, 1], of a uint8 picture (rows, columns, 3)."""
    return picture.new_empty(picture.shape[:2], dtype=torch.float32)


@mojo_op("mojo_demo::sharpen", path=KERNELS)
def sharpen(x: torch.Tensor, amount: float = 1.0) -> torch.Tensor:
    """Return x + amount * (x - blur(x)), within [0, 1].

    The blur is the 3x3 binomial filter; outside the picture stands the nearest pixel of its border.
    """
    return torch.empty_like(x)


@mojo_op("mojo_demo::sobel", path=KERNELS)
def sobel(x: torch.Tensor) -> torch.Tensor:
    """Return the magnitude of the 3x3 Sobel gradient.

    Outside the picture stands the nearest pixel of its border.
    """
    return torch.empty_like(x)


@mojo_op("mojo_demo::histogram", path=KERNELS)
def histogram(x: torch.Tensor, bins: int = BINS) -> torch.Tensor:
    """Return how many pixels (int64) fall into each of `bins` equal steps of [0, 1].

    What lies outside counts for the first or the last step.
    """
    return x.new_empty(bins, dtype=torch.int64)


Step = Callable[..., torch.Tensor]
Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def pipeline(picture: torch.Tensor) -> Results:
    """Run the four kernels one after another: brightness, sharpened, its edges, its histogram."""
    gray = grayscale(picture)
    sharp = sharpen(gray, AMOUNT)
    return gray, sharp, sobel(sharp), histogram(sharp, BINS)


# the same in plain torch


def torch_grayscale(picture: torch.Tensor) -> torch.Tensor:
    """Return the brightness by the weights of ITU-R BT.601."""
    red, green, blue = picture.to(torch.float32).unbind(-1)
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255


def _filter(x: torch.Tensor, weights: list[list[list[float]]]) -> torch.Tensor:
    padded = F.pad(x[None, None], (1, 1, 1, 1), mode="replicate")
    return F.conv2d(padded, x.new_tensor(weights)[:, None])[0]


def torch_sharpen(x: torch.Tensor, amount: float = 1.0) -> torch.Tensor:
    """Sharpen with one convolution."""
    blurred = _filter(x, [[[1, 2, 1], [2, 4, 2], [1, 2, 1]]])[0] / 16
    return (x + amount * (x - blurred)).clamp(0, 1)


def torch_sobel(x: torch.Tensor) -> torch.Tensor:
    """Find the edges with one convolution of two filters."""
    across = [[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]
    down = [[-1.0, -2.0, -1.0], [0.0, 0.0, 0.0], [1.0, 2.0, 1.0]]
    return _filter(x, [across, down]).square().sum(0).sqrt()


def torch_histogram(x: torch.Tensor, bins: int = BINS) -> torch.Tensor:
    """Count with bincount."""
    return torch.bincount((x * bins).clamp(0, bins - 1).long().flatten(), minlength=bins)


def torch_pipeline(picture: torch.Tensor) -> Results:
    """Run the four steps in plain torch."""
    gray = torch_grayscale(picture)
    sharp = torch_sharpen(gray, AMOUNT)
    return gray, sharp, torch_sobel(sharp), torch_histogram(sharp, BINS)


KERNEL_PAIRS: dict[str, tuple[MojoOp, Step]] = {
    "grayscale": (grayscale, torch_grayscale),
    "sharpen": (sharpen, torch_sharpen),
    "sobel": (sobel, torch_sobel),
    "histogram": (histogram, torch_histogram),
}


def arguments(name: str, picture: torch.Tensor) -> tuple[object, ...]:
    """Return what the kernel `name` is called with for this picture."""
    gray = torch_grayscale(picture)
    given: dict[str, tuple[object, ...]] = {
        "grayscale": (picture,),
        "sharpen": (gray, AMOUNT),
        "sobel": (gray,),
        "histogram": (gray, BINS),
    }
    return given[name]


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Compare exactly for whole numbers, to five digits for others."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if not expected.is_floating_point():
        return torch.equal(found, expected)
    return torch.allclose(found, expected, rtol=1e-5, atol=1e-5)


def same_pipeline(found: Results, picture: torch.Tensor) -> bool:
    """Compare a pipeline's results; its histogram must be exactly that of its own picture.

    Two float pipelines may differ in the last bit, which moves a pixel that lies between two bins.
    """
    expected = torch_pipeline(picture)
    pictures = all(same(f, e) for f, e in zip(found[:3], expected[:3], strict=True))
    return pictures and same(found[3], torch_histogram(found[1], BINS))
