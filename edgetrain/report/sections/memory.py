"""Memory over one step, call by call, as it was planned; with the peak that was measured, and the plan's own moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgetrain.drawing.axes import ticks
from edgetrain.graph.ir import Phase
from edgetrain.planner.memory_timeline import LAYERS, Kind, MemoryTimeline, Moment, memory_timeline
from edgetrain.report.charts.plot import (
    Frame,
    Key,
    Labels,
    Strip,
    Told,
    dots,
    figure,
    legend,
    path,
    plot,
    whole_labels,
)
from edgetrain.report.html import Child, Markup, element, joined
from edgetrain.report.page import Section
from edgetrain.report.run_record import RunRecord
from edgetrain.report.sections.numbers import plural
from edgetrain.units import show_bytes

_INKS: Mapping[str, str] = {layer: f"var(--{layer.split()[-1]})" for layer in LAYERS}
_MOVES: Mapping[Kind, tuple[str, str]] = {
    "recompute": ("recomputed", "var(--bad)"),
    "page out": ("paged out", "var(--series-3)"),
    "page in": ("paged in", "var(--series-1)"),
}
_FARTHEST_BUDGET = 1.6  # times the peak: a limit beyond would flatten everything else
_BUDGET, _MEASURED = "var(--bad)", "var(--text)"


def memory(run: RunRecord) -> Section | None:
    """None for a run whose program does not hold its plan."""
    if run.graph is None or run.plan is None:
        return None
    timeline = memory_timeline(run.graph, run.plan)
    drawn = draw_timeline(timeline, measured_bytes=run.used_bytes)
    moves = moves_text(timeline)
    note = f"Every kernel call of a training step, in order, with what was in memory meanwhile. {moves}"
    return Section(name="memory", title="Memory", note=note, body=joined(drawn, periods(run.periods)))


def moves_text(timeline: MemoryTimeline) -> str:
    """What the plan does to fit."""
    counts = {kind: sum(moment.kind == kind for moment in timeline.moments) for kind in _MOVES}
    parts = []
    if counts["recompute"]:
        parts.append(f"runs {plural(counts['recompute'], 'kernel call')} a second time")
    if counts["page out"] or counts["page in"]:
        out, back = counts["page out"], counts["page in"]
        parts.append(f"writes {plural(out, 'tensor')} to storage and reads {back:,} back")
    return f"To fit, the plan {' and '.join(parts)}." if parts else "Everything is kept in memory: nothing runs twice."


def draw_timeline(timeline: MemoryTimeline, *, measured_bytes: int | None = None) -> Markup:
    """The figure. Empty plans have none."""
    moments = timeline.moments
    if not moments:
        return Markup()
    limits = _limits(timeline, measured_bytes)
    highest = max([moment.nbytes for moment in moments] + [limit.nbytes for limit in limits if limit.is_near])
    frame = Frame(x_low=0, x_high=len(moments), y_low=0, y_high=1.06 * highest)
    used = [layer for layer in LAYERS if any(moment.bytes_by_layer[layer] for moment in moments)]
    peak = moments[timeline.peak]
    center = (frame.x(timeline.peak + 0.5), frame.y(peak.nbytes))
    shapes = joined(
        *_stack(moments, used, frame),
        *_boundaries(moments, frame),
        *(limit.line(frame) for limit in limits if limit.is_near),
        element("path", d=dots([center]), class_="marks", style="--ink:var(--text)"),
    )
    where = _short(peak.source or peak.name)
    keys = [Key(text=layer, ink=_INKS[layer]) for layer in reversed(used)]
    keys.append(Key(text=f"fullest: {show_bytes(peak.nbytes)} at {where}", ink="var(--text)", shape="dot"))
    keys += [limit.key for limit in limits]
    label = f"Memory over the {len(moments)} calls of a step. It is fullest at {where}, with {show_bytes(peak.nbytes)}."
    return figure(
        "Memory over one training step",
        legend(keys),
        plot(
            "timeline",
            frame,
            shapes,
            label=label,
            labels=Labels(
                x=whole_labels(0, len(moments)),
                y=tuple((value, show_bytes(round(value))) for value in ticks(0, frame.y_high)),
                x_title="kernel calls and transfers, in order",
            ),
            told=[_told(index, moment) for index, moment in enumerate(moments)],
            strips=_strips(moments, frame),
            height="20rem",
        ),
        more="as planned",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """A height that is told; drawn as a line where that does not flatten the rest."""

    text: str
    nbytes: int
    ink: str
    is_near: bool = True

    @property
    def key(self) -> Key:
        return Key(text=f"{self.text} {show_bytes(self.nbytes)}", ink=self.ink, shape="dashed" if self.is_near else "")

    def line(self, frame: Frame) -> Markup:
        height = frame.y(self.nbytes)
        return element("path", d=path([(0, height), (1000, height)]), class_="curve dashed", style=f"--ink:{self.ink}")


def _limits(timeline: MemoryTimeline, measured_bytes: int | None) -> list[_Limit]:
    limits = []
    if timeline.budget_bytes is not None:
        is_near = timeline.budget_bytes <= _FARTHEST_BUDGET * timeline.needed_bytes
        limits.append(_Limit(text="budget", nbytes=timeline.budget_bytes, ink=_BUDGET, is_near=is_near))
    if measured_bytes is not None:
        limits.append(_Limit(text="measured peak", nbytes=measured_bytes, ink=_MEASURED))
    return limits


def _stack(moments: Sequence[Moment], layers: Sequence[str], frame: Frame) -> Iterator[Markup]:
    floor = [0] * len(moments)
    for layer in layers:
        ceiling = [low + moment.bytes_by_layer[layer] for low, moment in zip(floor, moments, strict=True)]
        outline = [*_stairs(ceiling, frame), *reversed(_stairs(floor, frame))]
        yield element("path", d=path(outline) + "Z", class_="fill", style=f"--ink:{_INKS[layer]}")
        floor = ceiling


def _stairs(heights: Sequence[int], frame: Frame) -> list[tuple[float, float]]:
    """The corners of the stairs: of neighbours with the same height none."""
    corners: list[tuple[float, float]] = []
    for index, height in enumerate(heights):
        if index and heights[index - 1] == height:
            corners[-1] = (frame.x(index + 1), frame.y(height))
        else:
            corners += [(frame.x(index), frame.y(height)), (frame.x(index + 1), frame.y(height))]
    return corners


def _boundaries(moments: Sequence[Moment], frame: Frame) -> Iterator[Markup]:
    """A line where the loss is computed, and where another function begins."""
    for index, moment in enumerate(moments):
        before = moments[index - 1] if index else None
        begins = before is not None and moment.function != before.function
        is_loss = moment.phase is Phase.LOSS and (before is None or before.phase is not Phase.LOSS)
        if begins or (is_loss and moment.kind == "compute"):
            at = frame.x(index)
            line = path([(at, 0), (at, 1000)])
            yield element("path", d=line, class_="curve dashed faint", style="--ink:var(--text)")


def _strips(moments: Sequence[Moment], frame: Frame) -> list[Strip]:
    """A row for each kind of move that the plan makes."""
    strips = []
    for kind, (name, ink) in _MOVES.items():
        indices = [index for index, moment in enumerate(moments) if moment.kind == kind]
        if indices:
            width = max(frame.x(1) - frame.x(0), 2.0)
            boxes = "".join(f"M{frame.x(index):.1f} 0h{width:.1f}v1000h-{width:.1f}z" for index in indices)
            shapes = joined(element("path", d=boxes, class_="fill", style=f"--ink:{ink}"))
            strips.append(Strip(name=name, count=f"{name}: {len(indices)} times", shapes=shapes))
    return strips


def _told(index: int, moment: Moment) -> Told:
    source = f" · {moment.source}" if moment.source and moment.source != moment.name else ""
    held = tuple((layer, show_bytes(size)) for layer, size in moment.bytes_by_layer.items() if size)
    title = f"{index + 1}. {moment.kind} {_short(moment.name)}{source}"
    return Told(x=index + 0.5, title=title, rows=(("in memory", show_bytes(moment.nbytes)), *held))


def _short(text: str, most: int = 48) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def periods(found: Sequence[Mapping[str, Any]]) -> Markup | None:
    """The plans of a run whose budget moved; None where it had one."""
    if len(found) < 2:
        return None
    head = ("from step", "because of", "budget", "planned", "measured", "")
    rows = []
    for period in found:
        budget, measured = period["budget_bytes"], period["measured_peak_bytes"]
        is_kept = budget is None or measured <= budget
        cells: tuple[Child, ...] = (
            period["cause"] or "start",
            show_bytes(budget) if budget is not None else "none",
            show_bytes(period["planned_peak_bytes"]),
            show_bytes(measured),
            element("span", "kept" if is_kept else "exceeded", class_="good" if is_kept else "bad"),
        )
        first = element("th", f"{period['after_step']:,}", scope="row")
        rows.append(element("tr", first, *(element("td", cell) for cell in cells)))
    table = element(
        "table", element("thead", element("tr", *(element("th", name) for name in head))), element("tbody", *rows)
    )
    return joined(element("h3", "Plans of this run"), element("div", table, class_="scroll"))
