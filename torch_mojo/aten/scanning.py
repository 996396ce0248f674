"""Running results along a dimension, and what is read off a sorted one."""

import torch

from torch_mojo.aten.indexing import NAMESPACE, sized
from torch_mojo.functional.builtin import Kernel, kernel


def _scan(name: str, text: str) -> Kernel[[torch.Tensor, int], torch.Tensor]:
    def body(input: torch.Tensor, dim: int) -> torch.Tensor:
        return torch.empty(input.shape, dtype=input.dtype, device=input.device)

    body.__name__ = name
    body.__doc__ = (
        f"Return the {text} of the elements up to each, along a dimension, as `torch.{name}`."
    )
    constants = {"how": name}
    return kernel(namespace=NAMESPACE, file="aten_scan", kernel="aten_scan", constants=constants)(
        body
    )


def _extreme(
    name: str, text: str
) -> Kernel[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]:
    def body(input: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        return (
            torch.empty(input.shape, dtype=input.dtype, device=input.device),
            torch.empty(input.shape, dtype=torch.int64, device=input.device),
        )

    body.__name__ = name
    body.__doc__ = f"Return the {text} element up to each, along a dimension, and its place, as `torch.{name}`."
    constants = {"largest": name == "cummax"}
    return kernel(
        namespace=NAMESPACE, file="aten_scan", kernel="aten_running_extreme", constants=constants
    )(body)


def _from_sorted(
    name: str, text: str
) -> Kernel[[torch.Tensor, torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]:
    def body(
        values: torch.Tensor, indices: torch.Tensor, dim: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return sized(values, dim, 1), sized(indices, dim, 1)

    body.__name__ = f"{name}_of_sorted"
    body.__doc__ = f"Return {text} along a dimension, and its place, from what `sort` returned."
    return kernel(
        namespace=NAMESPACE, file="aten_scan", kernel="aten_from_sorted", constants={"how": name}
    )(body)


cumsum = _scan("cumsum", "sum")
cumprod = _scan("cumprod", "product")
logcumsumexp = _scan("logcumsumexp", "logarithm of the summed exponentials")
cummax = _extreme("cummax", "largest")
cummin = _extreme("cummin", "smallest")
median_of_sorted = _from_sorted("median", "the lower median, or the first nan,")
nanmedian_of_sorted = _from_sorted("nanmedian", "the lower median of what is not nan")
mode_of_sorted = _from_sorted("mode", "the most frequent element, the smallest of several,")
