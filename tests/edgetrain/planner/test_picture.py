from __future__ import annotations

import pytest

from edgetrain.drawing.scene import Area, Dot, Label, Line, Scene
from edgetrain.planner.make_plan import make_plan, smallest_plan
from edgetrain.planner.memory_timeline import MemoryTimeline, memory_timeline
from edgetrain.planner.picture import draw_sweep, draw_timeline
from edgetrain.planner.plan import Budget
from edgetrain.planner.sweep import sweep
from edgetrain.units import Bytes, show_bytes
from tests.edgetrain.planner.training_graphs import chain, random_costs, unit_costs

GRAPH = chain(12)


def tight() -> MemoryTimeline:
    return memory_timeline(GRAPH, smallest_plan(GRAPH, Budget(), {"step": unit_costs(GRAPH)}))


def texts(scene: Scene) -> list[str]:
    return [shape.text for shape in scene.shapes if isinstance(shape, Label)]


def points_of(scene: Scene) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for shape in scene.shapes:
        match shape:
            case Area() | Line():
                found += shape.points
            case Dot():
                found.append(shape.center)
            case Label():
                found.append(shape.at)
    return found


def test_everything_drawn_lies_on_the_canvas() -> None:
    points = list(sweep(GRAPH, {"step": random_costs(GRAPH, 0)}))
    for scene in (draw_timeline(tight(), title="t"), draw_sweep(points, budget_bytes=points[3].budget_bytes)):
        assert all(0 <= x <= scene.width and 0 <= y <= scene.height for x, y in points_of(scene))


def test_every_moment_tells_who_holds_what_to_a_reader_who_points_at_it() -> None:
    timeline = tight()
    columns = [s for s in draw_timeline(timeline, title="t").shapes if isinstance(s, Area) and s.opacity == 0]
    assert len(columns) == len(timeline.moments)
    for column, moment in zip(columns, timeline.moments, strict=True):
        assert column.title.startswith(f"{moment.kind} {moment.name}")
        assert show_bytes(moment.nbytes) in column.title


def test_the_budget_and_the_peak_are_marked() -> None:
    timeline = tight()
    peak, budget = timeline.moments[timeline.peak], timeline.budget_bytes
    assert budget is not None
    shown = texts(draw_timeline(timeline, title="t"))
    assert f"budget {show_bytes(budget)}" in shown
    assert any(text.startswith(f"peak {show_bytes(peak.nbytes)}") for text in shown)


def test_a_budget_far_above_the_peak_does_not_flatten_the_picture() -> None:
    plan = make_plan(GRAPH, Budget(memory_bytes=Bytes(10**9)), {"step": unit_costs(GRAPH)})
    assert not any(text.startswith("budget") for text in texts(draw_timeline(memory_timeline(GRAPH, plan), title="t")))


def test_each_recomputation_has_its_mark() -> None:
    timeline = tight()
    marks = [
        shape
        for shape in draw_timeline(timeline, title="t").shapes
        if isinstance(shape, Area) and shape.opacity == 1 and shape.title.startswith("recompute ")
    ]
    assert len(marks) == sum(moment.kind == "recompute" for moment in timeline.moments) > 0


def test_a_taller_stack_is_drawn_taller() -> None:
    timeline = tight()
    scene = draw_timeline(timeline, title="t")
    (dot,) = (shape for shape in scene.shapes if isinstance(shape, Dot))
    stacks = [shape for shape in scene.shapes if isinstance(shape, Area) and not shape.title and len(shape.points) > 4]
    assert dot.center[1] == pytest.approx(min(y for shape in stacks for _, y in shape.points))


def test_a_sweep_of_one_point_can_be_drawn() -> None:
    points = list(sweep(GRAPH, {"step": random_costs(GRAPH, 0)}))[-1:]
    assert sum(isinstance(shape, Dot) for shape in draw_sweep(points, budget_bytes=None).shapes) == 2
