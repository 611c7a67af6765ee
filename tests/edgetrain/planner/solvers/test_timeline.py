from __future__ import annotations

import pytest

from edgetrain.errors import InternalError
from edgetrain.planner.plan import Compute
from edgetrain.planner.solvers.greedy import quick_plans
from edgetrain.planner.solvers.problem import Problem, make_problem
from edgetrain.planner.solvers.timeline import Slot, full_timeline, slots_of, windowed_timeline
from tests.edgetrain.planner.questions import keep_all_floor
from tests.edgetrain.planner.training_graphs import chain, random_costs, random_graph, unit_costs


def chain_problem(layers: int) -> Problem:
    graph = chain(layers)
    return make_problem(graph, "step", unit_costs(graph), None)


def ops_of_stage(problem: Problem, timeline: tuple[Slot, ...], name: str) -> list[str]:
    return [problem.op_names[slot.op] for slot in timeline if problem.op_names[slot.stage] == name]


def test_every_op_has_one_first_slot_in_order() -> None:
    problem = chain_problem(4)
    for timeline in (full_timeline(problem), full_timeline(problem, passes=2), windowed_timeline(problem, 1)):
        assert [slot.op for slot in timeline if slot.is_first] == list(range(len(problem.op_names)))


def test_a_window_reaches_the_given_hops_before_what_a_stage_reads() -> None:
    problem = chain_problem(8)
    assert ops_of_stage(problem, windowed_timeline(problem, 0), "b5") == ["f4", "b5"]
    assert ops_of_stage(problem, windowed_timeline(problem, 2), "b5") == ["f2", "f3", "f4", "b5"]


def test_what_the_op_before_touched_opens_no_window() -> None:
    problem = chain_problem(8)
    # f5 reads what f4 just wrote; u5 reads what b5 just read, and its gradient.
    assert ops_of_stage(problem, windowed_timeline(problem, 3), "f5") == ["f5"]
    assert "f4" not in ops_of_stage(problem, windowed_timeline(problem, 3), "u5")


def test_an_op_has_no_slot_after_an_update_of_what_it_reads() -> None:
    problem = chain_problem(4)
    update = problem.op_names.index("u3")
    later = [slot for slot in full_timeline(problem) if slot.stage > update and not slot.is_first]
    assert later
    assert all(problem.op_names[slot.op] not in ("f3", "u3") for slot in later)


@pytest.mark.parametrize("seed", range(10))
def test_a_timeline_has_slots_for_the_plans_it_was_made_with(seed: int) -> None:
    graph = random_graph(seed, forward_ops=15)
    costs = random_costs(graph, seed)
    problem = make_problem(graph, "step", costs, None)
    plans = list(quick_plans(problem, int(0.6 * keep_all_floor(graph, "step", costs, None))))
    timeline = windowed_timeline(problem, 0, known=plans)
    for steps in plans:
        computed = [step.op for step in steps if isinstance(step, Compute)]
        slots = slots_of(problem, timeline, steps)
        assert [problem.op_names[timeline[slot].op] for slot in slots] == computed
        assert list(slots) == sorted(set(slots))


def test_a_run_without_a_slot_is_named() -> None:
    problem = chain_problem(3)
    names = list(problem.op_names)
    steps = [Compute(name) for name in (*names[:3], "f0", *names[3:])]
    with pytest.raises(InternalError, match="f0"):
        slots_of(problem, windowed_timeline(problem, 0), steps)
