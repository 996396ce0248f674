"""The machines for which a library is built."""

import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from torch_mojo.errors import ToolchainError
from torch_mojo.jit.manifest import CPU_LEVELS, HOST_OF_GPU_CODE

DEFAULT = ("x86-64-v3",)
_GPU = re.compile(r"sm_(\d+)([a-z]?)")


@dataclass(frozen=True)
class Target:
    """A CPU level or a GPU architecture.

    Attributes:
        name: `x86-64-v3` or `sm_90`.
        level: 1 to 4 for a CPU; 90 for a GPU.
        gpu: whether it is a GPU.
        exact: whether code for this GPU runs on no later one (`sm_90a`).
        cpu: the CPU to compile for; with a GPU, what launches its kernels.
    """

    name: str
    level: int
    cpu: str
    gpu: bool = False
    exact: bool = False

    @property
    def accelerator(self) -> str | None:
        """The GPU to compile for."""
        return self.name if self.gpu else None


def check(names: Sequence[str]) -> None:
    """Refuse what is no list of targets.

    Raises:
        ValueError: naming what is no target.
    """
    if isinstance(names, str):
        raise ValueError(f"targets is {names!r}.\nGive a list: targets=[{names!r}].")
    for name in names:
        if not isinstance(name, str) or not (_GPU.fullmatch(name) or name in CPU_LEVELS[1:]):
            raise ValueError(
                f"{name!r} is no target.\nTargets are {', '.join(CPU_LEVELS[1:])} and GPU architectures "
                "such as sm_80 and sm_90."
            )
    if not names:
        raise ValueError("No target is given.\nName at least one, such as x86-64-v3.")


def parse(names: Sequence[str]) -> list[Target]:
    """Return the targets of these names, the most capable first.

    Raises:
        ToolchainError: if this is no machine to build on.
        ValueError: naming what is no target.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise ToolchainError(
            f"This machine is {sys.platform} on {platform.machine()}; libraries are built ahead of time "
            "on Linux x86-64.\nBuild the wheel there, or let the operators be built when they are called."
        )
    check(names)
    found = set()
    cpus = [n for n in names if n in CPU_LEVELS[1:]]
    least = min(cpus, key=CPU_LEVELS.index, default=HOST_OF_GPU_CODE)
    for name in names:
        match = _GPU.fullmatch(name)
        if match:
            found.add(Target(name, int(match[1]), least, gpu=True, exact=bool(match[2])))
        else:
            found.add(Target(name, CPU_LEVELS.index(name), name))
    return sorted(found, key=lambda t: (t.gpu, -t.level, not t.exact))
