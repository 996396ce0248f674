"""The object with the tables that kernels/torch/built.mojo describes: schemas, keys, plans, addresses."""

from collections.abc import Sequence
from typing import Any

from torch_mojo.ahead.records import Operator, Record
from torch_mojo.dispatch import libtorch
from torch_mojo.dispatch.keys import STRIDED, key_words
from torch_mojo.dispatch.shipped import built_text
from torch_mojo.dtypes import TO_MOJO, short
from torch_mojo.jit import manifest
from torch_mojo.jit.elf import Symbol, Tables, Word
from torch_mojo.jit.manifest import CPU_LEVELS
from torch_mojo.op import MojoOp

# What a library without Mojo's runtime does not need to do: kernels/torch/standalone.mojo has the rest.
NOTHING = (
    "KGEN_CompilerRT_GetStackTrace",
    "KGEN_CompilerRT_TracyIsEnabled",
    "KGEN_CompilerRT_TracyZoneBegin",
    "KGEN_CompilerRT_TracyZoneEnd",
    "KGEN_CompilerRT_RangeIsRecording",
    "KGEN_CompilerRT_RangeBegin",
    "KGEN_CompilerRT_RangeEnd",
    "KGEN_CompilerRT_ExternalProfilerAnnotationPush",
    "KGEN_CompilerRT_ExternalProfilerAnnotationPop",
    "AsyncRT_DeviceContext_retain",
    "AsyncRT_DeviceContext_release",
    "AsyncRT_DeviceContext_strfree",
    "AsyncRT_DeviceContext_synchronize",
    "AsyncRT_DeviceContext_id",
)


def tables_object(operators: Sequence[Operator], about: dict[str, Any], standalone: bool) -> bytes:
    """Return the object file with what kernels/torch/built.mojo describes."""
    tables = Tables()
    tables.blob(manifest.encode(about))
    state: list[Word] = [0] * 16
    records: list[Word] = []
    for i, operator in enumerate(operators):
        op = operator.op
        schema = op.arguments
        kinds = tables.words([*schema.kinds(op.in_key), 0])
        slot: list[Word] = [len(schema.args), kinds, 0, schema.returns, int(schema.dynamic)]
        state += [*slot, schema.need, *[0] * 10]
        tables.numbered(f"tm_kernel_{i}", i, "tm_kernel")
        tables.numbered(f"tm_gate_{i}", i, "tm_gate")
        namespace, name = op.qualname.split("::")
        built: list[Word] = []
        for record in operator.records:
            built += _built(tables, op, record)
        names = tables.words([tables.text(a.name) for a in schema.args] or [0])
        takes_tensors = any(a.base == "Tensor" for a in schema.args)
        records += [
            tables.text(namespace),
            tables.text(name),
            tables.text(schema.text),
            Symbol(f"tm_kernel_{i}"),
            int(takes_tensors),
            tables.words(built),
            len(operator.records),
            tables.text(built_text(about["operators"][i])),
            names,
            int(schema.mutable),
            Symbol(f"tm_gate_{i}"),
            *[0] * 5,
        ]
    dtypes: list[Word] = []
    for dtype in TO_MOJO:
        dtypes += [libtorch.dtype_code(dtype), tables.text(short(dtype))]
    header: list[Word] = [
        len(operators),
        tables.words(state),
        tables.words(records),
        tables.words([0] * 8),
        tables.words([0] * 64),
        tables.words([*dtypes, -1]),
        tables.words([tables.text(level) for level in CPU_LEVELS]),
        0,
    ]
    tables.address_of("tm_data", tables.words(header))
    tables.processor()
    if standalone:
        tables.nothing(NOTHING)
        tables.same("KGEN_CompilerRT_fprintf", "fprintf")
    return tables.object()


def _built(tables: Tables, op: MojoOp, record: Record) -> list[Word]:
    """Return the words of one record."""
    case = record.case
    words = key_words(op.arguments, case.keys, case.values, op.in_key)
    outs = [k.word for k in case.outs]
    if op.broadcasts:  # one text serves all layouts
        words = [(w & ~(15 << 16) | STRIDED << 16 if t else w, t, m) for w, t, m in words]
        outs = [w & ~(15 << 16) | STRIDED << 16 for w in outs]
    plan: Word = 0
    places: Word = 0
    if case.plan is not None:
        content = list(case.plan.words)
        for place in case.plan.places:
            content[place : place + 2] = [int(record.target.gpu), 0]
        plan = tables.words(content)
        places = tables.words([len(content), *(p + 1 for p in case.plan.places), -1])
    return [
        record.target.level,
        Symbol(record.function),
        plan,
        int(record.fenced),
        record.ranks,
        len(words),
        tables.words([w for w, _, _ in words] or [0]),
        tables.words([int(t) + int(m) for _, t, m in words] or [0]),
        tables.words(outs or [0]),
        int(record.target.gpu),
        int(record.context),
        int(record.target.exact),
        places,
        int(record.any_layout),
        tables.text(record.target.name),
        0,
    ]
