"""Reads the registered kernels of a Mojo source: names, compile-time parameters, arguments.

The compiler's `mojo doc` prints neither the registered name nor the dtype and rank of a tensor argument, so
the few declarations that matter are read from the text.
"""

import re
from dataclasses import dataclass, field

_OPEN = "([{"
_CLOSE = ")]}"

_REGISTER = re.compile(r"@\s*(?:\w+\s*\.\s*)?register\s*\(")
_STRUCT = re.compile(r"\bstruct\s+(\w+)")
_EXECUTE = re.compile(r"\b(?:def|fn)\s+execute\b")
_TENSOR = re.compile(
    r"\b(?:Managed)?_?(?P<fused>Fused)?(?:Compute)?"
    r"(?P<io>MutableInput|Input|Output)(?P<many>Variadic)?Tensors?\b"
)
_CONVENTIONS = {"mut", "read", "imm", "var", "owned", "borrowed", "ref", "deinit", "out"}


@dataclass(frozen=True)
class Parameter:
    """A compile-time parameter of a struct or of its `execute`."""

    name: str
    type: str
    default: str | None
    inferred: bool = False  # stands before `//`: only the tensors can give it


@dataclass(frozen=True)
class Argument:
    """A run-time argument of `execute`."""

    name: str
    type: str
    io: str | None  # Input, Output, MutableInput for a tensor
    many: bool = False  # variadic: a list of tensors
    fused: bool = False

    @property
    def constraints(self) -> dict[str, str]:
        """Return the `dtype=` and `rank=` expressions of a tensor's type."""
        found = {}
        start = self.type.find("[")
        if self.io and start >= 0:
            for i, part in enumerate(split(self.type[start + 1 : self.type.rfind("]")])):
                name, eq, value = part.partition("=")
                if eq and name.strip() in ("dtype", "rank"):
                    found[name.strip()] = value.strip()
                elif not eq and i < 2 and part.strip() not in ("...", "_"):
                    found[("dtype", "rank")[i]] = part.strip()
        return found


@dataclass(frozen=True)
class Kernel:
    """One registered struct."""

    name: str  # as registered
    struct: str
    module: str  # the module that has it
    struct_parameters: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]
    arguments: tuple[Argument, ...]
    file: str = ""
    line: int = 0
    signature: str = field(default="", compare=False)

    @property
    def all_parameters(self) -> dict[str, Parameter]:
        return {p.name: p for p in (*self.struct_parameters, *self.parameters)}


def blank(text: str) -> str:
    """Return the text with comments and the insides of strings turned to spaces; positions stay."""

    def spaces(match: re.Match[str]) -> str:
        found = match.group(0)
        if found.startswith("#"):
            return " " * len(found)
        quote = 3 if found[:3] in ('"""', "'''") else 1
        inner = re.sub(r"[^\n]", " ", found[quote:-quote])
        return found[:quote] + inner + found[-quote:]

    pattern = r'"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*'
    return re.sub(pattern, spaces, text, flags=re.DOTALL)


def split(text: str, separator: str = ",") -> list[str]:
    """Split at the separators that stand in no bracket; empty parts are left out."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in _OPEN:
            depth += 1
        elif c in _CLOSE:
            depth -= 1
        elif c == separator and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [p.strip() for p in parts if p.strip()]


def _bracketed(text: str, start: int) -> tuple[str, int]:
    """Return what stands between the bracket at `start` and its partner, and the place after it."""
    depth = 0
    for i in range(start, len(text)):
        if text[i] in _OPEN:
            depth += 1
        elif text[i] in _CLOSE:
            depth -= 1
            if depth == 0:
                return text[start + 1 : i], i + 1
    return text[start + 1 :], len(text)


def _optional_brackets(text: str, at: int, kind: str) -> tuple[str, int]:
    while at < len(text) and text[at].isspace():
        at += 1
    if at < len(text) and text[at] == kind:
        return _bracketed(text, at)
    return "", at


def _name_and_type(part: str) -> tuple[str, str, str | None]:
    declared, _, default = part.partition("=") if _depth0_equals(part) else (part, "", "")
    name, _, type_ = declared.partition(":")
    words = name.split()
    while len(words) > 1 and words[0] in _CONVENTIONS:
        words = words[1:]
    return (
        words[0].lstrip("*").strip("`") if words else "",
        " ".join(type_.split()),
        default.strip() or None,
    )


def _depth0_equals(part: str) -> bool:
    """Tell whether the first `=` that stands in no bracket comes before any bracketed one."""
    first = part.find("=")
    opened = part.find("[")
    return first >= 0 and (opened < 0 or first < opened)


def _parameters(text: str) -> tuple[Parameter, ...]:
    found: list[Parameter] = []
    for part in split(text.replace("//", ",//,")):
        if part == "//":
            found = [Parameter(p.name, p.type, p.default, True) for p in found]
        elif part not in ("*", "/"):
            found.append(Parameter(*_name_and_type(part)))
    return tuple(found)


def _argument(part: str) -> Argument:
    name, type_, _ = _name_and_type(part)
    if not type_:
        return Argument(name, "", None)
    match = _TENSOR.search(type_.split("[", 1)[0])
    if match is None:
        return Argument(name, type_, None)
    return Argument(name, type_, match["io"], bool(match["many"]), bool(match["fused"]))


def parse(text: str, module: str, file: str = "") -> list[Kernel]:
    """Return the kernels that a Mojo file registers.

    Args:
        text: the file's text.
        module: the name by which the file is imported.
        file: its path, for messages.
    """
    clean = blank(text)
    kernels = []
    for match in _REGISTER.finditer(clean):
        inside, end = _bracketed(text, match.end() - 1)
        name = re.match(r"""\s*(?:name\s*=\s*)?["']([^"']*)["']""", inside)
        struct = _STRUCT.search(clean, end)
        if name is None or struct is None:
            continue
        struct_text, at = _optional_brackets(clean, struct.end(), "[")
        following = _REGISTER.search(clean, at)
        body_end = following.start() if following else len(clean)
        execute = _EXECUTE.search(clean, at, body_end)
        if execute is None:
            continue
        parameter_text, at = _optional_brackets(clean, execute.end(), "[")
        argument_text, stop = _optional_brackets(clean, at, "(")
        kernels.append(
            Kernel(
                name[1],
                struct[1],
                module,
                _parameters(struct_text),
                _parameters(parameter_text),
                tuple(_argument(p) for p in split(argument_text) if p not in ("*", "/")),
                file,
                clean.count("\n", 0, execute.start()) + 1,
                re.sub(
                    r"(?<=[\[(]) |,? (?=[\])])", "", " ".join(text[execute.start() : stop].split())
                ),
            )
        )
    return kernels
