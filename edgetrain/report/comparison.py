"""Runs side by side: what they used, what they reached, and in what their recipes differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgetrain.report.run_record import RunRecord
from edgetrain.report.sections.numbers import metric_value, words
from edgetrain.report.sections.provenance import flat
from edgetrain.units import show_bytes, show_joules, show_seconds

FORMAT = "edgetrain.comparison/1"
_UNSET = "not set"
_NOT_COMPARED = ("format", "expect")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRun:
    """One run's numbers. `None` means not limited, or not measured."""

    run: str
    target: str
    budget_bytes: int | None
    planned_peak_bytes: int
    measured_peak_bytes: int
    used_bytes: int  # what is held against the budget: the whole process, where that is known
    planned_bytes: int  # what was planned of these
    is_within_budget: bool
    seconds_per_step: float | None
    steps: int
    epochs: float
    joules: float | None  # measured where there is a sensor, else modelled
    best_epoch: int | None
    part: str  # of the data, on which the scores were measured
    scores: Mapping[str, float]
    parameters_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunComparison:
    """`differences` has a value for each run under each key of the recipe in which they are not all the same."""

    runs: tuple[ComparedRun, ...]
    differences: Mapping[str, tuple[Any, ...]]

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    def to_text(self) -> str:
        """A table with a column for each run."""
        rows = [("", *(run.run for run in self.runs)), *table(self)]
        rows += [(name, *values) for name, values in difference_rows(self)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join(lines) + "\n"


def compare_runs(records: Sequence[RunRecord]) -> RunComparison:
    return RunComparison(runs=tuple(map(_compared, records)), differences=_differences(records))


def _compared(record: RunRecord) -> ComparedRun:
    report, best = record.report, record.best
    energy = report.get("energy") or {}
    measured = energy.get("measured_j")
    return ComparedRun(
        run=str(record.folder),
        target=str(report.get("target")),
        budget_bytes=report.get("budget_bytes"),
        planned_peak_bytes=report["planned_peak_bytes"],
        measured_peak_bytes=report["measured_peak_bytes"],
        used_bytes=record.used_bytes,
        planned_bytes=record.planned_bytes,
        is_within_budget=bool(report.get("is_within_budget")),
        seconds_per_step=report.get("seconds_per_step"),
        steps=int(report["steps"]),
        epochs=float(report["epochs"]),
        joules=measured if measured is not None else energy.get("modelled_j"),
        best_epoch=best.epoch if best is not None else None,
        part=record.part,
        scores=dict(record.scores),
        parameters_sha256=str(report.get("parameters_sha256")),
    )


def _differences(records: Sequence[RunRecord]) -> Mapping[str, tuple[Any, ...]]:
    recipes = [flat(record.recipe) for record in records]
    names = dict.fromkeys(name for recipe in recipes for name in recipe if name not in _NOT_COMPARED)
    values = {name: tuple(recipe.get(name) for recipe in recipes) for name in names}
    return {name: found for name, found in values.items() if any(value != found[0] for value in found)}


def table(comparison: RunComparison) -> list[tuple[str, ...]]:
    """What was measured: a row for each quantity, a text for each run."""
    runs = comparison.runs
    scores = dict.fromkeys(name for run in runs for name in run.scores)
    rows: list[tuple[str, ...]] = [
        ("budget", *(show_bytes(run.budget_bytes) if run.budget_bytes is not None else "none" for run in runs)),
        ("memory, measured", *(_memory(run) for run in runs)),
        ("memory, planned", *(show_bytes(run.planned_bytes) for run in runs)),
        ("time of a step", *(show_seconds(r.seconds_per_step) if r.seconds_per_step else "no step" for r in runs)),
        ("steps", *(f"{run.steps:,}" for run in runs)),
        ("energy", *(show_joules(run.joules) if run.joules is not None else "unknown" for run in runs)),
        ("epoch kept", *(str(run.best_epoch) if run.best_epoch is not None else "last" for run in runs)),
    ]
    for name in scores:
        label = " or ".join(dict.fromkeys(run.part for run in runs))
        found = (metric_value(name, run.scores[name]) if name in run.scores else "" for run in runs)
        rows.append((f"{label} {words(name)}", *found))
    targets = [run.target for run in runs]
    if len(set(targets)) > 1:
        rows.append(("target", *targets))
    rows.append(("parameters, SHA-256", *(run.parameters_sha256[:12] for run in runs)))
    return rows


def difference_rows(comparison: RunComparison) -> list[tuple[str, tuple[str, ...]]]:
    return [(name, tuple(map(_text, values))) for name, values in comparison.differences.items()]


def _memory(run: ComparedRun) -> str:
    kept = "" if run.budget_bytes is None else ", kept" if run.is_within_budget else ", EXCEEDED"
    return show_bytes(run.used_bytes) + kept


def _text(value: Any) -> str:
    if value is None or value == "" or value == []:
        return _UNSET
    return str(value).lower() if isinstance(value, bool) else str(value)
