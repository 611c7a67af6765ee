from __future__ import annotations

import pytest

from edgetrain.errors import UsageError
from edgetrain.planner.references.brute_force import cheapest
from edgetrain.planner.references.instance_file import instance_problem, replay_instance
from edgetrain.planner.references.solve_instance import INSTANCE_SOLVERS, solve_instance
from tests.edgetrain.planner.plan_instances import case, instance, random_case

# 0 is read first and last; the big 1 and 2 lie between.
LONG_WAIT = instance([4, 5, 5, 1], [[], [0], [1], [0, 2]], [6, 1, 1, 1])


@pytest.mark.parametrize("seed", range(150))
def test_the_exact_solver_equals_brute_force(seed: int) -> None:
    question = random_case(seed)
    best = cheapest(instance_problem(question), question.memory_bytes, objective="joules")
    answer = solve_instance(question)
    assert answer["feasible"] == (best is not None)
    if best is not None:
        assert answer["objective"] == pytest.approx(replay_instance(question, best).joules, rel=1e-9)
        assert answer["gap"] == pytest.approx(0.0, abs=1e-5)


def test_paging_is_chosen_where_it_is_cheaper_than_running_again() -> None:
    assert solve_instance(case(LONG_WAIT, 14))["objective"] == 9.0  # everything fits
    assert solve_instance(case(LONG_WAIT, 10))["objective"] == 9.0 + 6.0
    assert solve_instance(case(LONG_WAIT, 10, page=True))["objective"] == 9.0 + 3.0


def test_a_deadline_makes_paging_win_over_running_again_and_forbids_it_without_storage() -> None:
    cheap = instance([4, 5, 5, 1], [[], [0], [1], [0, 2]], [2, 1, 1, 1])
    assert solve_instance(case(cheap, 10, page=True))["objective"] == 5.0 + 2.0
    assert solve_instance(case(cheap, 10, page=True, deadline_s=5.0))["objective"] == 5.0 + 3.0
    assert solve_instance(case(cheap, 10, deadline_s=5.0))["feasible"] is False


@pytest.mark.parametrize("solver", sorted(INSTANCE_SOLVERS))
def test_too_little_memory_is_infeasible_for_every_solver(solver: str) -> None:
    answer = solve_instance(case(LONG_WAIT, 9, page=True), solver=solver)
    assert (answer["feasible"], answer["objective"], answer["peak_bytes"], answer["gap"]) == (False, None, None, None)


@pytest.mark.parametrize("solver", sorted(INSTANCE_SOLVERS))
@pytest.mark.parametrize("seed", range(20))
def test_no_solver_beats_the_exact_one_or_leaves_the_memory(solver: str, seed: int) -> None:
    question = random_case(seed)
    exact, answer = solve_instance(question), solve_instance(question, solver=solver)
    if answer["feasible"]:
        assert exact["feasible"]
        assert isinstance(answer["peak_bytes"], int)
        assert answer["peak_bytes"] <= question.memory_bytes
        assert float(str(answer["objective"])) >= float(str(exact["objective"])) * (1 - 1e-9)


def test_the_answer_has_the_documented_fields() -> None:
    answer = solve_instance(case(LONG_WAIT, 14), solver="greedy")
    assert list(answer) == ["memory_bytes", "objective", "peak_bytes", "seconds", "gap", "feasible", "solver"]
    assert (answer["memory_bytes"], answer["peak_bytes"], answer["solver"]) == (14, 14, "greedy")


def test_an_unknown_solver_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="greedy, keep-all, milp") as error:
        solve_instance(case(LONG_WAIT, 14), solver="magic")
    assert "magic" in error.value.what
