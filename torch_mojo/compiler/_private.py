"""The private names of torch and MAX that the compiler uses, each with the reason."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from max.graph import Graph

# DLPack without Tensor.__dlpack__: no Python on the way, and it takes tensors that require grad.
from torch._C import _from_dlpack as from_dlpack
from torch._C import _to_dlpack as to_dlpack

# The decompositions into the core operator set.
from torch._decomp import core_aten_decompositions as core_aten_decompositions

# All decompositions that torch has below autograd.
from torch._decomp import global_decomposition_table as _global_decomposition_table

# Dynamo's way to run AOTAutograd under a backend.
from torch._dynamo.backends.common import aot_autograd as aot_autograd

# Symbolic sizes for values of a graph that torch did not trace.
from torch._dynamo.source import ConstantSource as size_source

# The reasons of graph breaks, for explain().
from torch._dynamo.utils import counters as counters

# AOTAutograd's configuration, for backward_at_once.
from torch._functorch import config as _aot_config

# Where AOTAutograd keeps which inputs are parameters and which are mutated.
from torch._guards import TracingContext as TracingContext

# torch's own type promotion: computation and result dtypes of elementwise operators.
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION
from torch._prims_common import elementwise_dtypes as elementwise_dtypes
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx as make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic as DimDynamic
from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv

# Sees every operator that eager torch runs, for TORCH_MOJO_DEBUG.
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

# Compiling happens under torch's fake mode; constants must be real tensors.
from torch.utils._python_dispatch import _disable_current_modes as real_mode

# Arguments and results in lists and dicts.
from torch.utils._pytree import tree_leaves as tree_leaves
from torch.utils._pytree import tree_map as tree_map

# torch's own sympy functions for sizes.
from torch.utils._sympy.functions import CleanDiv as CleanDiv
from torch.utils._sympy.functions import FloorDiv as FloorDiv
from torch.utils._sympy.functions import Identity as Identity
from torch.utils._sympy.functions import Mod as Mod
from torch.utils._sympy.functions import PythonMod as PythonMod

# Prints such an expression as Python, so that it can be evaluated without sympy in every call.
from torch.utils._sympy.printers import PythonPrinter as PythonPrinter


def global_decompositions() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """Return every decomposition that torch has for what autograd leaves."""
    return dict(_global_decomposition_table["post_autograd"])


def operator_names() -> list[str]:
    """Return the qualified names of all operators, with their overloads."""
    return torch._C._dispatch_get_all_op_names()


def import_kernels(graph: Graph, paths: Iterable[Path]) -> None:
    """Load kernel packages into a graph that exists already; publicly only `Graph(...)` takes them."""
    graph._import_kernels(sorted(paths))


__all__ = [
    "PROMOTION",
    "CleanDiv",
    "DimDynamic",
    "FakeTensorMode",
    "FloorDiv",
    "Identity",
    "Mod",
    "PythonMod",
    "PythonPrinter",
    "ShapeEnv",
    "TorchDispatchMode",
    "TracingContext",
    "aot_autograd",
    "core_aten_decompositions",
    "counters",
    "elementwise_dtypes",
    "from_dlpack",
    "global_decompositions",
    "import_kernels",
    "make_fx",
    "operator_names",
    "real_mode",
    "size_source",
    "to_dlpack",
    "tree_leaves",
    "tree_map",
]


def backward_at_once() -> AbstractContextManager[None]:
    """Let AOTAutograd lower a backward with its forward, not at the first call of it."""
    return _aot_config.patch(force_non_lazy_backward_lowering=True)
