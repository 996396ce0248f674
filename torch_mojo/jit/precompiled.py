"""The kernels of a `.mojoc`: it has no text, so MAX's own reader of such files is asked."""

import re
from pathlib import Path

from torch_mojo.errors import KernelNotFoundError
from torch_mojo.jit.signature import Argument, Kernel, Parameter

_DTYPES = {
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "bf16": "bfloat16",
    "bool": "bool",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
    **{f"si{w}": f"int{w}" for w in (8, 16, 32, 64)},
    **{f"ui{w}": f"uint{w}" for w in (8, 16, 32, 64)},
}
_DTYPE_TYPE = r"!lit\.struct<@std::@builtin::@dtype::@DType>"
_VALUE = r"(\{[^{}]*\}|\*\(\d+,\d+\)|[^,<>{}\s]+)"
_SPEC = re.compile(
    r'\*"(\w+)\.static_spec`[^"]*" : !lit\.struct<@extensibility::@managed_tensor_slice::'
    rf"@StaticTensorSpec<:{_DTYPE_TYPE} {_VALUE}, :!lit\.struct<.*?@SIMDLength> \{{1\}}>> {_VALUE},"
)
_SCALAR = re.compile(rf"^!lit\.struct<@std::@simd::@SIMD<:{_DTYPE_TYPE} {_VALUE},")


def read_kernels(path: Path) -> dict[str, Kernel]:
    """Return the kernels of a precompiled package by registered name.

    Raises:
        KernelNotFoundError: if MAX cannot read the file.
    """
    from max.graph import KernelLibrary

    library = KernelLibrary()
    builtin = set(library)
    try:
        library.load_paths([path])
        analysis = library._analysis
        found = {}
        for name in library:
            text = "" if name in builtin else str(analysis.kernel(name))
            if f"@{path.stem}." in text or f"@{path.stem} " in text:
                info = analysis.kernel_torch_info(name)
                found[name] = _kernel(name, text, info.num_dps_outputs)
    except Exception as e:
        raise KernelNotFoundError(
            f"{path} is no Mojo package that this MAX can read: {e}\n"
            "Precompile it again with the installed compiler: mojo precompile FOLDER -o NAME.mojoc"
        ) from e
    return found


def _value(text: str, names: list[str]) -> str | None:
    """Return the Mojo spelling of a dtype or an int in the compiler's notation.

    `names` are the compile-time parameters, which it may refer to by position.
    """
    match = re.fullmatch(r"\*\(0,(\d+)\)", text)
    if match:
        position = int(match[1])
        return names[position] if position < len(names) else None
    match = re.fullmatch(r"\{:dtype (\w+)\}", text)
    if match:
        return f"DType.{_DTYPES[match[1]]}" if match[1] in _DTYPES else None
    match = re.fullmatch(r"\{:scalar<index> (\d+)\}", text)
    if match:
        return match[1]
    text = text.strip('*"').split("`")[0]
    return text if re.fullmatch(r"[\w.]+", text) else None


def _kernel(name: str, text: str, outputs: int) -> Kernel:
    text = re.sub(r"trait<[^<>]*>", "TRAIT", text).replace("->", "to")
    where = re.search(r"kernel\.decl @([\w.]+)", text)
    assert where is not None, text[:200]
    module, _, struct = where[1].rpartition(".")
    declared = re.findall(r"#kgen<param\.decl (\w+) :", text)
    struct_part = text[text.find("struct_params = [") :] if "struct_params = [" in text else ""
    struct_names = re.findall(r"#kgen<param\.decl (\w+) :", struct_part)
    names = struct_names + [n for n in declared if n not in struct_names]
    specs = {m[1]: (_value(m[2], names), _value(m[3], names)) for m in _SPEC.finditer(text)}
    arguments: list[Argument] = []
    for argument, type_ in _arguments(text):
        if argument in specs:
            io = "Output" if len(arguments) < outputs else "Input"
            if io == "Input" and re.search(r"@Bool> \{:scalar<bool> true\}", type_[:300]):
                io = "MutableInput"
            fused = '"FusedInput"' in type_ or '"FusedOutput"' in type_
            dtype, rank = specs[argument]
            wanted = [
                f"{k}={v}"
                for k, v in (("dtype", dtype), ("rank", rank))
                if v is not None and v != f"{argument}.{k}"
            ]
            shown = f"{io}Tensor[{', '.join([*wanted, '...'])}]"
            arguments.append(Argument(argument, shown, io, fused=fused))
            continue
        scalar = _SCALAR.match(type_)
        if scalar:
            arguments.append(Argument(argument, f"Scalar[{_value(scalar[1], names)}]", None))
        else:
            kind = "DeviceStream" if "DeviceStream" in type_ else "DeviceContext"
            arguments.append(Argument(argument, kind if "Device" in type_ else type_[:60], None))
    parameters = [Parameter(n, "", None, inferred=True) for n in declared if n not in struct_names]
    return Kernel(
        name,
        struct,
        module,
        tuple(Parameter(n, "", "its own") for n in struct_names),
        tuple(parameters),
        tuple(arguments),
        signature=f"execute({', '.join(f'{a.name}: {a.type}' for a in arguments)})",
    )


def _arguments(text: str) -> list[tuple[str, str]]:
    """Return (name, type) of `execute`'s arguments from the generator's type."""
    start = re.search(r">\[\d+\]\((?=\")", text)
    if start is None:
        return []
    found, depth, at = [], 0, start.end()
    for i in range(start.end(), len(text)):
        c = text[i]
        if c in "<([{":
            depth += 1
        elif c in ">)]}":
            depth -= 1
        if (c == "," and depth == 0) or depth < 0:
            name, _, type_ = text[at:i].strip().partition(": ")
            if name.startswith('"') and not name.startswith('"__'):
                found.append((name.strip('"'), type_))
            at = i + 1
        if depth < 0:
            break
    return found
