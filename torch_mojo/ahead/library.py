"""Builds a library of operators that registers itself when it is opened."""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_mojo import progress
from torch_mojo.ahead import records
from torch_mojo.ahead.cases import Wanted
from torch_mojo.ahead.records import Function, Operator
from torch_mojo.ahead.tables import NOTHING, tables_object
from torch_mojo.ahead.targets import DEFAULT, Target, parse
from torch_mojo.dispatch import libtorch
from torch_mojo.dispatch.load import ON_TORCH_STREAM, ON_TORCH_THREADS, is_fenced
from torch_mojo.errors import MojoCompileError
from torch_mojo.jit import elf, manifest
from torch_mojo.jit.build import Job, build, link, runtime_calls
from torch_mojo.jit.cache import cache
from torch_mojo.jit.toolchain import RUNTIME_LIBRARIES, kernels, toolchain
from torch_mojo.op import MojoOp

TORCH_LEAST = "2.10"
_BASELINE = "x86-64"  # of what runs before the CPU is known to be good enough
_WRAPPED = (*ON_TORCH_THREADS, *ON_TORCH_STREAM)


@dataclass(frozen=True)
class Built:
    """A library that was built.

    Attributes:
        path: the file.
        manifest: what it says of itself.
    """

    path: Path
    manifest: dict[str, Any]

    @property
    def runtime(self) -> list[str]:
        """The files of Mojo's runtime that it needs, none for most CPU kernels."""
        return list(self.manifest["runtime"]["libraries"]) if self.manifest["runtime"] else []


def build_library(
    wanted: Mapping[MojoOp, Sequence[Wanted]],
    output: Path,
    targets: Sequence[str] = DEFAULT,
    jobs: int | None = None,
    search: str | None = None,
) -> Built:
    """Build the specializations of some operators into one library.

    What is compiled is kept in the cache: a build that was stopped goes on where it was.

    Args:
        wanted: for each operator, grids and examples.
        output: the library's file.
        targets: CPU levels and GPU architectures; the best that runs is used.
        jobs: how many compilers run at once; as many as there are processors by default.
        search: where Mojo's runtime lies beside the library, relative to it, if it is bundled.

    Raises:
        MojoCompileError: if a kernel does not compile.
        SignatureError: if a kernel takes nothing of what is wanted.
    """
    chosen = parse(targets)
    functions: records.Functions = {}
    operators = [records.collect(op, grids, chosen, functions) for op, grids in wanted.items()]
    gpu = any(t.gpu for t in chosen)
    compiled = _compile(functions, jobs or os.cpu_count() or 1)
    objects = list(dict.fromkeys(compiled.values()))
    asked = {o: set(runtime_calls(o)) - set(_WRAPPED) for o in objects}
    for operator in operators:
        for record in operator.records:
            called = asked[compiled[record.function]]
            record.fenced = record.target.gpu and is_fenced(sorted(called))
    objects.append(_own("ahead", *(() if gpu else ("TORCH_MOJO_CPU_ONLY",))))
    standalone = not gpu and _standalone(objects)
    objects.append(_own("standalone" if standalone else "hosted"))
    about = _about(operators, chosen, standalone)
    with tempfile.TemporaryDirectory() as folder:
        tables = Path(folder) / "tables.o"
        tables.write_bytes(tables_object(operators, about, standalone))
        part = Path(folder) / output.name
        libraries: list[tuple[Path, tuple[str, ...]]] = [(libtorch.FOLDER, ("torch_cpu", "c10"))]
        more = ["-init=tm_register", f"-soname={output.name}"]
        if not standalone:
            libraries.append((toolchain().runtime, RUNTIME_LIBRARIES))
            if search:
                more.append(f"-rpath=$ORIGIN/{search}")
        link(str(output), [*objects, tables], part, libraries, () if standalone else _WRAPPED, more)
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(part, output)
    manifest.read.cache_clear()
    return Built(output, about)


def _own(name: str, *defines: str) -> Path:
    """Return the object of one of torch_mojo's own files."""
    text = (kernels() / "torch" / f"{name}.mojo").read_text()
    what = f"torch_mojo's {name}.mojo"
    job = Job(what, text, cpu=_BASELINE, defines=tuple(defines), linked=False)
    return build(job, cache()).library


def _compile(functions: records.Functions, count: int) -> dict[str, Path]:
    """Return the object with each function; the first that does not compile stops what has not begun.

    Raises:
        MojoCompileError: naming it.
    """
    found: dict[str, Path] = {}
    groups = list(records.jobs(functions))
    pool = ThreadPoolExecutor(count)
    try:
        waiting = {pool.submit(build, job, cache()): (names, job) for names, job in groups}
        for done, future in enumerate(as_completed(waiting), 1):
            names, job = waiting[future]
            try:
                library = future.result().library
            except MojoCompileError as e:
                raise _which({n: functions[n] for n in names}) or e from None
            found |= dict.fromkeys(names, library)
            progress.say(f"{done} of {len(groups)} compiled: {job.what}")
    finally:
        pool.shutdown(cancel_futures=True)
    return found


def _which(functions: Mapping[str, Function]) -> MojoCompileError | None:
    """Return the error of the one function among several that does not compile."""
    for name, function in functions.items() if len(functions) > 1 else ():
        try:
            build(records.job({name: function}), cache())
        except MojoCompileError as e:
            return e
    return None


def _standalone(objects: Sequence[Path]) -> bool:
    """Tell whether these objects ask for nothing of Mojo's runtime that a library cannot have itself."""
    folder = toolchain().runtime
    runtime = set()
    for name in RUNTIME_LIBRARIES:
        runtime |= elf.symbols(folder / f"lib{name}.so", defined=True)
    have = elf.symbols(_own("standalone"), defined=True) | set(NOTHING)
    have.add("KGEN_CompilerRT_fprintf")
    asked = set().union(*(elf.symbols(o, defined=False) for o in objects))
    return not (asked & runtime) - have


def _about(
    operators: Sequence[Operator], targets: Sequence[Target], standalone: bool
) -> dict[str, Any]:
    """Return the manifest."""
    version = toolchain().version
    return {
        "format": manifest.FORMAT,
        "mojo": version,
        "torch": TORCH_LEAST,
        "targets": [t.name for t in targets],
        "licences": licences(standalone),
        "runtime": None
        if standalone
        else {"version": version, "libraries": [f"lib{n}.so" for n in RUNTIME_LIBRARIES]},
        "operators": [
            {
                "name": o.op.qualname,
                "schema": o.op.arguments.text,
                "sources": o.sources,
                "built": [
                    {
                        "what": r.text,
                        "target": r.target.name,
                        "function": r.function,
                        "digest": r.digest,
                        "fenced": r.fenced,
                    }
                    for r in {(r.function, r.text): r for r in o.records}.values()
                ],
                "python": all(r.case.plan is None for r in o.records),
            }
            for o in operators
        ],
    }


def licences(standalone: bool) -> list[str]:
    """Return the licences of what is in a library, or beside it, that is not its author's."""
    found = [
        "torch_mojo (the part that registers operators): Apache-2.0",
        "Mojo's standard library and MAX kernels, as far as compiled in: Apache-2.0 WITH LLVM-exception",
    ]
    if not standalone:
        found.append("Mojo's runtime libraries: LicenseRef-MAX-Platform-Software-License")
    return found
