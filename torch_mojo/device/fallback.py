"""What has no kernel on the device runs on the CPU, on the same memory, with one warning per operator."""

import contextlib
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from torch_mojo import config, torch_private
from torch_mojo.device import native
from torch_mojo.errors import UnsupportedOpError

# Operators that take tensors of several devices, by what torch says of them.
_MIXED = ("aten::index", "aten::index_put", "aten::_index_put_impl_", "aten::_copy_from")
# Not worth a word: they hand out bytes, or say what a tensor is.
_SILENT = ("aten::_copy_from", "aten::_copy_from_and_resize", "aten::record_stream")

_plans: dict[Any, "_Plan"] = {}
_warned: set[str] = set()
_libraries: list[torch.library.Library] = []
_random = threading.RLock()
ran: dict[str, int] = {}  # how often each operator fell back
drew: dict[str, int] = {}  # how often each operator let the CPU draw random numbers
unbuilt: set[str] = (
    set()
)  # operators that fell back because TORCH_MOJO_BUILD=never has no kernel of them
# Random numbers are the CPU's for the same seed because its kernels draw them: no lack, so no warning.
_DRAWN = frozenset(
    f"aten::{name}"
    for name in (
        *("bernoulli_", "uniform_", "normal_", "random_", "exponential_", "geometric_", "cauchy_"),
        *("log_normal_", "randperm", "multinomial", "poisson", "normal", "bernoulli", "binomial"),
    )
)


def not_built(op: torch._ops.OpOverload) -> None:
    """Note that an operator has a kernel, which is not built and must not be."""
    unbuilt.add(op.name())


def printing() -> bool:
    """Tell whether torch is writing a tensor as text: it looks at a few numbers, for which nothing is built."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == torch_private.PRINTING:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def register() -> None:
    """Register the fallback, and the copies that go through it."""
    library = torch.library.Library("_", "IMPL")
    library.fallback(run_on_cpu, "PrivateUse1")
    own = torch.library.Library("aten", "IMPL")
    for key in ("Conjugate", "Negative"):  # what they would make of a copy is a copy
        own.impl("_copy_from", torch.library.fallthrough_kernel, key)
    own.impl("_copy_from_and_resize", _copy_from_and_resize, "PrivateUse1")
    own.impl("record_stream", lambda self, s: None, "PrivateUse1")
    own.impl("_has_compatible_shallow_copy_type", _may_replace, "PrivateUse1")
    _libraries.extend((library, own))


def _may_replace(self: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether `self.data = other` is allowed.

    Without it Module.to() makes new Parameters: tied weights come apart, optimizers made before hold the old ones.
    """
    return self.layout == other.layout == torch.strided


def _copy_from(self: torch.Tensor, dst: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if self.numel() or dst.numel():
        to = _plain(dst) if dst.device.type == native.NAME else dst
        to.copy_(_plain(self) if self.device.type == native.NAME else self)
    return dst


def _plain(t: torch.Tensor) -> torch.Tensor:
    """Return what stands for a tensor on the CPU, conjugated and negated as it is."""
    cpu = native.sharing()[0](t)
    if t.is_conj():
        cpu = torch_private.with_conj(cpu)
    return torch_private.with_neg(cpu) if t.is_neg() else cpu


def _copy_from_and_resize(self: torch.Tensor, dst: torch.Tensor) -> torch.Tensor:
    if dst.shape != self.shape:
        dst.resize_(self.shape)
    return _copy_from(self, dst)


def run_slow(op: torch._ops.OpOverload, values: list[Any]) -> Any:
    """Run a call that a native kernel did not take."""
    if op.name() == "aten::_copy_from":
        return _copy_from(*values)
    named = {a.name: v for a, v in zip(op._schema.arguments, values, strict=False)}
    positional = [a.name for a in op._schema.arguments if not a.kwarg_only]
    args = [named.pop(n) for n in positional]
    return run_on_cpu(op, *args, **named)


class _Plan:
    """What a schema says that a fallback has to know.

    Attributes:
        written: positions of written arguments.
        names: the arguments' names.
        generator: the position of a generator, or -1.
        device: the position of a device, or -1.
        seeded: it draws random numbers.
        mixed: its tensors may be on several devices.
    """

    def __init__(self, op: torch._ops.OpOverload) -> None:
        arguments = op._schema.arguments
        self.name = op.name().partition(".")[0]
        self.label = op.name()
        self.names = [a.name for a in arguments]
        self.written = {a.name for a in arguments if a.alias_info and a.alias_info.is_write}
        self.generator = "generator" in self.names
        self.seeded = torch.Tag.nondeterministic_seeded in op.tags
        self.mixed = self.name in _MIXED or not op.name().startswith("aten::")


class _Call:
    """One call's tensors: those of the device, and what stands for them on the CPU."""

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        self.index: int | None = None
        self.of: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by id: of the device, CPU
        self.back: dict[int, torch.Tensor] = {}  # by id of the CPU's
        self.storages: dict[int, torch.Tensor] = {}  # by address
        self.strangers: list[torch.Tensor] = []
        self.generator: torch.Generator | None = None

    def to_cpu(self, value: Any) -> Any:
        """Return an argument as the CPU's kernel takes it."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self.to_cpu(v) for v in value)
        if isinstance(value, torch.device) and value.type == native.NAME:
            self.index = value.index if value.index is not None else self.index
            if self.index is None:
                self.index = torch.accelerator.current_device_index()
            return torch.device("cpu")
        if isinstance(value, torch.Generator):
            self.generator = value
            return None
        return value

    def _tensor(self, t: torch.Tensor) -> torch.Tensor:
        if t.device.type != native.NAME:
            if t.dim() > 0:
                self.strangers.append(t)
            return t
        if self.index is None:
            self.index = t.device.index
        elif self.index != t.device.index and not self.plan.mixed:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, "
                f"mojo:{self.index} and {t.device}! (when running {self.plan.label})"
            )
        found = self.of.get(id(t))
        if found is not None:
            return found[1]
        cpu = _plain(t)
        self.of[id(t)] = (t, cpu)
        self.back[id(cpu)] = t
        address = cpu.untyped_storage().data_ptr()
        if address:
            self.storages[address] = t
        return cpu

    def check_devices(self) -> None:
        """Refuse tensors of the CPU among those of the device, as torch does."""
        if self.strangers and self.of and not self.plan.mixed:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, "
                f"mojo:{self.index} and {self.strangers[0].device}! (when running {self.plan.label})"
            )

    def to_mojo(self, value: Any) -> Any:
        """Return a result as the caller takes it."""
        if isinstance(value, torch.Tensor):
            return self._result(value)
        if isinstance(value, (list, tuple)):
            made = [self.to_mojo(v) for v in value]
            return made if isinstance(value, list) else tuple(made)
        return value

    def _result(self, t: torch.Tensor) -> torch.Tensor:
        if id(t) in self.back:
            return self.back[id(t)]
        if t.device.type != "cpu":
            return t
        if t.layout != torch.strided or t.is_quantized:
            kind = "quantized" if t.is_quantized else str(t.layout)
            raise UnsupportedOpError(
                f"{self.plan.label} makes a {kind} tensor, and the mojo device has strided ones only.\n"
                "Move the argument to the CPU first: x.cpu()."
            )
        if t._is_zerotensor():  # zeros without memory
            return torch.zeros(t.shape, dtype=t.dtype, device=f"{native.NAME}:{self.index or 0}")
        base = self.storages.get(t.untyped_storage().data_ptr())
        if base is not None and t.numel():
            made = torch.empty(0, dtype=t.dtype, device=base.device)
            return made.set_(base.untyped_storage(), t.storage_offset(), t.shape, t.stride())
        if t.is_conj() or t.is_neg():
            t = t.resolve_conj().resolve_neg()
        return native.sharing()[1](t.detach() if t.requires_grad else t, self.index or 0)

    def follow_sizes(self) -> None:
        """Give written tensors the sizes that the CPU's kernel gave what stands for them."""
        for original, cpu in self.of.values():
            at = cpu.untyped_storage().data_ptr()
            if at != original.untyped_storage().data_ptr():  # it had no memory to share
                original.resize_(cpu.shape)
                if original.stride() != cpu.stride():
                    original.set_(original.untyped_storage(), 0, cpu.shape, cpu.stride())
                _copy_from(cpu, original)
            elif cpu.shape != original.shape or cpu.stride() != original.stride():
                original.set_(
                    original.untyped_storage(), cpu.storage_offset(), cpu.shape, cpu.stride()
                )


def _say(plan: _Plan) -> None:
    if plan.name in _SILENT or printing():
        return
    if plan.name in _DRAWN:
        drew[plan.label] = drew.get(plan.label, 0) + 1
        return
    ran[plan.label] = ran.get(plan.label, 0) + 1
    if config.fallback() == "error":
        raise UnsupportedOpError(
            f"{plan.label} has no Mojo kernel for these arguments on the mojo device, "
            "and TORCH_MOJO_FALLBACK=error forbids to run it on the CPU.\n"
            "Unset TORCH_MOJO_FALLBACK, or move the tensors: x.cpu()."
        )
    if plan.label not in _warned:
        _warned.add(plan.label)
        warnings.warn(
            f"{plan.label} has no Mojo kernel for these arguments on the mojo device; the CPU runs it.",
            UserWarning,
            stacklevel=4,
        )


@contextlib.contextmanager
def _numbers(call: _Call) -> Iterator[torch.Generator]:
    """Let the CPU draw the numbers that the device's generator has next."""
    generator = call.generator
    if generator is None:
        from torch_mojo.device import module

        generator = module.default_generator(call.index or 0)
    if generator.device.type != native.NAME:
        raise RuntimeError(
            f"Expected a 'mojo' device type for generator but found '{generator.device.type}'"
        )
    with _random:
        twin = torch.default_generator
        before = twin.get_state()
        twin.set_state(generator.get_state())
        try:
            yield twin
        finally:
            generator.set_state(twin.get_state())
            twin.set_state(before)


def run_on_cpu(op: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Run an operator on the CPU, on the memory of the device's tensors."""
    plan = _plans.get(op)
    if plan is None:
        plan = _plans[op] = _Plan(op)
    _say(plan)
    call = _Call(plan)
    on_cpu = [call.to_cpu(a) for a in args]
    named = {k: call.to_cpu(v) for k, v in kwargs.items()}
    call.check_devices()
    if plan.generator or plan.seeded:
        with _numbers(call) as generator:
            if plan.generator:
                at = plan.names.index("generator")
                if at < len(on_cpu):
                    on_cpu[at] = generator
                else:
                    named["generator"] = generator
            result = _run(op, plan, call, on_cpu, named)
    else:
        result = _run(op, plan, call, on_cpu, named)
    return call.to_mojo(result)


def _run(
    op: torch._ops.OpOverload, plan: _Plan, call: _Call, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    if not plan.written:
        return op(*args, **kwargs)
    try:
        result = op(*args, **kwargs)
    except RuntimeError as e:
        if "not resizable" not in str(e):
            raise
        return _run_resized(op, plan, call, args, kwargs)
    call.follow_sizes()
    return result


def _run_resized(
    op: torch._ops.OpOverload, plan: _Plan, call: _Call, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Run an operator whose outputs have to grow: on copies, which the outputs then follow."""
    copies: dict[int, torch.Tensor] = {}

    def copied(name: str, value: Any) -> Any:
        if name not in plan.written or not isinstance(value, torch.Tensor):
            return value
        if id(value) not in call.back:
            return value
        return copies.setdefault(id(value), value.clone())

    args = [copied(n, a) for n, a in zip(plan.names, args, strict=False)]
    kwargs = {n: copied(n, a) for n, a in kwargs.items()}
    result = op(*args, **kwargs)
    for key, made in copies.items():
        original = call.back[key]
        original.resize_(made.shape)
        original.copy_(made)
        call.back[id(made)] = original
    call.back_keep = copies  # type: ignore[attr-defined]  # their ids are in use until the results are mapped
    return result
