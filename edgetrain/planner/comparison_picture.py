"""The solvers side by side, drawn: a bar for the time of each one's step."""

from __future__ import annotations

from collections.abc import Sequence

from edgetrain.drawing.scene import Area, Label, Line, Scene, Shape
from edgetrain.planner.compare import Comparison
from edgetrain.units import show_bytes, show_joules, show_seconds

_WIDTH, _TOP, _ROW_HEIGHT, _BOTTOM = 960, 44, 26, 16
_LEFT, _LONGEST = 110, 470  # where bars begin, and how long the slowest solver's is
_BAR, _GREY = "#1f6fb4", "#555555"


def draw_comparison(rows: Sequence[Comparison], *, title: str) -> Scene:
    """Each solver's modelled seconds a step as a bar; a solver without a plan says why it has none."""
    slowest_s = max((row.seconds for row in rows if row.seconds is not None), default=1.0) or 1.0
    shapes: list[Shape] = [Label(at=(_LEFT, 22), text=title, size=15, is_bold=True)]
    for number, row in enumerate(rows):
        top = _TOP + number * _ROW_HEIGHT
        baseline = top + 14
        shapes.append(Label(at=(_LEFT - 10, baseline), text=row.solver, anchor="end"))
        length = _LONGEST * row.seconds / slowest_s if row.seconds is not None else 0.0
        right, bottom = _LEFT + length, top + _ROW_HEIGHT - 8
        if row.seconds is not None:
            box = ((_LEFT, top), (right, top), (right, bottom), (_LEFT, bottom))
            shapes.append(Area(points=box, color=_BAR, title=_text(row)))
        shapes.append(Label(at=(right + 8, baseline), text=_text(row), size=11, color=_GREY))
    height = _TOP + len(rows) * _ROW_HEIGHT + _BOTTOM
    shapes.append(Line(points=((_LEFT, _TOP - 6), (_LEFT, height - _BOTTOM)), color=_GREY))
    return Scene(width=_WIDTH, height=height, shapes=tuple(shapes))


def _text(row: Comparison) -> str:
    if row.seconds is None or row.peak_bytes is None or row.joules is None:
        return f"no plan: {row.why}"
    slowdown = f"{row.slowdown:.3f}x, " if row.slowdown is not None else ""
    gap = f", gap {row.gap:.2%}" if row.gap is not None else ""
    return f"{slowdown}{show_seconds(row.seconds)}, {show_joules(row.joules)}, peak {show_bytes(row.peak_bytes)}{gap}"
