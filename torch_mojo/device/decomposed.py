"""ATen operators that torch's own decompositions make of others, and a few that have none there."""

from collections.abc import Callable
from typing import Any

import torch

from torch_mojo import torch_private
from torch_mojo.aten import scanning
from torch_mojo.aten.scan_rules import running
from torch_mojo.device.composed import attempt, composed, file_with_forms
from torch_mojo.device.fallback import run_on_cpu

aten = torch.ops.aten

# by overload without `out`; those with it, and those in place, follow
_BY_TORCH = (
    *("logaddexp", "logaddexp2", "logit", "nan_to_num", "heaviside", "sinc", "softshrink"),
    *("hardshrink", "special_entr", "special_log_ndtr", "special_xlog1py", "round.decimals"),
    *("rsub.Tensor", "aminmax", "count_nonzero.dim_IntList", "nansum", "trace", "vdot"),
    *("norm.Scalar", "norm.ScalarOpt_dim", "renorm", "isin.Tensor_Tensor", "linalg_cross"),
    *("binary_cross_entropy", "multi_margin_loss", "logspace", "channel_shuffle"),
    *("reflection_pad1d", "reflection_pad2d", "reflection_pad3d"),
    *("replication_pad1d", "replication_pad2d", "replication_pad3d"),
    *("max_unpool2d", "max_unpool3d"),
)


def register() -> None:
    """File torch's decompositions, with their `out` and in-place forms."""
    for name in _BY_TORCH:
        overload = torch_private.find_overload(f"aten::{name}")
        assert overload is not None, name
        file_with_forms(overload, _by_torch(overload))


def _by_torch(overload: torch._ops.OpOverload) -> Callable[..., Any]:
    return lambda *args, **kwargs: torch_private.decomposition(overload)(*args, **kwargs)


_cumsum = running(scanning.cumsum)


def _running_sum(self: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    return attempt(aten.cumsum.default, _cumsum, self, dim, dtype=dtype)


def _product(self: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    return aten.prod.dim_int(self.reshape(-1), 0, False, dtype=dtype)


@composed("_native_batch_norm_legit")
def _batch_norm(*args: Any) -> Any:
    return aten.native_batch_norm.default(*args)


@composed("_native_batch_norm_legit.no_stats")
def _batch_norm_without_statistics(
    input: torch.Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    return aten.native_batch_norm.default(input, weight, bias, None, None, training, momentum, eps)


@composed("equal")
def _equal(self: torch.Tensor, other: torch.Tensor) -> bool:
    if self.dtype != other.dtype or self.device != other.device:
        return run_on_cpu(aten.equal.default, self, other)
    return self.shape == other.shape and bool(self.eq(other).all().item())


@composed("repeat_interleave.Tensor")
def _repeat_interleave(repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    op = aten.repeat_interleave.Tensor
    if repeats.dim() != 1 or repeats.dtype not in (torch.int32, torch.int64):
        return run_on_cpu(op, repeats, output_size=output_size)
    if repeats.numel() == 0:
        return repeats.new_empty(0)
    ends = repeats.cumsum(0)
    total = int(ends[-1].item())
    if bool((repeats < 0).any().item()) or output_size not in (None, total):
        return run_on_cpu(op, repeats, output_size=output_size)
    places = torch.arange(total, device=repeats.device)
    return torch.searchsorted(ends, places, right=True).to(repeats.dtype)


def _runs(self: torch.Tensor, inverse: bool, counts: bool) -> tuple[torch.Tensor, ...]:
    """Return the first element of each run of equal ones, the run of each element, and how long they are."""
    starts = torch.ones(self.shape, dtype=torch.bool, device=self.device)
    starts[1:] = self[1:].ne(self[:-1])
    none = self.new_empty(0, dtype=torch.int64)
    runs = starts.cumsum(0) - 1 if inverse else none
    lengths = none
    if counts:
        first = starts.nonzero().reshape(-1)
        lengths = torch.cat([first[1:], first.new_full((1,), self.numel())]) - first
    return self.masked_select(starts), runs, lengths


@composed("unique_consecutive")
def _unique_consecutive(
    self: torch.Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[torch.Tensor, ...]:
    if dim is not None or self.numel() == 0 or self.is_complex():
        op = aten.unique_consecutive.default
        return run_on_cpu(op, self, return_inverse, return_counts, dim)
    made, runs, lengths = _runs(self.reshape(-1), return_inverse, return_counts)
    return made, runs.reshape(self.shape) if return_inverse else runs, lengths


@composed("_unique2")
def _unique(
    self: torch.Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[torch.Tensor, ...]:
    if self.numel() == 0 or self.is_complex():
        return run_on_cpu(aten._unique2.default, self, sorted, return_inverse, return_counts)
    values, order = self.reshape(-1).sort()
    made, runs, lengths = _runs(values, return_inverse, return_counts)
    if return_inverse:
        runs = torch.empty_like(runs).index_copy_(0, order, runs).reshape(self.shape)
    return made, runs, lengths


def _matrix_and_vector(
    self: torch.Tensor, mat: torch.Tensor, vec: torch.Tensor, *, beta: Any = 1, alpha: Any = 1
) -> torch.Tensor:
    if mat.dim() != 2 or vec.dim() != 1 or self.dim() > 1:
        return run_on_cpu(aten.addmv.default, self, mat, vec, beta=beta, alpha=alpha)
    column = self.expand(mat.shape[0]).unsqueeze(1)
    return aten.addmm.default(column, mat, vec.unsqueeze(1), beta=beta, alpha=alpha).squeeze(1)


file_with_forms(aten.addmv.default, _matrix_and_vector)
file_with_forms(aten.cumsum.default, _running_sum)
file_with_forms(aten.prod.default, _product)
