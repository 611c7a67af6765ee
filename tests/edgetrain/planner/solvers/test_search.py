from __future__ import annotations

import pytest

from edgetrain.planner.plan import Step, replay
from edgetrain.planner.references.instance_file import Case, cost_inside, instance_problem
from edgetrain.planner.solvers import search as searching
from edgetrain.planner.solvers.answer import Answer
from edgetrain.planner.solvers.greedy import quick_plans
from edgetrain.planner.solvers.milp import answer_milp
from edgetrain.planner.solvers.search import SearchOptions, search
from edgetrain.planner.solvers.windowed_model import Aim
from tests.edgetrain.planner.plan_instances import case, instance, random_case
from tests.edgetrain.planner.questions import asked, keep_all_floor, solved
from tests.edgetrain.planner.training_graphs import random_costs, random_graph

LONG_WAIT = instance([4, 5, 5, 1], [[], [0], [1], [0, 2]], [6, 1, 1, 1])
OPTIONS = SearchOptions(time_limit_s=20.0)


def answer(question: Case, *, known: tuple[tuple[Step, ...], ...] = (), options: SearchOptions = OPTIONS) -> Answer:
    return search(
        instance_problem(question),
        Aim(limit_bytes=question.memory_bytes, joules_weight=1.0),
        lambda steps: cost_inside(question, steps),
        known=known,
        options=options,
    )


def test_without_any_known_plan_the_program_finds_one() -> None:
    found = answer(case(LONG_WAIT, 10))
    assert found.cost == 15.0
    assert found.gap == pytest.approx(0.0, abs=1e-6)


def test_an_op_that_does_not_fit_alone_is_infeasible_at_once() -> None:
    assert answer(case(LONG_WAIT, 9)) == Answer(steps=None, cost=None, bound=None, is_infeasible=True)


def test_a_proof_of_infeasibility_needs_the_whole_timeline() -> None:
    found = answer(case(LONG_WAIT, 10, recompute=False))
    assert (found.steps, found.is_infeasible) == (None, True)


def test_a_plan_that_the_caller_refuses_does_not_count() -> None:
    question = case(LONG_WAIT, 10)
    found = search(
        instance_problem(question),
        Aim(limit_bytes=10, joules_weight=1.0),
        lambda steps: None,
        known=quick_plans(instance_problem(question), 10),
        options=OPTIONS,
    )
    assert (found.steps, found.cost, found.is_infeasible) == (None, None, False)


@pytest.mark.parametrize("seed", range(12))
def test_cbc_agrees_with_highs(seed: int) -> None:
    question = random_case(seed)
    highs = answer(question)
    cbc = answer(question, options=SearchOptions(time_limit_s=20.0, mip_solver="cbc"))
    assert highs.cost == pytest.approx(cbc.cost) if highs.cost is not None else cbc.cost is None


def test_a_search_without_time_is_no_worse_than_what_was_known() -> None:
    graph = random_graph(3, forward_ops=40)
    costs = random_costs(graph, 3)
    limit = int(0.6 * keep_all_floor(graph, "step", costs, None))
    quick = solved("greedy", graph, "step", limit, costs, None)
    assert quick is not None
    hurried = answer_milp(asked(graph, "step", limit, costs, None), search_options=SearchOptions(time_limit_s=0.0))
    assert hurried.cost is not None
    assert hurried.cost <= replay(graph, "step", quick, costs).seconds
    assert hurried.bound is not None
    assert hurried.bound <= hurried.cost


@pytest.mark.parametrize("seed", [4, 9])
def test_neighbourhoods_alone_improve_a_plan(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time for the flat search, ranges of ops are solved one after another."""
    monkeypatch.setattr(searching, "_FLAT_SHARE", 0.0)
    graph = random_graph(seed, forward_ops=30)
    costs = random_costs(graph, seed)
    limit = int(0.6 * keep_all_floor(graph, "step", costs, None))
    quick = solved("greedy", graph, "step", limit, costs, None)
    assert quick is not None
    searched = answer_milp(asked(graph, "step", limit, costs, None), search_options=SearchOptions(time_limit_s=60.0))
    assert searched.cost is not None
    assert searched.cost < replay(graph, "step", quick, costs).seconds


def test_the_same_nodes_give_the_same_plan() -> None:
    graph = random_graph(4, forward_ops=20)
    costs = random_costs(graph, 4)
    limit = int(0.6 * keep_all_floor(graph, "step", costs, None))
    options = SearchOptions(time_limit_s=60.0, nodes=3)
    one, other = (answer_milp(asked(graph, "step", limit, costs, None), search_options=options) for _ in range(2))
    assert one.steps is not None
    assert one == other
