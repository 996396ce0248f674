"""The router's Python side: it builds and opens the library, fills slots and tables, and answers misses."""

import ctypes
import functools
import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch

from torch_mojo import torch_private
from torch_mojo.dispatch import libtorch, shipped
from torch_mojo.dispatch.pending import keep
from torch_mojo.dispatch.schema import Schema
from torch_mojo.errors import KernelError, ToolchainError
from torch_mojo.jit import manifest, toolchain
from torch_mojo.jit.build import Job, build, own_fingerprint
from torch_mojo.jit.cache import cache

# Word numbers of kernels/torch/router.mojo.
_SLOT_WORDS, _STATE_WORDS = 16, 16
_SLOT_NARGS, _SLOT_KINDS, _SLOT_TABLE, _SLOT_RETURNS, _SLOT_FLAGS, _SLOT_NEED = range(6)
_ENTRY_KEY = 9
_HAS_LISTS = 1
PREBUILT_CPU = "x86-64-v3"  # of the router in torch_mojo's wheel

_MISS = ctypes.CFUNCTYPE(
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_void_p,
)
_OUTPUTS = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_AUTOGRAD = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_KERNEL_FAILED = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)

Words = ctypes.Array[ctypes.c_int64]


class Specialized(Protocol):
    """What a slot calls for one key."""

    function: int  # address of the specialization, 0 if there is nothing to run
    plan: list[int] | None
    accelerator: int
    context: int
    device: int
    fenced: bool
    ranks: int


class Operator(Protocol):
    """What the router asks of an operator."""

    qualname: str

    def specialize(self, stack: int, key: Sequence[int], outs: int) -> Specialized: ...

    def make_outputs(self, stack: int, outs: int) -> None: ...

    def autograd(self, stack: int) -> None: ...


class Slot:
    """One operator's place in the router: its C functions and its table of specializations."""

    def __init__(self, router: "Router", index: int) -> None:
        self._router = router
        self.index = index
        self._words = router.slot_words(index)
        self._table: dict[tuple[int, ...], Words] = {}
        self._keep: list[Words] = []
        self._lock = threading.RLock()
        self.operator: Operator | None = None

    @property
    def kernel(self) -> int:
        return self._router.function(self.index, autograd=False)

    @property
    def gate(self) -> int:
        return self._router.function(self.index, autograd=True)

    def assign(self, operator: Operator, schema: Schema, in_key: Callable[[int], bool]) -> None:
        """Give the slot to an operator; what it held before is forgotten."""
        with self._lock:
            self.operator = operator
            self._table = {}
            kinds = (ctypes.c_int64 * max(len(schema.args), 1))(*schema.kinds(in_key))
            self._keep.append(kinds)
            self._words[_SLOT_TABLE] = 0
            self._words[_SLOT_NARGS] = len(schema.args)
            self._words[_SLOT_KINDS] = ctypes.addressof(kinds)
            self._words[_SLOT_RETURNS] = schema.returns
            self._words[_SLOT_FLAGS] = _HAS_LISTS if schema.dynamic else 0
            self._words[_SLOT_NEED] = schema.need

    @property
    def size(self) -> int:
        return len(self._table)

    def miss(self, stack: int, key: tuple[int, ...], hashed: int, outs: int) -> int:
        """Return the address of the entry for a key, made now if it is new."""
        with self._lock:
            entry = self._table.get(key)
            if entry is not None:
                return ctypes.addressof(entry)
        assert self.operator is not None
        operator = self.operator
        found = operator.specialize(stack, key, outs)
        with self._lock:
            if (
                self.operator is not operator
            ):  # replaced meanwhile: serve this call, remember nothing
                entry = self._entry(key, hashed, found)
                return ctypes.addressof(entry)
            if key not in self._table:
                self._table[key] = self._entry(key, hashed, found)
                self._publish()
            return ctypes.addressof(self._table[key])

    def _entry(self, key: tuple[int, ...], hashed: int, found: Specialized) -> Words:
        plan = 0
        if found.plan is not None:
            words = (ctypes.c_int64 * len(found.plan))(*found.plan)
            self._keep.append(words)
            plan = ctypes.addressof(words)
        entry = (ctypes.c_int64 * (_ENTRY_KEY + len(key)))(
            hashed,
            len(key),
            found.function,
            plan,
            found.accelerator,
            found.context,
            found.device,
            int(found.fenced),
            found.ranks,
            *key,
        )
        self._keep.append(entry)
        return entry

    def _publish(self) -> None:
        """Write a new table and switch to it: readers hold no lock."""
        capacity = 8
        while capacity < 2 * len(self._table):
            capacity *= 2
        table = (ctypes.c_int64 * (capacity + 1))()
        table[0] = capacity - 1
        for entry in self._table.values():
            at = entry[0] & (capacity - 1)
            while table[1 + at] != 0:
                at = (at + 1) & (capacity - 1)
            table[1 + at] = ctypes.addressof(entry)
        self._keep.append(table)
        self._words[_SLOT_TABLE] = ctypes.addressof(table)


class Router:
    """The opened router library."""

    def __init__(self, library: Path) -> None:
        toolchain.load_runtime()
        self._library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        for name in (
            "tm_state",
            "tm_slots",
            "tm_most_slots",
            "tm_slot_function",
            "tm_cpu_context",
            "tm_accelerator",
        ):
            getattr(self._library, name).restype = ctypes.c_int64
        self._state = self._library.tm_state()
        self._slots: list[Slot] = []
        self._page: int = self._library.tm_slots()
        self._pages = [self._library]  # each has the functions of so many slots
        self._pages_lock = threading.Lock()
        self._devices: dict[int, int] = {}  # addresses; -1 is the host
        self._lock = threading.Lock()
        self._callbacks = (
            _MISS(self._miss),
            _OUTPUTS(self._outputs),
            _AUTOGRAD(self._autograd),
            _KERNEL_FAILED(self._kernel_failed),
        )
        words = (ctypes.c_int64 * _STATE_WORDS).from_address(self._state)
        for i, word in enumerate(torch_private.gate_words()):
            words[i] = word
        words[5] = libtorch.address("torch_cuda", "aoti_torch_get_current_cuda_stream")
        for i, callback in enumerate(self._callbacks):
            words[6 + i] = ctypes.cast(callback, ctypes.c_void_p).value or 0

    def slot_words(self, index: int) -> Words:
        at = self._state + (_STATE_WORDS + index * _SLOT_WORDS) * 8
        return (ctypes.c_int64 * _SLOT_WORDS).from_address(at)

    def function(self, index: int, autograd: bool) -> int:
        """Return the address of a slot's `kernel` or `gate`."""
        page, at = divmod(index, self._page)
        with self._pages_lock:
            while len(self._pages) <= page:
                job = _page_job(len(self._pages) * self._page, self._page)
                library = ctypes.CDLL(str(build(job, cache()).library))
                library.tm_slot_function.restype = ctypes.c_int64
                self._pages.append(library)
            library = self._pages[page]
        return library.tm_slot_function(ctypes.c_int64(at), ctypes.c_int64(int(autograd)))

    def new_slot(self) -> Slot:
        """Return a slot that no operator has.

        Raises:
            ToolchainError: when all are taken.
        """
        with self._lock:
            index = len(self._slots)
            if index >= self._library.tm_most_slots():
                raise ToolchainError(
                    f"torch_mojo has room for {index} operators in one process, and all are taken.\n"
                    "Declare fewer operators."
                )
            slot = Slot(self, index)
            self._slots.append(slot)
            return slot

    def cpu_context(self) -> int:
        """Return the address of the host's device context."""
        return self._device(-1)

    def accelerator(self, index: int) -> int:
        """Return the address of one CUDA device's context and fences."""
        return self._device(index)

    def _device(self, index: int) -> int:
        with self._lock:
            if index not in self._devices:
                self._devices[index] = (
                    self._make("tm_cpu_context") if index < 0 else self._make_accelerator(index)
                )
            return self._devices[index]

    def _make_accelerator(self, index: int) -> int:
        names = ("cuEventCreate", "cuEventRecord", "cuStreamWaitEvent")
        try:
            library = ctypes.CDLL("libcuda.so.1")
            found = [ctypes.cast(getattr(library, n), ctypes.c_void_p).value or 0 for n in names]
        except (OSError, AttributeError) as e:
            raise ToolchainError(
                f"CUDA's driver library has no event functions: {e}.\nInstall the NVIDIA driver."
            ) from e
        driver = (ctypes.c_int64 * len(names))(*found)
        with torch.cuda.device(index):
            return self._make("tm_accelerator", ctypes.c_int64(index), driver)

    def _make(self, name: str, *args: object) -> int:
        message = ctypes.c_int64()
        found = getattr(self._library, name)(*args, ctypes.byref(message))
        if found == 0:
            text = ctypes.string_at(message.value).decode() if message.value else "unknown error"
            raise ToolchainError(f"The Mojo runtime found no such device: {text}.")
        return found

    def _operator(self, slot: int) -> Operator:
        found = self._slots[slot].operator
        assert found is not None
        return found

    def _miss(
        self, slot: int, stack: int, key: int, count: int, hashed: int, outs: int | None
    ) -> int:
        try:
            words = tuple((ctypes.c_int64 * count).from_address(key))
            return self._slots[slot].miss(stack, words, hashed, outs or 0)
        except BaseException as e:
            return keep(e) | 1

    def _outputs(self, slot: int, stack: int, outs: int) -> int:
        try:
            self._operator(slot).make_outputs(stack, outs)
            return 0
        except BaseException as e:
            return keep(e) | 1

    def _autograd(self, slot: int, stack: int) -> int:
        try:
            self._operator(slot).autograd(stack)
            return 0
        except BaseException as e:
            return keep(e)

    def _kernel_failed(self, slot: int, message: int) -> int:
        text = ctypes.string_at(message).decode(errors="replace")
        _free(message)
        return keep(KernelError(f"[{self._operator(slot).qualname}] {text}"))


def _free(address: int) -> None:
    free = ctypes.CDLL(None).free
    free.restype = None
    free(ctypes.c_void_p(address))


def router_job() -> Job:
    """Return how the router is built."""
    text = (toolchain.kernels() / "torch" / "router.mojo").read_text()
    return Job(
        "the router",
        text,
        libraries=((libtorch.FOLDER, ("torch_cpu", "c10")),),
        extra=(torch.__version__,),
    )


def _page_job(first: int, count: int) -> Job:
    text = (toolchain.kernels() / "torch" / "more_slots.mojo").read_text()
    for name, value in (("FIRST", first), ("SLOTS", count)):
        text = text.replace(f"comptime {name} = 0\n", f"comptime {name} = {value}\n")
    return Job("the router's functions for more operators", text)


def router_fingerprint() -> str:
    """Return a hash of the files of which the router is made."""
    text = router_job().text
    return hashlib.sha256((text + own_fingerprint(text)).encode()).hexdigest()


def _prebuilt() -> Path | None:
    """Return the router that came with torch_mojo's wheel, if it was built of these files and runs here."""
    folder = toolchain.built_folder()
    path = folder / "router.so"
    try:
        about = json.loads((folder / "router.json").read_text())
        damaged = hashlib.sha256(path.read_bytes()).hexdigest() != about["sha256"]
    except (OSError, ValueError, KeyError):
        return None
    tool = toolchain.toolchain if toolchain.is_available() else toolchain.distribution
    fits = about["fingerprint"] == router_fingerprint() and about["mojo"] == tool().version
    level = manifest.CPU_LEVELS.index(PREBUILT_CPU)
    return path if fits and not damaged and not shipped.missing_flags(level) else None


@functools.cache
def _library() -> Path:
    return _prebuilt() or build(router_job(), cache()).library


_router_lock = threading.Lock()
_router: Router | None = None


def router() -> Router:
    """Return the router of this process, built on first use and once per installation."""
    global _router
    if _router is None:
        with _router_lock:
            if _router is None:
                _router = Router(_library())
    return _router
