"""`torch.mojo`: the device's module, as torch.cuda is for CUDA."""

from typing import Any

import torch

from torch_mojo.device import native

_forked = False

Device = torch.device | str | int | None


def after_fork() -> None:
    """Remember in a forked child that it is one."""
    global _forked
    _forked = True


def _index(device: Device = None) -> int:
    """Return the index that a device argument means.

    Raises:
        ValueError: if it is no mojo device.
    """
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    found = torch.device(device)
    if found.type != native.NAME:
        raise ValueError(f"Expected a mojo device, but got {found}.\nPass 'mojo' or 'mojo:0'.")
    return current_device() if found.index is None else found.index


def _checked(device: Device) -> int:
    index = _index(device)
    if not 0 <= index < device_count():
        raise RuntimeError(f"mojo:{index} does not exist; there are {device_count()} devices.")
    return index


def is_available() -> bool:
    """Return whether there is a device: the host always is one."""
    return True


def is_initialized() -> bool:
    """Return whether the device is ready: it is once it is registered."""
    return True


def init() -> None:
    """Do nothing: registration has done it."""


_lazy_init = init


def _is_in_bad_fork() -> bool:
    return False  # host devices have no context that a fork could break


def device_count() -> int:
    """Return the number of devices."""
    return native.device_count()


def current_device() -> int:
    """Return the index of this thread's current device."""
    return torch.accelerator.current_device_index()


def set_device(device: Device) -> None:
    """Make a device this thread's current one."""
    torch.accelerator.set_device_index(_checked(device))


class device:
    """A context in which a device is the current one.

    Args:
        device: a device, its index, or None to change nothing.
    """

    def __init__(self, device: Device) -> None:
        self._index = -1 if device is None else _checked(device)
        self._before = -1

    def __enter__(self) -> None:
        self._before = current_device()
        if self._index >= 0:
            set_device(self._index)

    def __exit__(self, *_: object) -> None:
        set_device(self._before)


class device_of(device):
    """A context in which a tensor's device is the current one; for other tensors it does nothing."""

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(tensor.device if tensor.device.type == native.NAME else None)


def get_device_name(device: Device = None) -> str:
    """Return what a device is, for people."""
    _checked(device)
    return "host"


def get_device_capability(device: Device = None) -> dict[str, Any]:
    """Return what is known of a device: its kind and the number of threads that run its kernels."""
    _checked(device)
    return {"kind": "host", "threads": torch.get_num_threads()}


def synchronize(device: Device = None) -> None:
    """Wait for all work of a device."""
    torch.accelerator.synchronize(_checked(device))


# streams and events


class Stream(torch.Stream):
    """A stream of the device.

    Args:
        device: whose; default: the current one.
        priority: as torch.Stream takes it.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> "Stream":
        if kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(
            cls, device=torch.device(native.NAME, _checked(device)), priority=priority
        )


def Event(
    enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
) -> torch.Event:
    """Return a new event of the device, a `torch.Event`: that class takes no subclass's elapsed_time.

    Args:
        enable_timing: whether it measures time.
        blocking, interprocess: as torch.Event takes them.
    """
    return torch.Event(
        device=torch.device(native.NAME),
        enable_timing=enable_timing,
        blocking=blocking,
        interprocess=interprocess,
    )


def current_stream(device: Device = None) -> torch.Stream:
    """Return this thread's current stream of a device."""
    return torch.accelerator.current_stream(_checked(device))


def default_stream(device: Device = None) -> torch.Stream:
    """Return a device's default stream."""
    return Stream(stream_id=0, device_index=_checked(device), device_type=_device_type())


def _device_type() -> int:
    return current_stream().device_type


def set_stream(stream: torch.Stream) -> None:
    """Make a stream this thread's current one of its device."""
    torch.accelerator.set_stream(stream)


class stream:
    """A context in which a stream is the current one; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        if self._stream is not None:
            self._stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self._stream is not None:
            self._stream.__exit__(*error)


# memory


def memory_stats(device: Device = None) -> dict[str, int]:
    """Return a device's counts of bytes and blocks, by the names of `torch.cuda.memory_stats`."""
    words = native.memory_words(_checked(device))
    parts = ("current", "peak", "allocated", "freed")
    found = {}
    for name, first in (("allocated_bytes", 0), ("allocation", 4)):
        for i, part in enumerate(parts):
            found[f"{name}.all.{part}"] = words[first + i]
    return found


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that tensors hold now."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes that tensors held since the last `reset_peak_memory_stats`."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device: Device = None) -> int:
    """Return the bytes taken from the system: those that tensors hold, since nothing is kept back."""
    return memory_allocated(device)


def max_memory_reserved(device: Device = None) -> int:
    """Return the most bytes taken from the system."""
    return max_memory_allocated(device)


def reset_peak_memory_stats(device: Device = None) -> None:
    """Count peaks from now on."""
    torch.accelerator.reset_peak_memory_stats(_checked(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Count what is allocated and freed from now on."""
    torch.accelerator.reset_accumulated_memory_stats(_checked(device))


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return free and total bytes of the host."""
    return torch.accelerator.get_memory_info(_checked(device))


def empty_cache() -> None:
    """Give unused memory back to the system: the host's allocator keeps none."""


# random numbers


class _Generators:
    """The devices' default generators, by index."""

    def __len__(self) -> int:
        return device_count()

    def __getitem__(self, index: int) -> torch.Generator:
        return default_generator(index)


default_generators = _Generators()
_generators: dict[int, torch.Generator] = {}


def default_generator(device: Device = None) -> torch.Generator:
    """Return a device's default generator."""
    index = _checked(device)
    if index not in _generators:
        _generators[index] = torch.Generator(device=f"{native.NAME}:{index}")
        _generators[index].manual_seed(torch.initial_seed())
    return _generators[index]


def manual_seed(seed: int) -> None:
    """Seed the current device's generator."""
    default_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every device's generator."""
    for i in range(device_count()):
        default_generator(i).manual_seed(int(seed))


def seed() -> None:
    """Seed the current device's generator with a random number."""
    default_generator().seed()


def seed_all() -> None:
    """Seed every device's generator with one random number."""
    first = default_generator(0).seed()
    manual_seed_all(first)


def initial_seed() -> int:
    """Return the seed of the current device's generator."""
    return default_generator().initial_seed()


def get_rng_state(device: Device = "mojo") -> torch.Tensor:
    """Return the state of a device's generator, a uint8 tensor of the CPU."""
    return default_generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: Device = "mojo") -> None:
    """Set the state of a device's generator."""
    default_generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all devices' generators."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    """Set the states of all devices' generators."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


# autocast


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that `torch.autocast("mojo")` takes."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported() -> bool:
    """Return whether kernels take bfloat16."""
    return True


def __getattr__(name: str) -> Any:
    """Answer Inductor, which looks here for its code generators."""
    if name in ("Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen"):
        from torch_mojo.device.inductor import Refusal

        return Refusal
    raise AttributeError(f"module 'torch.mojo' has no attribute {name!r}")
