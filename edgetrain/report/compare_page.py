"""The page that compares runs: a table of what was measured, what differs, and the curves one over the other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from edgetrain.report.charts.lines import Curve, line_chart
from edgetrain.report.comparison import RunComparison, compare_runs, difference_rows, table
from edgetrain.report.html import Child, Markup, breakable, element, joined
from edgetrain.report.page import Page, Section
from edgetrain.report.run_record import RunRecord
from edgetrain.report.sections.numbers import axis_of, metric_value, plural, words
from edgetrain.run.files.plot import thin

_INKS = 6
_MOST_POINTS = 400


def compare_page(records: Sequence[RunRecord]) -> Page:
    comparison = compare_runs(records)
    names = [str(record.folder) for record in records]
    return Page(
        title=f"{plural(len(records), 'run')} compared",
        kind="comparison",
        lead=element("p", *_sentence(records, comparison), class_="verdict"),
        sections=(
            Section(name="measured", title="Measured", body=_table(names, table(comparison))),
            Section(
                name="differences",
                title="What differs in the recipes",
                note="" if comparison.differences else "Nothing: the recipes are the same.",
                body=_table(names, [(n, *v) for n, v in difference_rows(comparison)], marks=True),
            ),
            Section(name="curves", title="Curves", body=_curves(records)),
        ),
    )


def _sentence(records: Sequence[RunRecord], comparison: RunComparison) -> tuple[Child, ...]:
    limited = [run for run in comparison.runs if run.budget_bytes is not None]
    exceeded = [run.run for run in limited if not run.is_within_budget]
    budget = "All runs with a budget kept it. " if limited and not exceeded else ""
    if exceeded:
        budget = f"{', '.join(exceeded)} exceeded the budget. "
    least = min(comparison.runs, key=lambda run: run.used_bytes)
    return (budget, "The least memory was used by ", element("strong", least.run), f". {_bits(comparison)}")


def _bits(comparison: RunComparison) -> str:
    """Which runs came to the same parameters: what budgets promise."""
    names: dict[str, list[str]] = {}
    for run in comparison.runs:
        names.setdefault(run.parameters_sha256, []).append(run.run)
    same = (" and ".join(group) for group in names.values() if len(group) > 1)
    return " ".join(f"{group} have the same trained parameters, bit for bit." for group in same)


def _table(names: Sequence[str], rows: Sequence[tuple[str, ...]], *, marks: bool = False) -> Markup:
    """A column for each run. `marks` points out what is not as in the first."""
    if not rows:
        return Markup()
    head = element("tr", element("th"), *(element("th", _key(i), name, scope="col") for i, name in enumerate(names)))
    body = (
        element(
            "tr",
            element("th", breakable(name), scope="row"),
            *(element("td", v, class_="differs" if marks and v != values[0] else None) for v in values),
        )
        for name, *values in rows
    )
    return element("div", element("table", element("thead", head), element("tbody", *body)), class_="scroll")


def _key(index: int) -> Markup:
    return joined(element("i", class_="key dot inline", style=f"--ink:{_ink(index)}"), " ")


def _ink(index: int) -> str:
    return f"var(--series-{index % _INKS + 1})"


def _curves(records: Sequence[RunRecord]) -> Markup:
    """The training losses over each other, then each validation metric."""
    losses = [
        Curve(name=str(record.folder), points=tuple(thin(record.loss_points, _MOST_POINTS)), ink=_ink(index))
        for index, record in enumerate(records)
    ]
    charts = [line_chart("losses", "Training loss", losses, x_title="step")]
    names = dict.fromkeys(name for record in records for v in record.validations for name in v.metrics)
    for number, name in enumerate(names):
        found = [
            Curve(
                name=str(record.folder),
                points=tuple((float(v.step), v.metrics[name]) for v in record.validations if name in v.metrics),
                ink=_ink(index),
                is_marked=True,
                best=float(record.best.step) if record.best is not None else None,
            )
            for index, record in enumerate(records)
        ]
        title = f"Validation {words(name)}"
        charts.append(
            line_chart(
                f"validation-{number}",
                title,
                found,
                x_title="step",
                show=partial(metric_value, name),
                y_labels=axis_of(name),
            )
        )
    return element("div", *charts, class_="pair")
