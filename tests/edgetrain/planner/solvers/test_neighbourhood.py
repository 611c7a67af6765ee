from __future__ import annotations

from itertools import pairwise

import pytest

from edgetrain.planner.solvers.neighbourhood import fixed_outside, sweep
from edgetrain.planner.solvers.problem import make_problem
from edgetrain.planner.solvers.timeline import windowed_timeline
from edgetrain.planner.solvers.windowed_model import Aim, WindowedModel, build_model
from tests.edgetrain.planner.training_graphs import chain, unit_costs


def model_of_a_chain(layers: int) -> WindowedModel:
    graph = chain(layers)
    problem = make_problem(graph, "step", unit_costs(graph), None)
    return build_model(problem, windowed_timeline(problem, 3), Aim(limit_bytes=10**6, seconds_weight=1.0))


def binaries(model: WindowedModel) -> set[str]:
    again = {run.name for slot, run in zip(model.timeline, model.runs, strict=True) if not slot.is_first}
    return again | {keep.name for keep in model.keeps.values()}


@pytest.mark.parametrize("size", [1, 10, 50, 10**6])
def test_a_sweep_frees_every_binary_at_least_once(size: int) -> None:
    model = model_of_a_chain(12)
    assert set().union(*sweep(model, size)) == binaries(model)


def test_neighbourhoods_are_about_as_large_as_asked_and_overlap() -> None:
    model = model_of_a_chain(30)
    sets = list(sweep(model, 60))
    assert len(sets) > 3
    assert all(len(free) < 60 + 30 for free in sets)
    assert all(one & other for one, other in pairwise(sets))


def test_what_is_not_free_is_fixed_to_whole_numbers() -> None:
    assert fixed_outside({"a": 0.9999, "b": 0.0, "c": 1.0}, frozenset({"c"})) == {"a": 1.0, "b": 0.0}
