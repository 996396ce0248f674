"""`torch.compile(backend="max")`: from Dynamo's graph to a callable."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from torch_mojo import config
from torch_mojo.errors import MojoCompileError, UnsupportedOpError

if TYPE_CHECKING:
    from torch import fx

    from .debug import Dump
    from .importer import Imported
    from .partition import Island, Plan

MODES = ("default", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

_warned: set[str] = set()


@dataclass(frozen=True)
class Options:
    """What `torch.compile(backend="max", options={...})` takes.

    Attributes:
        fallback: "eager" runs what MAX cannot in eager torch; "error" refuses it.
        freeze: bake parameters and buffers into the graph, where no gradient is needed. Later
        changes to them
            are not seen.
    """

    fallback: str = "eager"
    freeze: bool = False

    @classmethod
    def parse(cls, options: dict[str, Any] | None, mode: str | None) -> Options:
        """Check the user's options.

        Raises:
            ValueError: an unknown option, mode or value.
            TypeError: a value of the wrong type.
        """
        if mode not in (None, *MODES):
            raise ValueError(
                f"torch.compile(backend='max') has no mode {mode!r}.\n"
                f"It takes torch's own, {', '.join(map(repr, MODES))}, and compiles the same for all of them."
            )
        given = dict(options or {})
        unknown = sorted(set(given) - {"fallback", "freeze"}, key=str)
        if unknown:
            near = difflib.get_close_matches(str(unknown[0]), ("fallback", "freeze", "freezing"), 1)
            raise ValueError(
                f"torch.compile(backend='max') has no option {', '.join(map(repr, unknown))}.\n"
                + (f"Did you mean {near[0].replace('freezing', 'freeze')!r}? " if near else "")
                + "It takes 'fallback' ('eager' or 'error') and 'freeze' (True or False); Inductor's "
                "options have no meaning here."
            )
        fallback = given.get("fallback", config.fallback())
        if fallback not in ("eager", "error"):
            raise ValueError(f"options['fallback'] is {fallback!r}.\nIt takes 'eager' or 'error'.")
        freeze = given.get("freeze", False)
        if not isinstance(freeze, bool):
            raise TypeError(
                f"options['freeze'] is {freeze!r} of type {type(freeze).__name__}.\n"
                "It takes True or False."
            )
        return cls(fallback, freeze)


def max_backend(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of Dynamo's with MAX.

    Args:
        gm: what Dynamo traced.
        example_inputs: its inputs.
        options: see `Options`.
        mode: one of torch's names, which change nothing here.

    Raises:
        ValueError: an unknown option or mode.
        UnsupportedOpError: under fallback="error", an operator that MAX cannot run.
        MojoCompileError: under fallback="error", a graph that MAX does not compile.
    """
    return _Compilation(Options.parse(options, mode), example_inputs).run(gm, example_inputs)


@dataclass
class _Compilation:
    """One call of the backend.

    Attributes:
        record: called with the plan of each graph instead of compiling it, for explain().
        mutated: inputs that the graph writes to.
        effects: it writes to something or draws random numbers.
        dump: what TORCH_MOJO_DEBUG wrote of the forward graph.
    """

    options: Options
    example_inputs: Sequence[Any]
    record: Callable[[Plan], None] | None = None
    mutated: set[int] = field(default_factory=set)
    effects: bool = False
    dump: Dump | None = None

    def run(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        from functorch.compile import min_cut_rematerialization_partition

        from ._private import aot_autograd
        from .decompositions import decompositions

        compiled = aot_autograd(
            fw_compiler=self._compile,
            bw_compiler=self._compile,
            inference_compiler=self._compile_inference,
            decompositions=decompositions(),
            partition_fn=min_cut_rematerialization_partition,
            keep_inference_input_mutations=True,
        )(gm, example_inputs)
        if self.mutated:
            return _guard_overlap(compiled, gm, self.mutated)
        if self.dump is not None and not self.effects:
            from .whole import checked

            return checked(compiled, gm, self.dump.say)
        return compiled

    def _compile_inference(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return self._compile(gm, inputs, inference=True)

    def _compile(
        self, gm: fx.GraphModule, inputs: Sequence[Any], inference: bool = False
    ) -> Callable[..., Any]:
        from ._private import TracingContext, real_mode
        from .boxed import boxed
        from .session import lock

        del inputs
        context = TracingContext.try_get()
        meta = context.fw_metadata if context is not None else None
        forward = not any(
            n.name.startswith("tangents") for n in gm.graph.nodes if n.op == "placeholder"
        )
        static: set[int] = set()
        if meta is not None and forward:
            static = set(meta.static_input_indices)
            written = {i for i, info in enumerate(meta.input_info) if info.mutates_data}
            if written and len(meta.input_info) != len(self.example_inputs):
                # AOTAutograd merged inputs that overlap; their numbers are its own now.
                written = set(range(len(self.example_inputs)))
            self.mutated |= written
        frozen: dict[int, torch.Tensor] = {}
        if self.options.freeze and inference:
            frozen = {i: t for i in static if isinstance(t := self._example(i), torch.Tensor)}
        with lock, real_mode():
            kind = "inference" if inference else "forward" if forward else "backward"
            outer = self._lower(gm, static, frozen, kind)
        return boxed(outer)

    def _example(self, index: int) -> Any:
        return self.example_inputs[index] if index < len(self.example_inputs) else None

    def _lower(
        self, gm: fx.GraphModule, static: set[int], frozen: dict[int, torch.Tensor], kind: str
    ) -> fx.GraphModule:
        from .importer import ImportFailed, import_graph
        from .partition import assemble, make_plan
        from .randoms import from_sizes
        from .sizes import from_inputs
        from .views import separate_output_views

        holders = [n for n in gm.graph.nodes if n.op == "placeholder"]
        refused: dict[fx.Node, str] = {}
        separate_output_views(gm)
        from_inputs(gm)
        from_sizes(gm)
        while True:
            plan = make_plan(gm, refused)
            imported: dict[int, Imported] = {}
            try:
                for level, island in plan.islands.items():
                    mine = {
                        i: frozen[holders.index(n)]
                        for i, n in enumerate(island.inputs)
                        if n in holders and holders.index(n) in frozen
                    }
                    imported[level] = import_graph(island.gm, mine)
                break
            except ImportFailed as e:
                by_name = {n.name: n for n in gm.graph.nodes}
                refused[by_name[e.node.name]] = e.reason
        if self.record is not None:
            self.record(plan)
            return gm
        self._report(plan.missing())
        dump = self._dump(plan, imported, kind)

        def call(island: Island, level: int) -> Callable[..., Any]:
            outer = {i: holders.index(n) for i, n in enumerate(island.inputs) if n in holders}
            run = self._executable(
                island,
                imported[level],
                static={i for i, j in outer.items() if j in static},
                # what a backward takes was promised by operators, not checked by guards
                guarded=set(outer) if kind != "backward" else set(),
            )
            if dump is not None:
                run = dump.watch(island, level, run)
            run.__name__ = f"max_island_{level // 2}"  # FX prints it
            return run

        return assemble(plan, call)

    def _dump(self, plan: Plan, imported: dict[int, Imported], kind: str) -> Dump | None:
        if not config.debug():
            return None
        from .debug import Dump
        from .partition import has_effect

        dump = Dump(plan, imported, kind)
        if kind != "backward":
            self.dump = dump
            self.effects = any(
                has_effect(n) for n in plan.gm.graph.nodes if n.op == "call_function"
            )
        return dump

    def _executable(
        self, island: Island, imported: Imported, static: set[int], guarded: set[int]
    ) -> Callable[..., Any]:
        from .alias import may_share, zero_able
        from .runtime import Executable
        from .session import compiled

        try:
            execute = compiled(imported.graph, imported.nodes)
        except Exception as e:
            ops = ", ".join(sorted({str(n.target) for n in island.nodes}))
            message = f"MAX does not compile a graph of {imported.nodes} nodes ({ops}): {e}"
            if self.options.fallback == "error":
                raise MojoCompileError(
                    f"{message}\nLeave out fallback='error' to run it in eager torch.",
                    str(e.__cause__),
                ) from e
            warnings.warn(f"{message}\nIt runs in eager torch.", stacklevel=2)
            count = len(island.inputs)
            return lambda *args: island.gm.forward(*args[:count])
        return Executable(
            imported,
            execute,
            island.gm,
            static=static,
            guarded=guarded,
            sizes=list(island.symbols),
            positive=zero_able(island.gm),
            risky=may_share(island.gm),
        )

    def _report(self, missing: dict[str, str]) -> None:
        if not missing:
            return
        listed = "\n".join(f"  {op}: {why}" for op, why in sorted(missing.items()))
        if self.options.fallback == "error":
            raise UnsupportedOpError(
                f"torch.compile(backend='max') cannot run these in a MAX graph:\n{listed}\n"
                "Register a lowering with torch_mojo.lowering(op), or leave out fallback='error'."
            )
        new = {op: why for op, why in missing.items() if op not in _warned}
        if new:
            _warned.update(new)
            listed = "\n".join(f"  {op}: {why}" for op, why in sorted(new.items()))
            warnings.warn(
                f"torch.compile(backend='max') runs these operators in eager torch:\n{listed}\n"
                "torch_mojo.explain(f, *args) shows how a function is split.",
                stacklevel=2,
            )


def _guard_overlap(
    compiled: Callable[..., Any], gm: fx.GraphModule, mutated: set[int]
) -> Callable[..., Any]:
    """Run in eager torch when an input that is written overlaps another; the graph assumes none."""

    def run(*args: Any) -> Any:
        return gm(*args) if _overlap(args, mutated) else compiled(*args)

    return torch.compiler.disable(run, reason="a compiled graph")


def _overlap(args: Sequence[Any], written: set[int]) -> bool:
    """Return whether a tensor that is written shares memory with another."""
    spans = sorted(
        (*_extent(t), i in written)
        for i, t in enumerate(args)
        if isinstance(t, torch.Tensor) and t.numel()
    )
    reach = reach_of_written = 0
    for start, end, is_written in spans:
        if start < (reach if is_written else reach_of_written):
            return True
        reach = max(reach, end)
        if is_written:
            reach_of_written = max(reach_of_written, end)
    return False


def _extent(t: torch.Tensor) -> tuple[int, int]:
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return t.data_ptr(), t.data_ptr() + (last + 1) * t.element_size()
