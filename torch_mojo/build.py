"""Operators in a wheel: `MojoExtension` and `BuildMojo` for a setup.py.

setup(
    ext_modules=[MojoExtension("my_package.ops", targets=["x86-64-v3", "sm_90"])],
    cmdclass={"build_ext": BuildMojo},
)
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from setuptools import Extension
from setuptools.command.build_ext import build_ext

from torch_mojo.ahead.cases import Example, Grid
from torch_mojo.ahead.library import Built, build_library
from torch_mojo.ahead.module import Specializations, build_module
from torch_mojo.ahead.targets import DEFAULT
from torch_mojo.ahead.targets import check as targets_check

__all__ = [
    "BuildMojo",
    "Built",
    "Example",
    "Grid",
    "MojoExtension",
    "build_library",
    "build_module",
]


class MojoExtension(Extension):
    """The operators that a module declares, built ahead of time into a library beside it.

    Args:
        module: the module's name, `package.module`; it is imported from the source tree when the wheel is built.
        specializations: what to build: a `Grid`, an `Example`, a list of them, for all operators or by qualified
            name. By default float32 of 1 to 4 dimensions, contiguous.
        targets: CPU levels (`x86-64-v2`, ...) and GPU architectures (`sm_90`); no such machine is needed.
        bundle_runtime: put a small loader, and Mojo's runtime libraries if the kernels need them, into the wheel: it
            then depends on torch alone.
        include_sources: put the Mojo files that the operators name into the wheel, so that a combination that was
            not built can be compiled where there is a compiler.
        jobs: how many compilers run at once; as many as there are processors by default.

    Raises:
        ValueError: naming a value that is none of these.
    """

    def __init__(
        self,
        module: str,
        *,
        specializations: Specializations | None = None,
        targets: Sequence[str] = DEFAULT,
        bundle_runtime: bool = False,
        include_sources: bool = True,
        jobs: int | None = None,
    ) -> None:
        if not isinstance(module, str) or not all(p.isidentifier() for p in module.split(".")):
            raise ValueError(
                f"MojoExtension: {module!r} is no module.\n"
                "Name the one that declares the operators, such as 'my_package.ops'."
            )
        targets_check(targets)
        given = specializations
        some = list(given.values()) if isinstance(given, Mapping) else [given]
        some = [w for s in some for w in (s if isinstance(s, (list, tuple)) else [s])]
        wrong = [w for w in some if w is not None and not isinstance(w, (Grid, Example))]
        if wrong:
            raise ValueError(
                f"MojoExtension: specializations has {wrong[0]!r}.\n"
                "Give a Grid or an Example, a list of them, or a dict of these by qualified name."
            )
        if jobs is not None and (not isinstance(jobs, int) or jobs < 1):
            raise ValueError(
                f"MojoExtension: jobs is {jobs!r}.\nGive a number of compilers, 1 or more."
            )
        super().__init__(module, sources=[])
        self.specializations = specializations
        self.targets = targets
        self.bundle_runtime = bundle_runtime
        self.include_sources = include_sources
        self.jobs = jobs


class BuildMojo(build_ext):
    """setuptools' `build_ext`, with `MojoExtension`s.

    An editable installation builds nothing: there, kernels are built when they are called.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        wheel = self.distribution.get_command_obj("bdist_wheel", create=False)
        mine = all(isinstance(e, MojoExtension) for e in self.distribution.ext_modules or ())
        if wheel is not None and mine and not wheel.py_limited_api:
            wheel.py_limited_api = "cp310"  # the libraries know nothing of Python

    def build_extension(self, ext: Any) -> None:
        if not isinstance(ext, MojoExtension):
            super().build_extension(ext)
            return
        root = self.get_finalized_command("build_py").get_package_dir("") or "."
        folder = Path(self.get_ext_fullpath(ext.name)).parent
        build_module(
            ext.name,
            folder,
            root=Path(root).absolute(),
            specializations=ext.specializations,
            targets=ext.targets,
            bundle_runtime=ext.bundle_runtime,
            include_sources=ext.include_sources,
            jobs=ext.jobs,
        )

    def run(self) -> None:
        if self.inplace or getattr(self, "editable_mode", False):
            others = [e for e in self.distribution.ext_modules if not isinstance(e, MojoExtension)]
            self.extensions = others
        super().run()

    def get_outputs(self) -> list[str]:
        others = [e for e in self.extensions if not isinstance(e, MojoExtension)]
        return [self.get_ext_fullpath(e.name) for e in others]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        return []
