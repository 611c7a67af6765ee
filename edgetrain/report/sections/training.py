"""How training went: the loss of every step, the validations, and the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from edgetrain.report.charts.lines import Curve, line_chart
from edgetrain.report.html import Child, Markup, element, joined
from edgetrain.report.page import Section
from edgetrain.report.run_record import Measured, RunRecord
from edgetrain.report.sections.numbers import axis_of, metric_value, words
from edgetrain.run.files.plot import Point

TRAINING, VALIDATION = "var(--series-1)", "var(--series-2)"
_FEW = 12  # validations that are listed without being asked for


def training(run: RunRecord) -> Section:
    best = run.best
    note = "One dot for each epoch's validation."
    if best is not None:
        note += f" The ring marks epoch {best.epoch}, whose parameters were kept."
    return Section(
        name="training",
        title="Training",
        note=note if run.validations else "",
        body=joined(curves(run.loss_points, run.validations, best_step=best.step if best else None), _epochs(run)),
    )


def curves(steps: tuple[Point, ...], validations: Sequence[Measured], *, best_step: int | None) -> Markup:
    """A chart of the loss, from points of step and loss, and one of each metric."""
    charts: list[Markup] = []
    names = list(validations[0].metrics) if validations else []
    for name in ["loss", *(name for name in names if name != "loss")]:
        points = tuple((float(v.step), v.metrics[name]) for v in validations if name in v.metrics)
        found = [Curve(name="training", points=steps, ink=TRAINING)] if name == "loss" else []
        best = float(best_step) if best_step is not None else None
        found.append(Curve(name="validation", points=points, ink=VALIDATION, is_marked=True, best=best))
        charts.append(
            line_chart(
                f"curve-{len(charts)}",
                words(name).capitalize(),
                found,
                x_title="step",
                show=partial(metric_value, name),
                y_labels=axis_of(name),
            )
        )
    return element("div", *charts, class_="pair" if len(charts) > 1 else None)


def _epochs(run: RunRecord) -> Markup | None:
    if not run.validations:
        return None
    names = list(run.validations[0].metrics)
    head = element("tr", element("th", "epoch"), element("th", "step"), *(element("th", words(n)) for n in names))
    rows = (_row(validation, names, is_best=validation is run.best) for validation in run.validations)
    table = element("div", element("table", element("thead", head), element("tbody", *rows)), class_="scroll")
    summary = element("summary", f"Every validation, as a table ({len(run.validations)})")
    return element("details", summary, table, open=len(run.validations) <= _FEW and len(names) > 3)


def _row(validation: Measured, names: Sequence[str], *, is_best: bool) -> Markup:
    cells: list[Child] = [f"{validation.step:,}"]
    cells += [metric_value(n, validation.metrics[n]) if n in validation.metrics else "" for n in names]
    return element(
        "tr",
        element("th", f"{validation.epoch}", " (kept)" if is_best else "", scope="row"),
        *(element("td", cell) for cell in cells),
        class_="best" if is_best else None,
    )
