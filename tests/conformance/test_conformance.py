"""torch's operator database through `backend="max"`: results and gradients are eager torch's."""

import graphs
import pytest
import report
import samples
import torch
from gaps import GAPS
from run import outcomes_of

# One graph of these runs in the quick suite: a few of each family, and of each dtype.
SLICE = {
    (torch.float32, False): "add mean nn.functional.layer_norm sort index_put logsumexp "
    "torch.ops.aten._safe_softmax.default max.reduction_with_dim",
    (torch.float32, True): "mul nn.functional.gelu index_select",
    (torch.bfloat16, False): "div.no_rounding_mode softmax",
    (torch.float16, True): "sigmoid",
    (torch.int64, False): "floor_divide sum gather",
    (torch.bool, False): "logical_xor any where",
}
PARTS = 16  # of the database, each one graph


def wrong(outcomes: list[graphs.Outcome]) -> dict[str, str]:
    """Return what is not right, by operator."""
    return {o.probe.op: o.state for o in outcomes if o.state.startswith(("wrong", "failed"))}


def test_a_slice_of_the_database() -> None:
    outcomes: list[graphs.Outcome] = []
    ops = {samples.title(op): op for op in samples.database()}
    for (dtype, gradient), names in SLICE.items():
        for name in names.split():
            outcomes += [
                graphs.trace(p) for p in samples.probes(ops[name], dtype, gradient, most=1)
            ]
    graphs.plan(outcomes)
    kept = {(o.probe.op, r) for o in outcomes for r in o.kept.values()}
    assert not {(op, reason) for op, reason in kept if not reason.startswith(report.BY_DESIGN)}
    graphs.run_together(outcomes)
    assert not wrong(outcomes)
    assert len(outcomes) == sum(len(names.split()) for names in SLICE.values())


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", report.KINDS)
def test_the_database(kind: str, part: int) -> None:
    name, _, what = kind.partition("-")
    dtype, gradient = getattr(torch, name), what == "gradient"
    ops = [op for op in samples.database() if samples.supports(op, dtype, gradient)][part::PARTS]
    found = wrong(outcomes_of(ops, dtype, gradient, most=2))
    known = {samples.title(op) for op in ops if (kind, samples.title(op)) in GAPS}
    assert not {name: state for name, state in found.items() if name not in known}
    assert known <= set(found), "remove these from gaps.py: they are right now"


def test_a_wrong_value_is_seen() -> None:
    """The comparison of this folder can fail."""
    one = torch.tensor([1.0, float("nan")])
    assert graphs.judge([one], [one]) == "right"
    for other in (one + 1e-3, one.double(), one[:1], torch.tensor([float("nan"), 1.0])):
        assert graphs.judge([other], [one]).startswith("wrong: [0]")


def test_the_document_is_made_of_the_results() -> None:
    assert report.DOCUMENT.read_text() == report.text()


def test_every_core_operator_has_a_way() -> None:
    assert [op for op, way in report.core() if way == "eager torch"] == []
