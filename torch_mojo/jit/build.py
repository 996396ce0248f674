"""Mojo source to shared library: `mojo build --emit object`, then the linker that ships with the compiler."""

import hashlib
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_mojo import config
from torch_mojo.errors import MojoCompileError, NotBuiltError, ToolchainError
from torch_mojo.jit import sources
from torch_mojo.jit.cache import Cache, Entry
from torch_mojo.jit.toolchain import RUNTIME_LIBRARIES, host, kernels, toolchain
from torch_mojo.progress import slow

RECIPE = "3"  # raise it when the way of building changes what comes out
_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\s:][^\n:]*):(?P<line>\d+):(?P<column>\d+): (?P<kind>error|note|warning): "
)
# Steps on the way to a mistake: instantiations and calls.
_STEPS = (
    "function instantiation failed",
    "call expansion failed",
    "error recurses ",
    "remaining errors after",
)
_NOISE = ("Imported from ", "Included from ", "failed to parse the provided")
_RUNTIME_CALL = re.compile(rb"(?<!__wrap_)\bAsyncRT_\w+")
_OWN_IMPORT = re.compile(r"^from torch\.(\w+) import", re.M)


@dataclass(frozen=True)
class Job:
    """One library to build.

    Attributes:
        what: for people: what is being built, `mojo::scale_add for float32[2]`.
        text: the generated main file.
        source: the user's kernels that it imports, if any.
        libraries: what it is linked against: (folder, names).
        wrapped: runtime functions whose calls go to `__wrap_NAME`, which another library has.
        accelerator: `sm_90` and the like, or None.
        extra: more words for the key.
        cpu: the CPU to build for, `x86-64-v3` and the like; without one, this machine's.
        defines: what `is_defined` sees.
        linked: whether a library is made, or an object for a library of many.
    """

    what: str
    text: str
    source: sources.Source | None = None
    libraries: tuple[tuple[Path, tuple[str, ...]], ...] = ()
    wrapped: tuple[str, ...] = ()
    accelerator: str | None = None
    extra: tuple[str, ...] = ()
    cpu: str | None = None
    defines: tuple[str, ...] = ()
    linked: bool = True

    @property
    def key(self) -> str:
        tool = toolchain()
        parts = [
            RECIPE,
            tool.version,
            self.cpu or host(),
            own_fingerprint(self.text),
            self.source.fingerprint() if self.source else "",
            *(str(i) for i in (self.source.include if self.source else ())),
            " ".join(self.source.flags if self.source else ()),
            self.text,
            self.accelerator or "",
            " ".join(config.flags()),
            *self.wrapped,
            *self.extra,
            *self.defines,
            "" if self.linked else "object",
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def own_fingerprint(text: str) -> str:
    """Return a hash of torch_mojo's own Mojo files that a generated text imports, directly or not."""
    found, waiting = set(), [text]
    while waiting:
        for name in _OWN_IMPORT.findall(waiting.pop()):
            path = kernels() / "torch" / f"{name}.mojo"
            if path not in found:
                found.add(path)
                waiting.append(path.read_text())
    digest = hashlib.sha256()
    for path in sorted(found):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def build(job: Job, cache: Cache) -> Entry:
    """Return the built library, from the cache if it is there.

    Raises:
        MojoCompileError: if the compiler refuses the kernel.
        NotBuiltError: if it is not in the cache, under TORCH_MOJO_BUILD=never.
    """

    def make(folder: Path) -> dict[str, object]:
        if config.build() == "never":
            raise NotBuiltError(
                f"{job.what} is not in the cache, and TORCH_MOJO_BUILD=never forbids to build it.\n"
                "Unset TORCH_MOJO_BUILD."
            )
        with slow(f"compiling {job.what}"):
            main = folder / "main.mojo"
            main.write_text(job.text)
            _compile(job, main, folder / "main.o", cache.root / "mojo")
            if job.linked:
                libraries = (*job.libraries, (toolchain().runtime, RUNTIME_LIBRARIES))
                link(job.what, [folder / "main.o"], folder / "lib.so", libraries, job.wrapped)
                (folder / "main.o").unlink()
            else:
                (folder / "main.o").rename(folder / "lib.so")
        return {
            "what": job.what,
            "source": str(job.source or ""),
            "accelerator": job.accelerator,
            "runtime": runtime_calls(folder / "lib.so"),
        }

    return cache.find_or_build(job.key, make)


def runtime_calls(library: Path) -> list[str]:
    """Return the device runtime's functions that a library calls itself, not through a wrapper."""
    return sorted({n.decode() for n in _RUNTIME_CALL.findall(library.read_bytes())})


def _compile(job: Job, main: Path, output: Path, compiler_cache: Path) -> None:
    tool = toolchain()
    compiler_cache.mkdir(parents=True, exist_ok=True)
    command = [str(tool.mojo), "build", str(main), "--emit", "object", "-o", str(output)]
    # messages and assertions of the generated file name no folder of this build
    command += ["-strip-file-prefix", f"{main.parent}/"]
    command += ["--disable-warnings", "-I", str(kernels())]
    for folder in job.source.search if job.source else ():
        command += ["-I", str(folder)]
    if job.accelerator:
        command += ["--target-accelerator", job.accelerator]
    if job.cpu:
        command += ["--target-cpu", job.cpu]
    for name in job.defines:
        command += ["-D", name]
    command += [*(job.source.flags if job.source else ()), *config.flags()]
    result = subprocess.run(
        command, env=tool.environment(compiler_cache), capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise compile_error(job, main, result.stderr + result.stdout)


def link(
    what: str,
    objects: Sequence[Path],
    output: Path,
    libraries: Sequence[tuple[Path, tuple[str, ...]]],
    wrapped: Sequence[str] = (),
    more: Sequence[str] = (),
) -> None:
    """Make a library of objects.

    Args:
        what: for people: what is being built.
        objects: the object files.
        output: the library.
        libraries: what it is linked against by name, as far as it uses it: (folder, names).
        wrapped: functions whose calls go to `__wrap_NAME`.
        more: more flags for the linker.

    Raises:
        ToolchainError: if the linker refuses.
    """
    command = [str(toolchain().lld), "-flavor", "gnu", "-shared", "-Bsymbolic", "--eh-frame-hdr"]
    command += [f"--wrap={name}" for name in wrapped]
    command += ["--gc-sections", "--as-needed", "-s", *more, "-o", str(output), *map(str, objects)]
    for folder, names in libraries:
        command += ["-L", str(folder), *(f"-l{name}" for name in names)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ToolchainError(
            f"{what} could not be linked: {result.stderr.strip()}\nReinstall mojo-compiler."
        )


@dataclass
class _Message:
    """One of the compiler's messages.

    Attributes:
        kind, text: what it says.
        lines: the source lines below it.
        place: where, if that is in the user's text.
        generated: whether it is about the generated main file.
    """

    kind: str
    text: str
    lines: list[str]
    place: str | None
    generated: bool

    @property
    def is_step(self) -> bool:
        """Whether it only tells by which calls the compiler came to the mistake."""
        return self.text.startswith(_STEPS)

    def shown(self) -> list[str]:
        where = f"{self.place}: " if self.place else ""
        return [f"{where}{self.kind}: {self.text}", *self.lines]


def _messages(job: Job, main: Path, text: str) -> list[_Message]:
    found: list[_Message] = []
    for line in text.splitlines():
        match = _DIAGNOSTIC.match(line)
        if match:
            place = job.source.user_place(match["file"], int(match["line"])) if job.source else None
            generated = match["file"] in (main.name, str(main))
            found.append(_Message(match["kind"], line[match.end() :], [], place, generated))
        elif found and not line.startswith(_NOISE) and not re.match(r"^\S*/mojo: error: ", line):
            found[-1].lines.append(line)
    return found


def compile_error(job: Job, main: Path, text: str) -> MojoCompileError:
    """Turn the compiler's output into an exception that shows the user's own files and lines."""
    messages = _messages(job, main, text)
    told = [m for m in messages if not m.is_step and not m.generated]
    if told and not any(m.place for m in told):
        # a mistake inside a library, for which a line of the user's is the reason
        reasons = [m for m in messages if m.is_step and m.place]
        if reasons:
            told[0].place, told[0].lines = reasons[-1].place, reasons[-1].lines
            told[0].kind = "error"
    if told:
        shown = "\n".join(line for m in told for line in m.shown())
        return MojoCompileError(
            f"{job.what} does not compile.\n{shown}\nCorrect the kernel and call again.", shown
        )
    if "submit a bug report" in text:
        return MojoCompileError(
            f"The Mojo compiler crashed on {job.what}.\n{text.strip()[:2000]}\n"
            "Change the kernel; tensors of rank 0 are read as x[IndexList[0]()].",
            text,
        )
    if "xcrun" in text:
        return MojoCompileError(
            f"{job.what}: Apple's own tools make the last step for {job.accelerator}, and they are not here.\n"
            f"{text.strip()[:500]}\nBuild on macOS with Xcode's command line tools.",
            text,
        )
    shim = [line for m in messages if m.generated for line in (m.text, *m.lines)]
    shown = "\n".join(shim) or text.strip()
    where = f" of {job.source}" if job.source else ""
    return MojoCompileError(
        f"{job.what}: the kernel{where} cannot be called with these arguments.\n{shown}\n"
        f"Make the declaration and the kernel's `execute` agree.",
        shown,
    )
