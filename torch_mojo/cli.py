"""The command line: `python -m torch_mojo info | ops | cache | demo`."""

import argparse
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import torch

import torch_mojo
from torch_mojo import config
from torch_mojo.errors import MojoError
from torch_mojo.jit import toolchain
from torch_mojo.jit.cache import Entry, cache
from torch_mojo.op import MojoOp, declared

ENTRY_POINT_GROUP = "torch_dynamo_backends"
_MIB = 2**20


# info


def variables() -> dict[str, Callable[[], object]]:
    """Return every variable that torch_mojo reads, with the function of config.py that reads it."""
    readers = inspect.getmembers(config, inspect.isfunction)
    return {
        config.PREFIX + name.upper(): reader for name, reader in readers if not name.startswith("_")
    }


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _compiler() -> Iterator[tuple[str, str]]:
    try:
        tool = toolchain.toolchain()
    except MojoError as e:
        yield "compiler", " ".join(str(e).splitlines())
        return
    yield "compiler", str(tool.mojo)
    command = [str(tool.mojo), "--version"]
    try:
        result = subprocess.run(
            command,
            env=tool.environment(cache().root / "mojo"),
            capture_output=True,
            text=True,
            check=False,
        )
        said = result.stdout.strip() or f"{result.stderr.strip()} (exit status {result.returncode})"
    except OSError as e:
        said = f"does not run: {e}"
    yield "compiler version", said


def _processor() -> str:
    name = ""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        name = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "")
    except OSError:
        pass  # not Linux
    name = name or platform.processor() or platform.machine()
    return f"{toolchain.host()}, {name}, {os.cpu_count()} cores"


def _gpus() -> Iterator[tuple[str, str]]:
    if not torch.cuda.is_available():
        yield "GPU target", "none that torch sees"
        return
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        arch = getattr(properties, "gcnArchName", "") if torch.version.hip else ""
        arch = arch or f"sm_{properties.major}{properties.minor}"
        yield f"GPU target {i}", f"{arch}, {properties.name}"


def _folder_size(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_size if path.is_file() else 0
        except OSError:
            pass  # removed meanwhile
    return size


def _cache_rows() -> Iterator[tuple[str, str]]:
    yield "kernel cache", str(cache().root)
    entries = cache().entries()
    yield "kernels in it", f"{len(entries)}, {_size(sum(e.size for e in entries))}"
    yield "compiler's own cache", _size(_folder_size(cache().root / "mojo"))


def _backend() -> str:
    found = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name="max")
    if not found:
        return "not registered; install torch_mojo with pip, its entry points are missing"
    return ", ".join(e.value for e in found)


def _variable(reader: Callable[[], object]) -> str:
    """Return what a variable, or its default, comes to."""
    try:
        value = reader()
    except ValueError as e:
        return str(e)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return _size(value)
    return " ".join(value) if isinstance(value, list) else str(value or "")


def info() -> int:
    """Print versions, compiler, cache, targets and variables."""
    rows = [
        (
            "torch_mojo",
            f"{torch_mojo.__version__}, for Mojo {toolchain.MOJO_VERSION} and "
            f"MAX {toolchain.MAX_VERSION}",
        ),
        ("Python", f"{platform.python_version()} ({sys.executable})"),
        ("torch", torch.__version__),
        ("max", _version("max")),
        ("mojo-compiler", _version("mojo-compiler")),
        *_compiler(),
        ("CPU target", _processor()),
        *_gpus(),
        *_cache_rows(),
        ('backend "max"', _backend()),
        *((name, _variable(reader)) for name, reader in variables().items()),
    ]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name:{width}}  {text}".rstrip())
    return 0


# ops


def _import(name: str) -> ModuleType:
    """Import a module by name, or a .py file by path."""
    try:
        if not name.endswith(".py"):
            sys.path.insert(0, str(Path.cwd()))
            return importlib.import_module(name)
        path = Path(name).absolute()
        if not path.is_file():
            raise MojoError(f"There is no file {name}.")
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module
    except MojoError:
        raise
    except ModuleNotFoundError as e:
        if e.name is None or not f"{name}.".startswith(f"{e.name}."):
            raise MojoError(f"{name} cannot be imported: {e}.") from e
        raise MojoError(
            f"There is no module {name}. Name an importable module, a .py file, or an operator as "
            "namespace::name."
        ) from e
    except Exception as e:
        raise MojoError(f"{name} cannot be imported: {type(e).__name__}: {e}") from e


def _doc(op: object) -> list[str]:
    return inspect.cleandoc(op.__doc__ or "(no docstring)").splitlines()


def _print_ops(found: dict[str, MojoOp]) -> None:
    for name in sorted(found):
        op = found[name]
        print(f"{op.schema}\n    {_doc(op)[0]}\n    {op.source}")


def _print_op(op: MojoOp) -> None:
    print(op.schema)
    for line in _doc(op):
        print(f"    {line}".rstrip())
    for line in op.kernel_description:
        print(f"  {line}")


def ops(what: str | None) -> int:
    """Print the operators that a module declares (without one, the built-in ones and the demo's), or one operator."""
    from torch_mojo.functional import builtin

    before = declared()
    if what is None or "::" in what:
        importlib.import_module("torch_mojo.demo")
        importlib.import_module("torch_mojo.functional")
    else:
        module = _import(what)
        mine = {n: op for n, op in declared().items() if before.get(n) is not op}
        mine |= {op.qualname: op for op in vars(module).values() if isinstance(op, MojoOp)}
        if not mine:
            raise MojoError(f"{what} declares no operator. Declare one with torch_mojo.mojo_op.")
        _print_ops(mine)
        return 0
    builtins = {f.qualname: f for group in builtin.functions().values() for f in group}
    if what is None:
        for _, f in sorted(builtins.items()):
            print(f"{f.schema}\n    {_doc(f)[0]}\n    {f.file}")
        _print_ops({n: op for n, op in declared().items() if n not in builtins})
        return 0
    overloads = [f for n, f in sorted(builtins.items()) if what in (n, n.partition(".")[0])]
    found = [declared().get(f.qualname, f) if f.schema else f for f in overloads]
    found = found or [op for n, op in declared().items() if n == what]
    if not found:
        have = ", ".join(sorted({*declared(), *builtins}))
        raise MojoError(f"There is no operator {what}; there are {have}.")
    for op in found:
        if isinstance(op, MojoOp):
            _print_op(op)
        else:
            print(
                "\n".join(
                    [
                        op.schema,
                        *(f"    {x}".rstrip() for x in _doc(op)),
                        f"  composed in {op.file}",
                    ]
                )
            )
    return 0


# cache


def _size(count: int) -> str:
    return f"{count / _MIB:.1f} MiB" if count >= 0.05 * _MIB else f"{count / 1024:.1f} KiB"


def _last_use(entry: Entry) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.folder.stat().st_mtime))


def _list_cache() -> None:
    entries = cache().entries()
    print(f"{cache().root}: {len(entries)} kernels, {_size(sum(e.size for e in entries))}")
    for entry in reversed(entries):
        what = entry.info.get("what", "?")
        print(f"{entry.key[:12]}  {_size(entry.size):>10}  {_last_use(entry)}  {what}")


def manage_cache(action: str, size: float | None) -> int:
    """List, clear, prune or locate the kernel cache."""
    if action == "path":
        print(cache().root)
    elif action == "clear":
        print(f"Removed {cache().clear()} kernels from {cache().root}.")
    elif action == "prune":
        limit = config.cache_size() if size is None else int(size * _MIB)
        removed = cache().prune(limit=limit)
        left = cache().entries()
        size_left = _size(sum(e.size for e in left))
        print(
            f"Removed {len(removed)} kernels; "
            f"{len(left)} are left, {size_left} of at most {_size(limit)}."
        )
    else:
        _list_cache()
    return 0


# the parser


def _megabytes(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a size in MiB")
    return value


def _backends(text: str) -> list[str]:
    from torch_mojo.demo_report import ROUTES

    chosen = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in ROUTES]
    if unknown or not chosen:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of {', '.join(ROUTES)}")
    return chosen


def _demo(args: argparse.Namespace) -> int:
    from torch_mojo import demo_report

    return demo_report.run(args.out, args.backends or demo_report.ROUTES, args.image)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; each sets `run`."""
    top = argparse.ArgumentParser("python -m torch_mojo", description=torch_mojo.__doc__)
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    command = commands.add_parser("info", help="versions, compiler, cache, targets, variables")
    command.set_defaults(run=lambda args: info())

    command = commands.add_parser("ops", help="the operators that the demo or a module declares")
    what = "namespace::name, an importable module, or a .py file"
    command.add_argument("what", nargs="?", metavar="NAME", help=what)
    command.set_defaults(run=lambda args: ops(args.what))

    command = commands.add_parser("cache", help="the cache of built kernels")
    command.set_defaults(
        action="list", size=None, run=lambda args: manage_cache(args.action, args.size)
    )
    actions = command.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="list the kernels, the last used first (the default)")
    actions.add_parser("path", help="print the cache's folder")
    actions.add_parser("clear", help="remove everything")
    prune = actions.add_parser("prune", help="remove the least recently used kernels")
    size = "MiB to keep; TORCH_MOJO_CACHE_SIZE by default"
    prune.add_argument("--size", type=_megabytes, metavar="MB", help=size)

    command = commands.add_parser("demo", help="Mojo kernels on a photograph, checked and timed")
    command.add_argument("--out", type=Path, default=Path("demo_output"), metavar="DIR")
    command.add_argument(
        "--backends", type=_backends, metavar="LIST", help="of eager, inductor and max, with commas"
    )
    command.add_argument("--image", type=Path, metavar="FILE", help="a picture of yours")
    command.set_defaults(run=_demo)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    args = parser().parse_args(argv)
    try:
        return args.run(args)
    except (MojoError, ValueError) as e:
        print(f"torch_mojo: {e}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
