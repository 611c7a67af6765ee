from __future__ import annotations

from dataclasses import replace

import pytest

from edgetrain.planner.plan import PageOut, replay
from edgetrain.planner.references.instance_file import instance_problem, replay_instance
from edgetrain.planner.solvers.mip_solvers import Effort, HighsProgram, Status
from edgetrain.planner.solvers.problem import Problem, make_problem
from edgetrain.planner.solvers.timeline import full_timeline, windowed_timeline
from edgetrain.planner.solvers.translate import steps_of
from edgetrain.planner.solvers.windowed_model import Aim, Lanes, build_model
from edgetrain.targets.device import Storage
from tests.edgetrain.planner.plan_instances import case, instance
from tests.edgetrain.planner.questions import keep_all_floor
from tests.edgetrain.planner.training_graphs import random_costs, random_graph

EFFORT = Effort(seconds=20.0)
STORAGE = Storage(
    read_bytes_per_s=4096.0,
    write_bytes_per_s=2048.0,
    joules_per_byte_read=1e-4,
    joules_per_byte_written=3e-4,
    latency_s=0.0,
)


@pytest.mark.parametrize("storage", [None, STORAGE], ids=["recompute", "page"])
@pytest.mark.parametrize("seed", range(8))
def test_a_solution_means_a_valid_schedule_of_its_cost_inside_the_limit(seed: int, storage: Storage | None) -> None:
    graph = random_graph(seed, forward_ops=6, unit_bytes=4096)
    costs = random_costs(graph, seed)
    limit = int(0.8 * keep_all_floor(graph, "step", costs, None))
    problem = make_problem(graph, "step", costs, storage)
    model = build_model(problem, windowed_timeline(problem, 3), Aim(limit_bytes=limit, joules_weight=1.0))
    outcome = HighsProgram(model.program).solve(EFFORT)
    if outcome.status is Status.INFEASIBLE:
        return
    assert outcome.objective is not None
    found = replay(graph, "step", steps_of(model, outcome.values), costs, storage)
    assert found.temporary_peak_bytes <= limit
    assert found.joules == pytest.approx(outcome.objective * model.objective_scale)


# 0 is read first and last; 1 and 2, between, leave no room for it.
LONG_WAIT = instance([4, 5, 5, 1], [[], [0], [1], [0, 2]], [6, 1, 1, 1])


def solved_cost(problem: Problem, aim: Aim, *, pages: bool = True) -> float | None:
    model = build_model(problem, full_timeline(problem), aim, pages=pages)
    outcome = HighsProgram(model.program).solve(EFFORT)
    return None if outcome.objective is None else outcome.objective * model.objective_scale


def test_limits_on_time_energy_and_wear_are_held() -> None:
    problem = instance_problem(case(LONG_WAIT, 10, page=True))
    aim = Aim(limit_bytes=10, joules_weight=1.0)
    assert solved_cost(problem, aim) == pytest.approx(9.0 + 3.0)
    assert solved_cost(problem, Aim(limit_bytes=10, joules_weight=1.0, written_bytes=3)) == pytest.approx(9.0 + 6.0)
    assert solved_cost(problem, aim, pages=False) == pytest.approx(9.0 + 6.0)
    assert solved_cost(problem, Aim(limit_bytes=10, seconds_weight=1.0, energy_j=11.0)) is None
    assert solved_cost(problem, Aim(limit_bytes=10, joules_weight=1.0, deadline_s=9.0), pages=False) is None


def test_a_mix_weighs_seconds_and_joules() -> None:
    problem = instance_problem(case(LONG_WAIT, 10, page=True))
    mixed = solved_cost(problem, Aim(limit_bytes=10, seconds_weight=2.0, joules_weight=1.0))
    assert mixed == pytest.approx(2.0 * 9.0 + 12.0)  # paging: nine seconds, twelve joules


@pytest.mark.parametrize(("lanes", "seconds"), [("free", 4.0), ("dma", 4.0), ("synchronous", 4.0 + 1.0)])
def test_transfers_take_time_unless_a_lane_of_their_own_hides_them(lanes: Lanes, seconds: float) -> None:
    question = case(instance([4, 5, 5, 1], [[], [0], [1], [0, 2]]), 10, page=True, recompute=False)
    problem = instance_problem(question)
    assert problem.transfers is not None
    half_a_second = replace(problem.transfers, read_seconds=(0.5,) * 4, write_seconds=(0.5,) * 4)
    aim = Aim(limit_bytes=10, seconds_weight=1.0, lanes=lanes)
    assert solved_cost(replace(problem, transfers=half_a_second), aim) == pytest.approx(seconds)


def test_a_lane_with_more_transfers_than_computing_sets_the_time() -> None:
    question = case(instance([4, 5, 5, 1], [[], [0], [1], [0, 2]]), 10, page=True, recompute=False)
    problem = instance_problem(question)
    assert problem.transfers is not None
    slow = replace(problem.transfers, read_seconds=(3.0,) * 4, write_seconds=(3.0,) * 4)
    aim = Aim(limit_bytes=10, seconds_weight=1.0, lanes="dma")
    assert solved_cost(replace(problem, transfers=slow), aim) == pytest.approx(6.0)
    assert solved_cost(replace(problem, transfers=slow), replace(aim, stall_share=0.5)) == pytest.approx(9.0)


def test_a_tensor_is_written_to_storage_once_however_often_it_is_read() -> None:
    twice = instance([4, 5, 5, 1, 5, 5, 1], [[], [0], [1], [0, 2], [3], [4], [0, 5]], [9] * 7)
    question = case(twice, 10, page=True, recompute=False)
    problem = instance_problem(question)
    model = build_model(problem, full_timeline(problem), Aim(limit_bytes=10, joules_weight=1.0))
    steps = steps_of(model, HighsProgram(model.program).solve(EFFORT).values)
    assert steps.count(PageOut("0")) == 1
    assert replay_instance(question, steps).joules == 7 * 9 + 2 + 1 + 1
