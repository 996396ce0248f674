"""Libraries of elementwise kernels, one for each dtype, out of the table in rows.py."""

import ctypes
import functools

import torch

from torch_mojo.device.rows import ROWS
from torch_mojo.jit import toolchain
from torch_mojo.jit.build import Job, build
from torch_mojo.jit.cache import cache
from torch_mojo.jit.sources import Source, from_path

_HEAD = """from std.math import ceil, cos, erf, expm1, floor, log, log10, log1p, log2, sin, sqrt, trunc
from std.memory import Pointer
from std.sys import simd_width_of

from torch.elementwise import Row, accum_of, at, exp2_of, exp_of, fetch, gelu_slope, gelu_tanh_slope, greater
from torch.elementwise import lerped, logistic, number, tanh_of
from torch.elementwise import one_by_one, pair_by_pair, power_of, raised, round_even, smaller
from torch.words import WordPtr, load

comptime T = DType.{dtype}
comptime A = accum_of[T]
"""

_ROW = """
@always_inline
def f{i}[w: Int](a: SIMD[{first}, w], b: SIMD[A, w], c: SIMD[A, w], params: WordPtr) -> SIMD[{result}, w]:
    comptime zero = SIMD[A, w](0)
    @always_inline
    def n(i: Int) {{var params}} -> SIMD[A, w]:
        return SIMD[A, w](number[A](params, i))
    return {text}


def row{i}(addresses: WordPtr, steps: WordPtr, count: Int, params: WordPtr) abi("C"):
    var out = at[{stored}](addresses, 0)
    var first = at[{loaded}](addresses, 1)
    var second = at[T](addresses, 2)
    var third = at[T](addresses, 3)
    var s0 = steps[unsafe_offset=0]
    var s1 = steps[unsafe_offset=1]
    var s2 = steps[unsafe_offset=2]
    var s3 = steps[unsafe_offset=3]
    comptime W = simd_width_of[A]()
    var i = 0
{vectors}    while i < count:
        var x = {scalar}
        out.unsafe_offset(i * s0)[] = x.cast[{stored}]()[0]
        i += 1
"""

_VECTOR = """    if s0 == 1{condition}:
        while i + W <= count:
            out.unsafe_offset(i).unsafe_store(f{i}[W]({arguments}, params).cast[{stored}]())
            i += W
"""


# the steps that have vectors of their own, by the number of inputs
_CASES: dict[int, list[tuple[int, ...]]] = {
    0: [()],
    1: [(1,)],
    2: [(1, 1), (1, 0), (0, 1)],
    3: [(1, 1, 1), (1, 1, 0)],
}


def _arguments(names: list[tuple[str, str, str, str]], steps: tuple[int, ...]) -> str:
    """Return what a row's function gets for a vector: inputs that stand one behind another, repeated or absent."""
    made = [f"fetch[{n[2]}, {n[3]}, W, {s}]({n[0]}, i)" for n, s in zip(names, steps, strict=False)]
    return ", ".join([*made, *(f"SIMD[{n[3]}, W](0)" for n in names[len(steps) :])])


def _text(dtype: str) -> tuple[str, list[int]]:
    """Return a library's text, and the numbers of the rows that it has."""
    mojo = "uint8" if dtype == "bool" else dtype
    parts, have = [_HEAD.format(dtype=mojo)], []
    for i, row in enumerate(ROWS):
        if not row.serves(dtype):
            continue
        have.append(i)
        loaded = "DType.uint8" if row.masked else "T"
        first = "DType.uint8" if row.masked else "A"
        stored = "DType.uint8" if row.test else "T"
        result = "DType.bool" if row.test else "A"
        names = [
            ("first", "s1", loaded, first),
            ("second", "s2", "T", "A"),
            ("third", "s3", "T", "A"),
        ]
        blank = [f"SIMD[{n[3]}, {{w}}](0)" for n in names]

        vectors = "".join(
            _VECTOR.format(
                i=i,
                condition="".join(f" and {n[1]} == {s}" for n, s in zip(names, c, strict=False)),
                arguments=_arguments(names, c),
                stored=stored,
            )
            for c in _CASES[row.inputs]
        )
        scalar = ", ".join(
            [
                f"fetch[{n[2]}, {n[3]}, 1, 1]({n[0]}, i * {n[1]})"
                if k < row.inputs
                else blank[k].format(w=1)
                for k, n in enumerate(names)
            ]
        )
        parts.append(
            _ROW.format(
                i=i,
                first=first,
                result=result,
                text=row.on_bool if dtype == "bool" else row.text,
                stored=stored,
                loaded=loaded,
                vectors=vectors,
                scalar=f"f{i}[1]({scalar}, params)",
            )
        )
    entries = "".join(
        f"    var r{i}: Row = row{i}\n    table[unsafe_offset={i}] = Pointer(to=r{i}).unsafe_bitcast[Int]()[]\n"
        for i in have
    )
    parts.append(f'\n@export\ndef tm_rows(table: WordPtr) abi("C"):\n{entries}')
    return "".join(parts), have


@functools.cache
def library(dtype: str) -> tuple[ctypes.CDLL, list[int]]:
    """Return the library of a dtype, built on first use, and the addresses of its rows (0 where it has none)."""
    text, _ = _text(dtype)
    job = Job(f"elementwise kernels for {dtype}", text, _sources(), extra=(torch.__version__,))
    built = build(job, cache()).library
    toolchain.load_runtime()
    opened = ctypes.CDLL(str(built))
    table = (ctypes.c_int64 * len(ROWS))()
    opened.tm_rows(table)
    return opened, list(table)


def _sources() -> Source:
    return from_path(toolchain.kernels() / "aten_pointwise.mojo", ())


_STEPS = """from torch.{module} import fill_table
from torch.words import WordPtr

@export
def tm_steps(table: WordPtr) abi("C"):
    fill_table[DType.{dtype}](table)
"""
_MOST_STEPS = 16


def _steps(what: str, module: str, dtype: str) -> tuple[ctypes.CDLL, list[int]]:
    text = _STEPS.format(module=module, dtype="uint8" if dtype == "bool" else dtype)
    built = build(Job(f"{what} for {dtype}", text, extra=(torch.__version__,)), cache()).library
    toolchain.load_runtime()
    opened = ctypes.CDLL(str(built))
    table = (ctypes.c_int64 * _MOST_STEPS)()
    opened.tm_steps(table)
    return opened, list(table)


@functools.cache
def reductions(dtype: str) -> tuple[ctypes.CDLL, list[int]]:
    """Return the library of a dtype's reductions, built on first use, and what kernels/torch/reductions.mojo tells."""
    return _steps("reductions", "reductions", dtype)


@functools.cache
def products(dtype: str) -> tuple[ctypes.CDLL, list[int]]:
    """Return the library of a dtype's matrix products, as `reductions`."""
    return _steps("matrix products", "products", dtype)


LIBRARIES = {0: library, 1: reductions, 3: products}  # by the block of the native side's tables
