"""The dtypes that torch and Mojo share."""

import torch

# torch name -> Mojo's DType name; the shim function that returns libtorch's number for it has the torch name
_NAMES = {
    "bool": "bool",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float32": "float32",
    "float64": "float64",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e4m3fnuz": "float8_e4m3fnuz",
    "float8_e5m2": "float8_e5m2",
    "float8_e5m2fnuz": "float8_e5m2fnuz",
    "float8_e8m0fnu": "float8_e8m0fnu",
}

TO_MOJO: dict[torch.dtype, str] = {getattr(torch, t): m for t, m in _NAMES.items()}
FROM_MOJO: dict[str, torch.dtype] = {m: t for t, m in TO_MOJO.items()}


def short(dtype: torch.dtype) -> str:
    """Return `float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def accumulated(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which kernels take sums of floating-point numbers: float32, for float64 float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32
