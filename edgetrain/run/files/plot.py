"""Line charts as SVG text, with nothing but string formatting: a device need not carry a plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from edgetrain.drawing.axes import Axis, span, ticks

Point = tuple[float, float]

_WIDTH = 720
_PANEL_HEIGHT = 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 32, 40
_COLORS = ("#1f6fb4", "#d9730d", "#2e8540", "#8b3fa0")  # told apart by colour-blind readers, and in grey
_MOST_POINTS = 1400  # two for each pixel column that lines are drawn on


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A named line; `is_marked` draws a dot at each point, for lines of few points."""

    name: str
    points: tuple[Point, ...]
    is_marked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    series: tuple[Series, ...]


def draw(panels: Sequence[Panel], *, x_label: str) -> str:
    """The panels below each other over one common x axis. The same input gives the same bytes."""
    height = _PANEL_HEIGHT * len(panels)
    xs = [x for panel in panels for series in panel.series for x, _ in series.points]
    low, high = span(xs)
    x_axis = Axis(low=low, high=high, start=_LEFT, end=_WIDTH - _RIGHT)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        parts += _draw_panel(panel, x_axis, top=number * _PANEL_HEIGHT, x_label=x_label)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _draw_panel(panel: Panel, x_axis: Axis, *, top: int, x_label: str) -> list[str]:
    ys = [y for series in panel.series for _, y in series.points]
    low, high = span(ys)
    y_axis = Axis(low=low, high=high, start=top + _PANEL_HEIGHT - _BOTTOM, end=top + _TOP)
    parts = [f'<text x="{_LEFT}" y="{top + 20}" font-weight="bold">{escape(panel.title)}</text>']
    for value in ticks(low, high):
        y = y_axis.pixel(value)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    baseline = top + _PANEL_HEIGHT - _BOTTOM
    for value in ticks(x_axis.low, x_axis.high):
        x = x_axis.pixel(value)
        parts.append(f'<text x="{x:.1f}" y="{baseline + 18}" text-anchor="middle">{value:g}</text>')
    parts.append(
        f'<text x="{_WIDTH - _RIGHT}" y="{baseline + 34}" text-anchor="end" fill="#555">{escape(x_label)}</text>'
    )
    for number, series in enumerate(panel.series):
        color = _COLORS[number % len(_COLORS)]
        parts += _draw_series(series, x_axis, y_axis, color)
        x = _WIDTH - _RIGHT - 110 * (len(panel.series) - number)
        parts.append(f'<text x="{x}" y="{top + 20}" fill="{color}">{escape(series.name)}</text>')
    return parts


def _draw_series(series: Series, x_axis: Axis, y_axis: Axis, color: str) -> list[str]:
    pixels = [(x_axis.pixel(x), y_axis.pixel(y)) for x, y in thin(series.points, _MOST_POINTS)]
    parts = []
    if len(pixels) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>')
    if series.is_marked or len(pixels) == 1:
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in pixels]
    return parts


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` of the points, in order: of each run of neighbours the lowest and the highest.

    A spike is what a reader looks for in a loss curve, so it must survive; an average would hide it.
    """
    if len(points) <= most:
        return list(points)
    runs = most // 2
    kept: list[Point] = []
    for number in range(runs):
        run = points[number * len(points) // runs : (number + 1) * len(points) // runs]
        lowest, highest = min(run, key=lambda p: p[1]), max(run, key=lambda p: p[1])
        kept += sorted({lowest, highest})
    return kept
