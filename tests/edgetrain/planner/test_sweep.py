from __future__ import annotations

import pytest

from edgetrain.planner.make_plan import CostsByFunction, make_plan
from edgetrain.planner.plan import Budget
from edgetrain.planner.sweep import POINTS, sweep, sweep_text, sweep_to_json
from edgetrain.units import Bytes
from tests.edgetrain.planner.training_graphs import chain, random_costs, random_graph


@pytest.mark.parametrize("seed", range(8))
def test_a_step_never_gets_slower_with_more_memory(seed: int) -> None:
    graph = random_graph(seed, forward_ops=8)
    points = list(sweep(graph, {"step": random_costs(graph, seed)}))
    seconds = [point.seconds for point in points]
    assert seconds == sorted(seconds, reverse=True)
    assert all(point.peak_bytes <= point.budget_bytes for point in points)


def test_the_curve_goes_from_the_smallest_budget_to_keeping_everything() -> None:
    graph = chain(12)
    costs: CostsByFunction = {"step": random_costs(graph, 0)}
    points = list(sweep(graph, costs))
    kept = make_plan(graph, Budget(), costs)
    assert len(points) == POINTS
    assert [point.budget_bytes for point in points] == sorted({point.budget_bytes for point in points})
    assert points[-1].budget_bytes == kept.peak_bytes
    assert (points[-1].slowdown, points[-1].recomputed) == (1.0, 0)
    first = points[0]
    assert first.recomputed > 0
    assert make_plan(graph, Budget(memory_bytes=Bytes(first.budget_bytes)), costs).peak_bytes <= first.budget_bytes


def test_where_nothing_can_be_saved_there_is_one_point() -> None:
    graph = chain(1)
    points = list(sweep(graph, {"step": random_costs(graph, 0)}))
    assert len({point.budget_bytes for point in points}) == len(points)
    assert points[0].slowdown == 1.0


def test_the_table_has_a_row_for_each_point() -> None:
    graph = chain(12)
    points = list(sweep(graph, {"step": random_costs(graph, 0)}, points=3))
    header, *rows = sweep_text(points).splitlines()
    assert header.split() == ["budget", "peak", "step", "energy", "slowdown", "recomputed", "paged"]
    assert len(rows) == len(sweep_to_json(points)) == 3
    assert rows[-1].split()[-3:] == ["1.000x", "0", "0"]
