from __future__ import annotations

import pytest

from edgetrain.errors import UsageError
from edgetrain.planner.plan import replay
from edgetrain.planner.references.poet import MAX_OPS
from edgetrain.planner.references.solve_instance import solve_instance
from edgetrain.planner.solvers.keep_all import keep_all_steps
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.targets.device import Storage
from tests.edgetrain.planner.plan_instances import case, instance, random_case
from tests.edgetrain.planner.questions import answered, keep_all_floor, solved
from tests.edgetrain.planner.training_graphs import chain, random_costs, random_graph, unit_costs

STORAGE = Storage(
    read_bytes_per_s=4096.0,
    write_bytes_per_s=2048.0,
    joules_per_byte_read=1e-4,
    joules_per_byte_written=3e-4,
    latency_s=0.0,
)


@pytest.mark.parametrize("seed", range(25))
def test_our_program_is_never_dearer_than_poets_and_finds_a_plan_wherever_it_does(seed: int) -> None:
    """POET pages a whole stage ahead and counts more memory for it, so its best plan can be dearer."""
    question = random_case(seed)
    ours, theirs = solve_instance(question), solve_instance(question, solver="poet")
    if theirs["feasible"]:
        assert float(str(ours["objective"])) <= float(str(theirs["objective"])) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_without_paging_both_programs_have_the_same_optimum(seed: int) -> None:
    graph = random_graph(seed, forward_ops=4)
    costs = random_costs(graph, seed)
    limit = int(0.8 * keep_all_floor(graph, "step", costs, None))
    steps = solved("poet", graph, "step", limit, costs, None)
    ours = answered("milp", graph, "step", limit, costs, None, options=SolverOptions(energy_share=1.0))
    if steps is not None:
        assert replay(graph, "step", steps, costs).joules == pytest.approx(ours.cost)
    else:
        assert ours.is_infeasible


def test_poet_recomputes_where_that_is_the_only_way() -> None:
    question = case(instance([4, 5, 5, 1], [[], [0], [1], [0, 2]], [6, 1, 1, 1]), 10)
    assert solve_instance(question, solver="poet")["objective"] == 15.0


def test_what_fits_is_left_alone() -> None:
    graph = chain(4)
    costs = unit_costs(graph)
    full = keep_all_floor(graph, "step", costs, None)
    assert solved("poet", graph, "step", full, costs, STORAGE) == keep_all_steps(graph, "step")


def test_a_large_graph_is_refused_with_the_number() -> None:
    graph = chain(30)
    costs = unit_costs(graph)
    with pytest.raises(UsageError, match=f"at most {MAX_OPS} ops"):
        solved("poet", graph, "step", keep_all_floor(graph, "step", costs, None) - 64, costs, None)
