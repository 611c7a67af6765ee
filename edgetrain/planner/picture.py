"""A plan as a picture: memory over the step, and what less memory costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from edgetrain.drawing.axes import Axis, ticks
from edgetrain.drawing.scene import Area, Dot, Label, Line, Point, Scene, Shape
from edgetrain.graph.ir import Phase
from edgetrain.planner.memory_timeline import LAYERS, Kind, MemoryTimeline, Moment
from edgetrain.planner.sweep import SweepPoint
from edgetrain.units import show_bytes, show_joules, show_seconds

_WIDTH = 960
_LEFT, _RIGHT = 72, 20
_GREY, _GRID, _BUDGET = "#555555", "#dddddd", "#c0262d"
# Quiet colours for what never changes, told apart in grey too; the loud ones are what a plan can do something about.
_COLORS: Mapping[str, str] = {
    "program": "#3a4350",
    "parameters": "#5b6b7f",
    "state": "#8795a6",
    "constants": "#b3bdc9",
    "inputs": "#ccd4dd",
    "outputs": "#dfe5ec",
    "activations": "#1f6fb4",
    "gradients": "#e8963a",
    "scratch": "#b9a1d3",
    "page buffers": "#3c9d6b",
}
_MARKS: Mapping[Kind, tuple[str, str]] = {  # what is drawn below the timeline, a row each
    "recompute": ("recomputed", "#b3261e"),
    "page out": ("paged out", "#2a7f55"),
    "page in": ("paged in", "#63c294"),
}
_TIMELINE_HEIGHT, _TIMELINE_TOP, _TIMELINE_BOTTOM = 460, 72, 96
_SWEEP_HEIGHT, _SWEEP_TOP, _SWEEP_BOTTOM = 300, 56, 52
_FARTHEST_BUDGET = 2.0  # times the peak: beyond, the line would flatten everything else
_MARK_HEIGHT = 9
_LETTERS = 16  # how high a line of text is, with some air
_TIME, _ENERGY = "#1f6fb4", "#d9730d"


def draw_timeline(timeline: MemoryTimeline, *, title: str) -> Scene:
    """Memory stacked by holder over kernel calls and transfers; the budget, the peak, and what is done twice."""
    moments = timeline.moments
    budget, peak_bytes = timeline.budget_bytes, timeline.needed_bytes
    is_near = budget is not None and budget <= _FARTHEST_BUDGET * peak_bytes
    top_bytes = 1.12 * max(peak_bytes, budget if is_near and budget is not None else 0, 1)
    x = Axis(low=0, high=max(1, len(moments)), start=_LEFT, end=_WIDTH - _RIGHT)
    y = Axis(low=0, high=top_bytes, start=_TIMELINE_HEIGHT - _TIMELINE_BOTTOM, end=_TIMELINE_TOP)
    shapes: list[Shape] = [Label(at=(_LEFT, 22), text=title, size=15, is_bold=True)]
    shapes += _byte_grid(y)
    used = [layer for layer in LAYERS if any(moment.bytes_by_layer[layer] for moment in moments)]
    shapes += _stack(moments, used, x, y)
    shapes += _legend(used)
    shapes += _boundaries(moments, x, y)
    if budget is not None and is_near:
        shapes += _limit(budget, f"budget {show_bytes(budget)}", y)
    shapes += _peak(timeline, x, y)
    shapes += _marks(moments, x, y)
    shapes += _columns(moments, x, y)
    return Scene(width=_WIDTH, height=_TIMELINE_HEIGHT, shapes=tuple(shapes))


def _byte_grid(y: Axis) -> Iterator[Shape]:
    for value in ticks(y.low, y.high):
        at = y.pixel(value)
        yield Line(points=((_LEFT, at), (_WIDTH - _RIGHT, at)), color=_GRID)
        yield Label(at=(_LEFT - 8, at + 4), text=show_bytes(round(value)), anchor="end", size=11, color=_GREY)


def _stack(moments: Sequence[Moment], layers: Iterable[str], x: Axis, y: Axis) -> Iterator[Shape]:
    floor = [0] * len(moments)
    for layer in layers:
        ceiling = [low + moment.bytes_by_layer[layer] for low, moment in zip(floor, moments, strict=True)]
        outline = (*_stairs(ceiling, x, y), *reversed(_stairs(floor, x, y)))
        yield Area(points=outline, color=_COLORS[layer])
        floor = ceiling


def _stairs(heights: Sequence[int], x: Axis, y: Axis) -> tuple[Point, ...]:
    corners: list[Point] = []
    for index, height in enumerate(heights):
        level = y.pixel(height)
        corners += [(x.pixel(index), level), (x.pixel(index + 1), level)]
    return tuple(corners)


def _legend(layers: Sequence[str]) -> Iterator[Shape]:
    at = float(_LEFT)
    for layer in layers:
        yield Area(points=_box(at, 36, 11, 11), color=_COLORS[layer])
        yield Label(at=(at + 16, 46), text=layer)
        at += 34 + 7 * len(layer)


def _boundaries(moments: Sequence[Moment], x: Axis, y: Axis) -> Iterator[Shape]:
    """Where the loss is computed, and where another function begins."""
    for index, moment in enumerate(moments):
        begins = index > 0 and moment.function != moments[index - 1].function
        is_loss = moment.phase is Phase.LOSS and (index == 0 or moments[index - 1].phase is not Phase.LOSS)
        if begins or (is_loss and moment.kind == "compute"):
            at = x.pixel(index)
            yield Line(points=((at, y.start), (at, y.end)), color=_GREY, width=0.7, is_dashed=True)
            yield Label(at=(at + 4, y.end + 11), text=moment.function if begins else "loss", size=11, color=_GREY)


def _limit(nbytes: int, text: str, y: Axis) -> Iterator[Shape]:
    at = y.pixel(nbytes)
    yield Line(points=((_LEFT, at), (_WIDTH - _RIGHT, at)), color=_BUDGET, width=1.5, is_dashed=True)
    yield Label(at=(_LEFT + 6, at - 5), text=text, color=_BUDGET, is_bold=True)


def _peak(timeline: MemoryTimeline, x: Axis, y: Axis) -> Iterator[Shape]:
    if not timeline.moments:
        return
    moment = timeline.moments[timeline.peak]
    center = (x.pixel(timeline.peak + 0.5), y.pixel(moment.nbytes))
    is_right = center[0] > (_LEFT + _WIDTH - _RIGHT) / 2
    name = _short(moment.source or moment.name)
    baseline = center[1] - 7
    if timeline.budget_bytes is not None and abs(y.pixel(timeline.budget_bytes) - baseline) < _LETTERS:
        baseline = y.pixel(timeline.budget_bytes) - 5  # beside the budget's own label, not across its line
    yield Dot(center=center, radius=4, color="#111111", title=_title(moment))
    yield Label(
        at=(center[0] + (-8 if is_right else 8), baseline),
        text=f"peak {show_bytes(moment.nbytes)}: {name}",
        anchor="end" if is_right else "start",
        is_bold=True,
    )


def _marks(moments: Sequence[Moment], x: Axis, y: Axis) -> Iterator[Shape]:
    """A row for each thing that a plan does beside running every op once, with a mark where it does."""
    row = y.start + 8
    for kind, (name, color) in _MARKS.items():
        indices = [index for index, moment in enumerate(moments) if moment.kind == kind]
        yield Label(at=(_LEFT - 8, row + _MARK_HEIGHT), text=name, anchor="end", size=10, color=_GREY)
        yield Label(at=(_WIDTH - 2, row + _MARK_HEIGHT), text=str(len(indices)), anchor="end", size=10, color=_GREY)
        for index in indices:
            width = max(1.0, x.pixel(index + 1) - x.pixel(index))
            title = _title(moments[index])
            yield Area(points=_box(x.pixel(index), row, width, _MARK_HEIGHT), color=color, title=title)
        row += _MARK_HEIGHT + 6
    yield Label(
        at=(_WIDTH - _RIGHT, row + 20),
        text="kernel calls and transfers of one step, in order",
        anchor="end",
        color=_GREY,
    )
    for value in ticks(x.low, x.high):
        if value == int(value):
            yield Label(at=(x.pixel(value), row + 6), text=f"{int(value)}", anchor="middle", size=11, color=_GREY)


def _columns(moments: Sequence[Moment], x: Axis, y: Axis) -> Iterator[Shape]:
    """Nothing to see: they carry what a reader is told who points at a moment."""
    for index, moment in enumerate(moments):
        width = x.pixel(index + 1) - x.pixel(index)
        box = _box(x.pixel(index), y.end, width, y.start - y.end)
        yield Area(points=box, color="#000000", opacity=0.0, title=_title(moment))


def _title(moment: Moment) -> str:
    held = [f"{layer} {show_bytes(size)}" for layer, size in moment.bytes_by_layer.items() if size]
    source = f" ({moment.source})" if moment.source and moment.source != moment.name else ""
    return "\n".join((f"{moment.kind} {moment.name}{source}", show_bytes(moment.nbytes), *held))


def _short(text: str, most: int = 48) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _box(left: float, top: float, width: float, height: float) -> tuple[Point, ...]:
    return ((left, top), (left + width, top), (left + width, top + height), (left, top + height))


def draw_sweep(points: Sequence[SweepPoint], *, budget_bytes: int | None) -> Scene:
    """What a step costs over the budget, from the smallest that works to keeping everything: time and energy."""
    xs = [point.budget_bytes for point in points]
    margin = 0.04 * max(xs[-1] - xs[0], 0.02 * xs[-1], 1)
    x = Axis(low=xs[0] - margin, high=xs[-1] + margin, start=_LEFT, end=_WIDTH - _RIGHT)
    least_s, least_j = points[-1].seconds or 1.0, points[-1].joules or 1.0
    times = [point.seconds / least_s for point in points]
    energies = [point.joules / least_j for point in points]
    low, high = min(*times, *energies), max(*times, *energies)
    spread = max(high - low, 0.02)
    y = Axis(low=low - 0.08 * spread, high=high + 0.12 * spread, start=_SWEEP_HEIGHT - _SWEEP_BOTTOM, end=_SWEEP_TOP)
    shapes: list[Shape] = [
        Label(at=(_LEFT, 22), text="one step over the budget, against keeping everything", size=15, is_bold=True),
        Label(at=(_LEFT, 44), text=f"time (1 is {show_seconds(least_s)})", color=_TIME),
        Label(at=(_LEFT + 180, 44), text=f"energy, modelled (1 is {show_joules(least_j)})", color=_ENERGY),
    ]
    shapes += _sweep_grid(x, y)
    if budget_bytes is not None and x.low <= budget_bytes <= x.high:
        at = x.pixel(budget_bytes)
        shapes.append(Line(points=((at, y.start), (at, y.end)), color=_BUDGET, width=1.5, is_dashed=True))
        shapes.append(Label(at=(at + 5, y.end + 10), text=f"budget {show_bytes(budget_bytes)}", color=_BUDGET))
    for heights, color in ((energies, _ENERGY), (times, _TIME)):
        line = tuple((x.pixel(at), y.pixel(height)) for at, height in zip(xs, heights, strict=True))
        shapes.append(Line(points=line, color=color, width=1.8))
        shapes += [
            Dot(center=center, radius=3.5, color=color, title=_sweep_title(point))
            for center, point in zip(line, points, strict=True)
        ]
    return Scene(width=_WIDTH, height=_SWEEP_HEIGHT, shapes=tuple(shapes))


def _sweep_grid(x: Axis, y: Axis) -> Iterator[Shape]:
    for value in ticks(y.low, y.high):
        at = y.pixel(value)
        yield Line(points=((_LEFT, at), (_WIDTH - _RIGHT, at)), color=_GRID)
        yield Label(at=(_LEFT - 8, at + 4), text=f"{value:g}x", anchor="end", size=11, color=_GREY)
    for value in ticks(x.low, x.high):
        yield Label(
            at=(x.pixel(value), y.start + 18), text=show_bytes(round(value)), anchor="middle", size=11, color=_GREY
        )
    yield Label(at=(_WIDTH - _RIGHT, y.start + 38), text="memory budget", anchor="end", color=_GREY)


def _sweep_title(point: SweepPoint) -> str:
    return (
        f"{show_bytes(point.budget_bytes)}: {show_seconds(point.seconds)}, {show_joules(point.joules)}\n"
        f"{point.recomputed} recomputed, {point.paged} paged"
    )
