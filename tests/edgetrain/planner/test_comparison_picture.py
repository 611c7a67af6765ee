from __future__ import annotations

import pytest

from edgetrain.drawing.scene import Area, Label
from edgetrain.planner.compare import Comparison
from edgetrain.planner.comparison_picture import draw_comparison

ROWS = (
    Comparison(solver="greedy", peak_bytes=900, seconds=2.0, joules=1.0, slowdown=1.0, gap=0.01, planning_s=0.1),
    Comparison(solver="swap-all", peak_bytes=800, seconds=4.0, joules=1.0, slowdown=2.0, planning_s=0.1),
    Comparison(solver="poet", planning_s=0.1, why="it takes at most 40 ops"),
)


def test_a_bar_is_as_long_as_its_step_takes() -> None:
    bars = [shape for shape in draw_comparison(ROWS, title="t").shapes if isinstance(shape, Area)]
    lengths = [max(x for x, _ in bar.points) - min(x for x, _ in bar.points) for bar in bars]
    assert lengths[1] == pytest.approx(2 * lengths[0])


def test_every_solver_is_named_and_one_without_a_plan_says_why() -> None:
    texts = [shape.text for shape in draw_comparison(ROWS, title="t").shapes if isinstance(shape, Label)]
    assert {row.solver for row in ROWS} <= set(texts)
    assert "no plan: it takes at most 40 ops" in texts
    assert any(text.startswith("2.000x") for text in texts)


def test_where_no_solver_has_a_plan_there_is_still_a_picture() -> None:
    assert not [shape for shape in draw_comparison(ROWS[2:], title="t").shapes if isinstance(shape, Area)]
