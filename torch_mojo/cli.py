"""The command line: `python -m torch_mojo info | ops | cache | build | new | demo`."""

import argparse
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torch

import torch_mojo
from torch_mojo import config, machine_report, project, wheel_report
from torch_mojo.errors import MojoError
from torch_mojo.jit import toolchain
from torch_mojo.jit.cache import FOLDERS, Entry, cache
from torch_mojo.machine_report import shown_size
from torch_mojo.op import MojoOp, declared

_MIB = 2**20


# info


def info(path: Path | None = None) -> int:
    """Print versions, compiler, cache, targets and variables; or what a wheel or library contains and needs."""
    if path is not None:
        return _print_rows(wheel_report.rows(path))
    return _print_rows(machine_report.rows())


def _print_rows(rows: Sequence[tuple[str, str]]) -> int:
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


def _last_use(entry: Entry) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.folder.stat().st_mtime))


def _list_cache() -> None:
    entries = cache().entries()
    print(f"{cache().root}: {len(entries)} kernels, {shown_size(sum(e.size for e in entries))}")
    for entry in reversed(entries):
        what = entry.info.get("what", "?")
        print(f"{entry.key[:12]}  {shown_size(entry.size):>10}  {_last_use(entry)}  {what}")


def manage_cache(action: str, size: float | None) -> int:
    """List, clear, prune or locate the kernel cache."""
    if action == "path":
        print(cache().root)
    elif action == "clear":
        print(f"Removed {cache().clear()} kernels from {cache().root}.")
    elif action == "prune":
        limit = config.cache_size() if size is None else int(size * _MIB)
        removed = cache().prune(limit=limit)
        kernels = [p for p in removed if p.parent.name not in FOLDERS]
        others = len(removed) - len(kernels)
        more = f" and {others} packages or reports" if others else ""
        print(
            f"Removed {len(kernels)} kernels{more}; {len(cache().entries())} are left, "
            f"{shown_size(cache().size)} of at most {shown_size(limit)}."
        )
    else:
        _list_cache()
    return 0


# ahead of time


def _dtype(text: str) -> torch.dtype:
    found = getattr(torch, text, None)
    if not isinstance(found, torch.dtype):
        raise argparse.ArgumentTypeError(f"{text!r} is no dtype")
    return found


def _build(args: argparse.Namespace) -> int:
    from torch_mojo.ahead.cases import Grid
    from torch_mojo.ahead.module import build_module

    if args.check and not args.own:
        raise MojoError("--check is for --own. Say both, or run your own tests.")
    if args.own:
        from torch_mojo import own

        if args.check:
            from torch_mojo import own_check

            folder = args.out or toolchain.built_folder()
            return _print_rows(own_check.check(folder, args.dtype or own.DTYPES, args.only or ()))
        built = own.build_own(
            args.out,
            targets=args.target or own.TARGETS,
            dtypes=args.dtype or own.DTYPES,
            only=args.only or (),
            jobs=args.jobs,
        )
        return _print_rows(wheel_report.rows(built.path))
    if args.module is None:
        raise MojoError("No module is named. Name one, or say --own.")
    grid = Grid(args.dtype or [torch.float32], args.rank or [1, 2, 3, 4], args.strided)
    sys.path.insert(0, str(Path.cwd()))
    built = build_module(
        args.module,
        args.out,
        specializations=grid,
        targets=args.target or ["x86-64-v3"],
        bundle_runtime=args.bundle_runtime,
        jobs=args.jobs,
    )
    return _print_rows(wheel_report.rows(built.path))


def _new(args: argparse.Namespace) -> int:
    folder = project.write(args.name, args.folder)
    print(f"Wrote {folder}. Try it there:")
    for line in (
        "python -m pytest",
        "python benchmark.py",
        "pip wheel . --no-build-isolation --no-deps",
        "python -m torch_mojo info *.whl",
    ):
        print(f"  {line}")
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
    command.add_argument("file", nargs="?", type=Path, help="a wheel, or a library that was built")
    command.set_defaults(run=lambda args: info(args.file))

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

    command = commands.add_parser("build", help="build a module's operators ahead of time")
    module = "the name of a module that can be imported from here"
    command.add_argument("module", nargs="?", help=module)
    command.add_argument(
        "--own", action="store_true", help="torch_mojo's own kernels, for its wheel"
    )
    check = "with --own: build nothing, call what was built and compare with torch"
    command.add_argument("--check", action="store_true", help=check)
    command.add_argument("--only", action="append", metavar="OP", help="with --own: this operator")
    command.add_argument("--out", type=Path, metavar="DIR", help="by default, beside the module")
    target = "x86-64-v3, sm_90 and the like; may be given again, as the next two"
    command.add_argument("--target", action="append", metavar="NAME", help=target)
    command.add_argument("--dtype", action="append", type=_dtype, help="float32 by default")
    command.add_argument("--rank", action="append", type=int, help="1 to 4 by default")
    command.add_argument("--strided", action="store_true", help="not only contiguous tensors")
    command.add_argument("--bundle-runtime", action="store_true", help="needs torch alone")
    command.add_argument("--jobs", type=int, metavar="N", help="compilers at once")
    command.set_defaults(run=_build)

    command = commands.add_parser(
        "new", help="write a small project: kernel, operator, test, wheel"
    )
    command.add_argument("name", help="the package's name")
    command.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help="where")
    command.set_defaults(run=_new)

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
