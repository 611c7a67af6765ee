"""Predicted against true values."""

from __future__ import annotations

from edgetrain.drawing.axes import span
from edgetrain.report.charts.plot import Frame, Key, Labels, dots, figure, legend, number_labels, path, plot
from edgetrain.report.html import Markup, element, joined
from edgetrain.report.page import Section
from edgetrain.report.sections.numbers import plural
from edgetrain.run.learned.learned import Learned
from edgetrain.run.learned.value_outcomes import Quantile, ValueOutcomes


def values(learned: Learned) -> Section | None:
    """None for a model that predicts no values."""
    found = learned.values
    if found is None:
        return None
    explained = f", R² {found.explained:.3f}" if found.explained is not None else ""
    return Section(
        name="values",
        title="Predicted values",
        note=(
            f"On the {learned.part} part, {plural(found.count, 'value')}: off by {found.mean_absolute_error:.4g} on "
            f"average (root mean square {found.root_mean_squared_error:.4g}), bias {found.bias:+.3g}{explained}."
        ),
        body=element("div", _scatter(found), _quantiles(found), class_="pair"),
    )


def _scatter(found: ValueOutcomes) -> Markup:
    low, high = span([value for point in found.points for value in point])
    margin = 0.04 * (high - low)
    frame = Frame(x_low=low - margin, x_high=high + margin, y_low=low - margin, y_high=high + margin)
    points = [(frame.x(true), frame.y(predicted)) for true, predicted in found.points]
    shapes = joined(
        element("path", d=path([(0, 1000), (1000, 0)]), class_="curve dashed", style="--ink:var(--muted)"),
        element("path", d=dots(points), class_="marks small", style="--ink:var(--accent)"),
    )
    marks = number_labels(low, high)
    some = f"{len(found.points):,} of {found.count:,}" if len(found.points) < found.count else ""
    return figure(
        "Predicted over true",
        legend(
            [
                Key(text="a value", ink="var(--accent)", shape="dot"),
                Key(text="exact", ink="var(--muted)", shape="dashed"),
            ]
        ),
        plot(
            "scatter",
            frame,
            shapes,
            label=f"Predicted over true values, mean absolute error {found.mean_absolute_error:.4g}.",
            labels=Labels(x=marks, y=marks, x_title="true value"),
            is_square=True,
        ),
        more=some,
    )


def _quantiles(found: ValueOutcomes) -> Markup:
    most = max(each.mean_absolute_error for each in found.quantiles) or 1.0
    head = element("tr", *(element("th", name) for name in ("true value", "values", "mean error", "bias", "")))
    rows = (_row(each, most) for each in found.quantiles)
    table = element("table", element("thead", head), element("tbody", *rows))
    return joined(
        element("div", element("h3", "Error over the range of values"), element("div", table, class_="scroll"))
    )


def _row(each: Quantile, most: float) -> Markup:
    width = f"width:{100 * each.mean_absolute_error / most:.1f}%"
    return element(
        "tr",
        element("th", f"{each.low:.4g}\u00a0–\u00a0{each.high:.4g}", scope="row"),
        element("td", f"{each.count:,}"),
        element("td", f"{each.mean_absolute_error:.4g}"),
        element("td", f"{each.bias:+.3g}"),
        element("td", element("i", class_="bar", style=width), class_="bars"),
    )
