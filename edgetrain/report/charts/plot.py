"""The frame of a chart: axes, grid, labels, and what a reader is told who points at it.

The drawing is SVG that is stretched to the width of the page; labels are HTML above it, so that they can be read on a
phone as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgetrain.drawing.axes import Axis, ticks
from edgetrain.report.html import Child, Markup, data_block, element, joined

SIZE = 1000  # the drawing's own units, both ways
_DIGITS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is said about one place of the x axis: a title, and names with values."""

    x: float
    title: str
    rows: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One entry of a legend. `ink` is a CSS colour; `shape` one of "", "line", "dashed", "dot"."""

    text: str
    ink: str
    shape: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """A row below the chart, over the same x axis."""

    name: str
    count: str
    shapes: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Values with their words along both axes; empty: without."""

    x: tuple[tuple[float, str], ...] = ()
    y: tuple[tuple[float, str], ...] = ()
    x_title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Values to the drawing's units. Neither range is empty."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        return Axis(low=self.x_low, high=self.x_high, start=0, end=SIZE).pixel(value)

    def y(self, value: float) -> float:
        return Axis(low=self.y_low, high=self.y_high, start=SIZE, end=0).pixel(value)


def number_labels(low: float, high: float) -> tuple[tuple[float, str], ...]:
    return tuple((value, f"{value:g}") for value in ticks(low, high))


def whole_labels(low: float, high: float) -> tuple[tuple[float, str], ...]:
    """As `number_labels`, for what is counted."""
    return tuple((value, f"{value:,.0f}") for value in ticks(low, high) if value == int(value))


def plot(
    name: str,
    frame: Frame,
    shapes: Child,
    *,
    label: str,
    labels: Labels,
    told: Sequence[Told] = (),
    strips: Sequence[Strip] = (),
    height: str = "15rem",
    is_square: bool = False,
) -> Markup:
    """The chart. `label` says in words what it shows; `name` is unique in the page."""
    grid = "".join(f"M0 {_n(frame.y(value))}H{SIZE}" for value, _ in labels.y)
    area = element(
        "div",
        _drawing(joined(element("path", d=grid, class_="grid"), shapes)),
        element("div", class_="cursor", hidden=True),
        element("div", class_="tip", hidden=True, role="status"),
        class_="area",
        role="group" if told else "img",
        aria_label=label + (" Arrow keys move through it." if told else ""),
        tabindex=0 if told else None,
    )
    return joined(
        element(
            "div",
            _y_labels(frame, labels),
            area,
            _strips(strips),
            element("div", (_x_label(frame, *each) for each in labels.x), class_="x", aria_hidden="true"),
            element("div", labels.x_title, class_="title") if labels.x_title else None,
            class_="plot square" if is_square else "plot",
            style=f"--height:{height}",
            data_points=f"{name}-points" if told else None,
        ),
        data_block(f"{name}-points", _told(frame, told)) if told else None,
    )


def legend(keys: Sequence[Key]) -> Markup:
    entries = (
        element("li", element("i", class_=f"key {key.shape}".strip(), style=f"--ink:{key.ink}"), key.text)
        for key in keys
    )
    return element("ul", *entries, class_="legend")


def figure(title: str, *children: Child, more: str = "") -> Markup:
    caption = element("figcaption", title, element("small", f" {more}") if more else None)
    return element("figure", caption, *children)


def path(points: Sequence[tuple[float, float]]) -> str:
    """A line through the points, in the drawing's units."""
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points) if points else ""


def dots(points: Sequence[tuple[float, float]]) -> str:
    """A path of nothing but round ends: circles that stay round however the drawing is stretched."""
    return "".join(f"M{_n(x)} {_n(y)}h0" for x, y in points)


def _n(value: float) -> str:
    return f"{round(value, _DIGITS):g}"


def _drawing(shapes: Markup) -> Markup:
    return element(
        "svg", shapes, viewBox=f"0 0 {SIZE} {SIZE}", preserveAspectRatio="none", aria_hidden="true", focusable="false"
    )


def _y_labels(frame: Frame, labels: Labels) -> Markup:
    widest = max((text for _, text in labels.y), key=len, default="")
    placed = (
        element("span", text, style=f"bottom:{_n(100 - frame.y(value) * 100 / SIZE)}%") for value, text in labels.y
    )
    return element("div", element("b", widest), *placed, class_="y", aria_hidden="true")


def _x_label(frame: Frame, value: float, text: str) -> Markup:
    at = frame.x(value) * 100 / SIZE
    edge = "last" if at > 97 else "first" if at < 1 else None  # a letter beyond the edge would widen the page
    return element("span", text, style=f"left:{_n(at)}%", class_=edge)


def _strips(strips: Sequence[Strip]) -> Markup:
    return joined(
        *(
            joined(
                element("div", class_="gap"),
                element("div", strip.name, class_="side"),
                element("div", _drawing(strip.shapes), class_="strip", role="img", aria_label=strip.count),
            )
            for strip in strips
        )
    )


def _told(frame: Frame, told: Sequence[Told]) -> list[object]:
    """Fractions of the width, ascending, as the page's script looks for them."""
    return [[round(frame.x(each.x) / SIZE, 5), each.title, each.rows] for each in sorted(told, key=lambda t: t.x)]
