from __future__ import annotations

from typing import Any

import pulp
import pytest

from edgetrain.errors import UsageError
from edgetrain.planner.solvers.mip_solvers import Effort, Status, open_mip_program, require_mip_solver

# By our names, and one as PuLP spells it.
SOLVERS = ("highs", "cbc", "PULP_CBC_CMD")
EFFORT = Effort(seconds=20.0)


def knapsack(values: tuple[int, ...], weights: tuple[int, ...], room: int) -> Any:
    """Leaves out the least value such that the rest fits."""
    program = pulp.LpProblem("knapsack", pulp.LpMinimize)
    left_out = [program.add_variable(f"x{i}", cat=pulp.LpBinary) for i in range(len(values))]
    program.setObjective(pulp.lpSum(v * x for v, x in zip(values, left_out, strict=True)))
    program += pulp.lpSum(w * (1 - x) for w, x in zip(weights, left_out, strict=True)) <= room
    return program


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_optimum_is_found(solver: str) -> None:
    outcome = open_mip_program(solver, knapsack((6, 5, 4), (3, 2, 2), 4)).solve(EFFORT)
    assert outcome.status is Status.OPTIMAL
    assert outcome.objective == pytest.approx(6.0)
    assert {name for name, value in outcome.values.items() if value > 0.5} == {"x0"}


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_relaxation_bounds_from_below(solver: str) -> None:
    outcome = open_mip_program(solver, knapsack((6, 5, 4), (3, 2, 2), 4)).relax(EFFORT)
    assert outcome.bound == pytest.approx(6.0)  # three units too many, at no less than two a unit


@pytest.mark.parametrize("solver", SOLVERS)
def test_fixed_variables_hold_for_one_call_only(solver: str) -> None:
    program = open_mip_program(solver, knapsack((6, 5, 4), (3, 2, 2), 4))
    assert program.solve(EFFORT, fixed={"x0": 0.0}).objective == pytest.approx(9.0)
    assert program.solve(EFFORT).objective == pytest.approx(6.0)


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_infeasible_program_is_recognised(solver: str) -> None:
    program = open_mip_program(solver, knapsack((6, 5, 4), (3, 2, 2), 4))
    outcome = program.solve(EFFORT, fixed={"x0": 0.0, "x1": 0.0})
    assert (outcome.status, outcome.objective, dict(outcome.values)) == (Status.INFEASIBLE, None, {})


def test_highs_reports_its_bound_and_takes_a_start() -> None:
    program = open_mip_program("highs", knapsack((6, 5, 4, 9, 3), (3, 2, 2, 5, 1), 6))
    outcome = program.solve(EFFORT, start={"x0": 1.0, "x1": 0.0, "x2": 0.0, "x3": 1.0, "x4": 1.0})
    assert outcome.status is Status.OPTIMAL
    assert outcome.bound == pytest.approx(outcome.objective)


def test_a_node_limit_ends_the_search_without_an_error() -> None:
    values, weights = tuple(range(20, 60)), tuple((7 * i) % 23 + 5 for i in range(40))
    program = knapsack(values, weights, sum(weights) // 2)
    outcome = open_mip_program("highs", program).solve(Effort(seconds=20.0, nodes=1))
    assert outcome.status is not Status.INFEASIBLE
    assert outcome.bound is not None
    if outcome.objective is not None:
        assert outcome.bound <= outcome.objective + 1e-6


def test_a_solver_that_nobody_knows_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="there is no MIP solver `magic`") as caught:
        open_mip_program("magic", knapsack((1,), (1,), 1))
    assert "highs, cbc" in caught.value.fix


def test_a_solver_that_is_not_installed_says_which_are(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {False: ["HiGHS", "SCIP_CMD"], True: ["HiGHS"]}
    monkeypatch.setattr(pulp, "listSolvers", lambda onlyAvailable=False: listed[onlyAvailable])  # noqa: N803
    require_mip_solver("HiGHS")
    with pytest.raises(UsageError, match="`SCIP_CMD` is not installed") as caught:
        require_mip_solver("SCIP_CMD")
    assert caught.value.why == "PuLP finds HiGHS"
