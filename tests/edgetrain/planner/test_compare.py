from __future__ import annotations

import pytest

from edgetrain.planner.compare import Comparison, compare_solvers, comparison_text
from edgetrain.planner.known_solvers import SOLVERS
from edgetrain.planner.make_plan import make_plan
from edgetrain.planner.plan import Budget
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.targets.device import Storage
from edgetrain.units import Bytes
from tests.edgetrain.planner.training_graphs import chain, unit_costs

STORAGE = Storage(
    read_bytes_per_s=1e6, write_bytes_per_s=1e6, joules_per_byte_read=1e-4, joules_per_byte_written=1e-4, latency_s=0.0
)
GRAPH = chain(16, nbytes=8192)
COSTS = {"step": unit_costs(GRAPH)}


def budget_bytes() -> int:
    full = make_plan(GRAPH, Budget(), COSTS)
    return full.persistent_bytes + (full.peak_bytes - full.persistent_bytes) * 7 // 10


@pytest.fixture(scope="module")
def rows() -> tuple[Comparison, ...]:
    budget = Budget(memory_bytes=Bytes(budget_bytes()))
    options = SolverOptions(time_limit_s=2.0)
    return tuple(compare_solvers(GRAPH, budget, COSTS, storage=STORAGE, options=options))


def test_every_solver_has_its_row_and_plans_fit(rows: tuple[Comparison, ...]) -> None:
    assert [row.solver for row in rows] == list(SOLVERS)
    for row in rows:
        assert (row.peak_bytes is None) == bool(row.why)
        assert row.peak_bytes is None or row.peak_bytes <= budget_bytes()


def test_the_exact_solver_is_not_slower_than_any_other(rows: tuple[Comparison, ...]) -> None:
    seconds = {row.solver: row.seconds for row in rows if row.seconds is not None}
    assert {"milp", "greedy", "checkmate"} <= set(seconds)
    assert min(seconds.values()) == seconds["milp"]


def test_who_has_no_plan_says_why(rows: tuple[Comparison, ...]) -> None:
    reasons = {row.solver: row.why for row in rows if row.peak_bytes is None}
    assert "fits" in reasons["keep-all"]
    assert "at most" in reasons["poet"]


def test_the_table_has_a_line_for_each_solver_in_order(rows: tuple[Comparison, ...]) -> None:
    lines = comparison_text(rows).splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(SOLVERS)
