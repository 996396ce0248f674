"""The house rules that a machine can check."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "torch_mojo"
PYTHON = sorted(PACKAGE.rglob("*.py"))
LAYERS = [
    "batching errors config devices dtypes progress torch_private",
    "jit",
    "dispatch",
    "loader",
    "op library",
    "ahead",
    "functional aten",
    "inline",
    "device",
    "compiler",
    "build own own_check",
    "project wheel_report machine_report",
    "cli demo demo_report",
]


def tracked() -> list[Path]:
    result = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / line for line in result.stdout.splitlines() if (ROOT / line).is_file()]


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{a.name}" for a in node.names}
    return found


def layer(name: str) -> int:
    return next((i for i, names in enumerate(LAYERS) if name in names.split()), len(LAYERS))


def test_imports_flow_downward() -> None:
    for path in PYTHON:
        own = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if own.startswith("__"):
            continue
        for module in imports(path):
            parts = module.split(".")
            if parts[0] != "torch_mojo" or len(parts) < 2:
                continue
            # at call time: register_lowering, and MAX's values
            lazily = (own, parts[1]) in {("op", "compiler"), ("functional", "compiler")}
            assert layer(parts[1]) <= layer(own) or lazily, f"{path} imports {module}"


def test_only_the_compiler_imports_max_at_the_top() -> None:
    for path in PYTHON:
        if path.is_relative_to(PACKAGE / "compiler"):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                text = ast.unparse(node)
                assert not re.match(r"(from|import) max\b", text), f"{path}: {text}"


def test_private_torch_names_stand_in_one_file() -> None:
    pattern = re.compile(r"\btorch(\.\w+)*\._(?!_)\w+")
    public = {
        "torch._check",
        "torch._ops",
    }  # the second has OpOverload, which torch.library speaks of
    for path in PYTHON:
        if path.name in ("torch_private.py", "_private.py"):  # the second is the compiler's own
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                text = ast.unparse(node)
                assert text in public or not pattern.fullmatch(text), f"{path}: {text}"
        for module in imports(path):
            assert not re.match(r"torch(\.\w+)*\._", module), f"{path} imports {module}"


def test_environment_variables_stand_in_one_file() -> None:
    allowed = {
        "config.py",
        "toolchain.py",
        "cache.py",
        "shipped.py",
    }  # the compiler's environment; XDG_CACHE_HOME; what a library is told while it is opened
    for path in PYTHON:
        if path.name not in allowed:
            assert "os.environ" not in path.read_text(), path
    names = re.findall(r'_get\("(\w+)"', (PACKAGE / "config.py").read_text())
    assert len(set(names)) <= 8
    documented = (ROOT / "docs" / "cache.md").read_text()
    for name in names:
        assert f"TORCH_MOJO_{name}" in documented, name


def test_files_stay_small() -> None:
    limits = {".py": 400, ".mojo": 600}
    for path in tracked():
        limit = limits.get(path.suffix)
        if limit and path.relative_to(ROOT).parts[0] != "tests":
            count = len(path.read_text().splitlines())
            assert count <= limit * 1.25, f"{path} has {count} lines"
    for name, most in (("README.md", 100), ("CONTRIBUTING.md", 50)):
        assert len((ROOT / name).read_text().splitlines()) <= most, name


def test_no_path_of_one_machine() -> None:
    own = {str(ROOT.parent), str(Path.home())} - {"/", "/root"}
    for path in tracked():
        if path.suffix in (".py", ".mojo", ".md", ".toml", ".json", ".yaml", ""):
            text = path.read_text(errors="ignore")
            for place in own:
                assert f"{place}/" not in text, f"{path} names {place}"


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports them by these names, from many folders."""
    names = [p.name for p in tracked() if p.suffix == ".py" and p.parts[len(ROOT.parts)] == "tests"]
    shared = {n for n in names if names.count(n) > 1 and n not in ("conftest.py", "__init__.py")}
    assert not shared


def test_no_folder_takes_the_name_of_a_package() -> None:
    """`import kernels` from the checkout must find the package of that name that transformers needs."""
    for folder in (p for p in ROOT.iterdir() if p.is_dir() and p.name != "torch_mojo"):
        assert not (folder / "__init__.py").exists() or folder.name == "benchmarks"


def test_ruff_and_mypy() -> None:
    for command in (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]):
        result = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr


def test_the_readme_has_two_commands_and_ci_runs_one() -> None:
    text = (ROOT / "README.md").read_text()
    commands = re.findall(r"^python3 -m venv .*$", text, re.M)
    assert len(commands) == 2
    assert commands[0].endswith("-m torch_mojo demo") and commands[1].endswith("-m pytest")
    assert "-m pytest$" in (ROOT / ".ci" / "run").read_text()


def test_every_kernel_is_shipped() -> None:
    text = (ROOT / "setup.py").read_text()
    assert 'rglob("*.mojo")' in text


def test_every_builtin_function_is_listed() -> None:
    from torch_mojo import functional

    listed = (ROOT / "docs" / "functional.md").read_text()
    missing = [n for n in functional.__all__ if f"| `{n}` |" not in listed]
    assert not missing
