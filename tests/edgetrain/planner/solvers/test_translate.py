from __future__ import annotations

import pytest

from edgetrain.planner.plan import replay
from edgetrain.planner.solvers.greedy import quick_plans
from edgetrain.planner.solvers.mip_solvers import Effort, HighsProgram, Status
from edgetrain.planner.solvers.problem import make_problem
from edgetrain.planner.solvers.timeline import windowed_timeline
from edgetrain.planner.solvers.translate import steps_of, values_of
from edgetrain.planner.solvers.windowed_model import Aim, build_model
from tests.edgetrain.planner.questions import keep_all_floor
from tests.edgetrain.planner.training_graphs import random_costs, random_graph

EFFORT = Effort(seconds=20.0)


@pytest.mark.parametrize("seed", range(8))
def test_a_plan_survives_encoding_and_decoding(seed: int) -> None:
    graph = random_graph(seed, forward_ops=12)
    costs = random_costs(graph, seed)
    problem = make_problem(graph, "step", costs, None)
    limit = int(0.6 * keep_all_floor(graph, "step", costs, None))
    plans = list(quick_plans(problem, limit))
    model = build_model(problem, windowed_timeline(problem, 2, known=plans), Aim(limit_bytes=limit, seconds_weight=1.0))
    for steps in plans:
        again = replay(graph, "step", steps_of(model, values_of(model, steps)), costs)
        before = replay(graph, "step", steps, costs)
        assert (again.seconds, again.recomputed) == (before.seconds, before.recomputed)
        assert again.temporary_peak_bytes <= limit


@pytest.mark.parametrize("seed", range(8))
def test_the_program_accepts_what_the_quick_solver_found(seed: int) -> None:
    graph = random_graph(seed, forward_ops=8)
    costs = random_costs(graph, seed)
    problem = make_problem(graph, "step", costs, None)
    limit = int(0.7 * keep_all_floor(graph, "step", costs, None))
    for steps in list(quick_plans(problem, limit))[:4]:
        timeline = windowed_timeline(problem, 1, known=[steps])
        model = build_model(problem, timeline, Aim(limit_bytes=limit, seconds_weight=1.0))
        outcome = HighsProgram(model.program).solve(EFFORT, fixed=values_of(model, steps))
        assert outcome.status is Status.OPTIMAL
        assert outcome.objective is not None
        seconds = replay(graph, "step", steps, costs).seconds
        assert outcome.objective * model.objective_scale == pytest.approx(seconds)
