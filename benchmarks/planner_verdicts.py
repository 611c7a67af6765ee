"""Checks the results of `benchmarks/planner.py` against what is promised of the planner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

_PLANNING_S = 60.0
_FRAGMENTATION = 0.02
_PREDICTION_ERROR = 0.15
_LARGE_GAP = 0.05


def broken_promises(result: Mapping[str, Sequence[Row]]) -> list[str]:
    """A sentence for every row that does not hold what is promised; a section that was not run promises nothing."""
    return [
        sentence for section, judge in _JUDGES.items() for row in result.get(section, ()) for sentence in judge(row)
    ]


def _judge_model(row: Row) -> Iterator[str]:
    name = f"{row['model']} at {row['share']:.0%}, {row['way']}"
    if row["planning_s"] > _PLANNING_S:
        yield f"{name}: planned in {row['planning_s']:.0f} s"
    if not row["feasible"]:
        return
    if row["peak_over_budget"] > 1 or row["measured_over_budget"] > 1:
        yield f"{name}: more memory than the budget"
    if row["fragmentation"] > _FRAGMENTATION:
        yield f"{name}: fragmentation of {row['fragmentation']:.1%}"
    if abs(row["prediction_error"]) > _PREDICTION_ERROR:
        yield f"{name}: {row['slowdown_predicted']:.3f}x predicted, {row['slowdown_measured']:.3f}x measured"


def _judge_graph(row: Row) -> Iterator[str]:
    if row["seconds"] > _PLANNING_S:
        yield f"{row['graph']} at {row['share']:.0%}: planned in {row['seconds']:.0f} s"
    if not row["feasible"] or row["gap"] is None or row["gap"] > _LARGE_GAP:
        yield f"{row['graph']} at {row['share']:.0%}: a gap of {row['gap']}"


def _judge_published(row: Row) -> Iterator[str]:
    name = f"{row['instance']}, case {row['case']}"
    if row["verdict"] != "ok":
        yield f"{name}: {row['verdict']}"
    if row["seconds"] > _PLANNING_S:
        yield f"{name}: {row['seconds']:.0f} s"


def _judge_reference(row: Row) -> Iterator[str]:
    if row["differing"]:
        yield f"{len(row['differing'])} of {row['instances']} answers differ from brute force: seeds {row['differing']}"


def _judge_paging(row: Row) -> Iterator[str]:
    if row["ratio"] <= 1 or not row["bit-identical"]:
        yield f"{row['model']}: paging beside compute is not faster, or not the same"


_JUDGES: Mapping[str, Callable[[Row], Iterator[str]]] = {
    "models": _judge_model,
    "graphs": _judge_graph,
    "published": _judge_published,
    "two_devices": _judge_reference,
    "brute_force": _judge_reference,
    "paging": _judge_paging,
}
