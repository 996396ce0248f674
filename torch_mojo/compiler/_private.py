"""The private names of torch and MAX that the compiler uses, each with the reason."""

from collections.abc import Iterable
from pathlib import Path

from max.graph import Graph

# DLPack without Tensor.__dlpack__: no Python on the way, and it takes tensors that require grad.
from torch._C import _from_dlpack as from_dlpack
from torch._C import _to_dlpack as to_dlpack

# The decompositions into the core operator set.
from torch._decomp import core_aten_decompositions as core_aten_decompositions

# Dynamo's way to run AOTAutograd under a backend.
from torch._dynamo.backends.common import aot_autograd as aot_autograd

# Symbolic sizes for values of a graph that torch did not trace.
from torch._dynamo.source import ConstantSource as size_source

# The reasons of graph breaks, for explain().
from torch._dynamo.utils import counters as counters

# Where AOTAutograd keeps which inputs are parameters and which are mutated.
from torch._guards import TracingContext as TracingContext

# torch's own type promotion: computation and result dtypes of elementwise operators.
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION
from torch._prims_common import elementwise_dtypes as elementwise_dtypes
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx as make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic as DimDynamic
from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv

# What the shape environment can prove without a new guard.
from torch.fx.experimental.symbolic_shapes import statically_known_true as statically_known_true

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
    "TracingContext",
    "aot_autograd",
    "core_aten_decompositions",
    "counters",
    "elementwise_dtypes",
    "from_dlpack",
    "import_kernels",
    "make_fx",
    "real_mode",
    "size_source",
    "statically_known_true",
    "to_dlpack",
    "tree_leaves",
    "tree_map",
]
