"""Curves over a common x axis."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgetrain.drawing.axes import span
from edgetrain.report.charts.plot import Frame, Key, Labels, Told, dots, figure, legend, number_labels, path, plot
from edgetrain.report.charts.plot import whole_labels as whole
from edgetrain.report.html import Markup, element, joined
from edgetrain.run.files.plot import Point, thin

_MOST_POINTS = 700
_ROUGH = 60  # a curve of more points is noisy: a smooth one is drawn over it
_SMOOTH_SHARE = 0.04


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """`is_marked`: few points, each a dot. `best`: the x of the one to point out."""

    name: str
    points: tuple[Point, ...]
    ink: str
    is_marked: bool = False
    best: float | None = None


def show_value(value: float) -> str:
    return f"{value:.4g}"


def line_chart(
    name: str,
    title: str,
    curves: Sequence[Curve],
    *,
    x_title: str,
    more: str = "",
    show: Callable[[float], str] = show_value,
    x_labels: tuple[tuple[float, str], ...] | None = None,
    y_labels: Callable[[float, float], tuple[tuple[float, str], ...]] = number_labels,
    tell: Callable[[float], str] | None = None,
    marks: Sequence[tuple[float, str]] = (),
) -> Markup:
    """A figure with a curve for each series. `marks` are vertical lines with their words in the legend."""
    shown = [curve for curve in curves if curve.points]
    x_low, x_high = span([x for curve in shown for x, _ in curve.points] + [at for at, _ in marks])
    heights = [y for curve in shown for _, y in curve.points]
    y_low, y_high = span(_typical(heights))
    margin = 0.06 * (y_high - y_low)
    frame = Frame(x_low=x_low, x_high=x_high, y_low=y_low - margin, y_high=y_high + margin)
    lines = (
        element(
            "path", d=path([(frame.x(at), 0), (frame.x(at), 1000)]), class_="curve dashed", style="--ink:var(--bad)"
        )
        for at, _ in marks
    )
    keys = [Key(text=c.name, ink=c.ink, shape="dot" if c.is_marked else "line") for c in shown]
    keys += [Key(text=text, ink="var(--bad)", shape="dashed") for _, text in marks]
    return figure(
        title,
        legend(keys),
        plot(
            name,
            frame,
            joined(*lines, *(_curve(curve, frame) for curve in shown)),
            label=f"{title}: {'; '.join(_in_words(curve, show) for curve in shown)}.",
            labels=Labels(x=x_labels or whole(x_low, x_high), y=y_labels(frame.y_low, frame.y_high), x_title=x_title),
            told=_told(shown, show, tell or (lambda x: f"{x_title} {x:,.0f}")),
        ),
        more=more
        or (f"cut off above; at most {show(max(heights))}" if heights and max(heights) > frame.y_high else ""),
    )


def _typical(values: Sequence[float]) -> list[float]:
    """The values without the few that would flatten all others: first steps have losses like no later one."""
    ordered = sorted(values)
    if len(ordered) < _ROUGH:
        return ordered
    low, high = ordered[0], ordered[math.ceil(0.985 * len(ordered)) - 1]
    return [low, high if high > low else ordered[-1]]


def _curve(curve: Curve, frame: Frame) -> Markup:
    points = [(frame.x(x), frame.y(y)) for x, y in thin(curve.points, _MOST_POINTS)]
    ink = f"--ink:{curve.ink}"
    parts = []
    is_rough = len(curve.points) > _ROUGH and not curve.is_marked
    if len(points) > 1:
        parts.append(element("path", d=path(points), class_="curve faint" if is_rough else "curve", style=ink))
    if is_rough:
        smooth = thin(_smoothed(curve.points), _MOST_POINTS)
        line = path([(frame.x(x), frame.y(y)) for x, y in smooth])
        parts.append(element("path", d=line, class_="curve", style=ink))
    if curve.is_marked or len(points) == 1:
        parts.append(element("path", d=dots(points), class_="marks", style=ink))
    best = next(((x, y) for x, y in curve.points if x == curve.best), None)
    if best is not None:
        at = dots([(frame.x(best[0]), frame.y(best[1]))])
        parts.append(element("path", d=at, class_="marks ring", style=ink))
    return joined(*parts)


def _smoothed(points: Sequence[Point]) -> list[Point]:
    """The mean of each point's neighbourhood, in one pass over running sums."""
    reach = max(1, round(_SMOOTH_SHARE * len(points) / 2))
    sums = [0.0]
    for _, y in points:
        sums.append(sums[-1] + y)
    bounds = ((max(0, i - reach), min(len(points), i + reach + 1)) for i in range(len(points)))
    return [(x, (sums[high] - sums[low]) / (high - low)) for (x, _), (low, high) in zip(points, bounds, strict=True)]


def _in_words(curve: Curve, show: Callable[[float], str]) -> str:
    first, last = curve.points[0][1], curve.points[-1][1]
    return f"{curve.name} from {show(first)} to {show(last)}"


def _told(curves: Sequence[Curve], show: Callable[[float], str], tell: Callable[[float], str]) -> list[Told]:
    """The values of all curves at the places of the densest one; of the others what they last had."""
    if not curves:
        return []
    densest = max(curves, key=lambda curve: len(curve.points))
    places = sorted({x for x, _ in thin(densest.points, _MOST_POINTS)} | _marked(curves))
    found = []
    for x in places:
        rows = tuple((curve.name, show(value)) for curve in curves if (value := _value_at(curve, x)) is not None)
        found.append(Told(x=x, title=tell(x), rows=rows))
    return found


def _marked(curves: Sequence[Curve]) -> set[float]:
    return {x for curve in curves if curve.is_marked for x, _ in curve.points}


def _value_at(curve: Curve, x: float) -> float | None:
    index = bisect_left(curve.points, (x, -math.inf))
    if index < len(curve.points) and curve.points[index][0] == x:
        return curve.points[index][1]
    return None if curve.is_marked or index in (0, len(curve.points)) else curve.points[index - 1][1]
