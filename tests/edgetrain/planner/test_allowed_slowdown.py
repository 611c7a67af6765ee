from __future__ import annotations

from dataclasses import replace

import pytest

from edgetrain.planner.explain import explain
from edgetrain.planner.make_plan import make_plan
from edgetrain.planner.plan import Budget
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.targets.device import Storage
from edgetrain.units import Joules
from tests.edgetrain.planner.plan_checks import check, costs_of, with_evaluate
from tests.edgetrain.planner.training_graphs import chain, random_graph, unit_costs

STORAGE = Storage(
    read_bytes_per_s=1e12, write_bytes_per_s=1e12, joules_per_byte_read=0.0, joules_per_byte_written=0.0, latency_s=0.0
)
A_TENTH_SLOWER = SolverOptions(allowed_slowdown=0.1)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_a_plan_with_an_allowed_slowdown_is_valid_no_larger_and_costs_no_more_than_it_may(
    seed: int, share: float
) -> None:
    graph = with_evaluate(random_graph(seed, forward_ops=24))
    costs = costs_of(graph, seed)
    plan = make_plan(graph, Budget(), costs, options=SolverOptions(allowed_slowdown=share))
    check(graph, plan, costs)
    assert plan.keep_all_bytes is not None
    assert plan.keep_all_seconds is not None
    assert plan.peak_bytes <= plan.keep_all_bytes
    assert plan.seconds <= (1 + share) * plan.keep_all_seconds
    assert plan == make_plan(graph, Budget(), costs, options=SolverOptions(allowed_slowdown=share))


@pytest.mark.parametrize(("share", "runs"), [(0.05, 1), (0.1, 3), (0.2, 6)])
def test_of_equal_layers_as_many_run_again_as_the_share_pays_for(share: float, runs: int) -> None:
    graph = chain(10)  # 30 ops of the same cost
    plan = make_plan(graph, Budget(), {"step": unit_costs(graph)}, options=SolverOptions(allowed_slowdown=share))
    assert 0 < sum(explain(graph, plan).recomputed.values()) <= runs
    assert plan.peak_bytes < (plan.keep_all_bytes or 0)


def test_more_may_be_spent_and_more_is_saved() -> None:
    graph = chain(20)
    costs = {"step": unit_costs(graph)}
    peaks = [
        make_plan(graph, Budget(), costs, options=SolverOptions(allowed_slowdown=share)).peak_bytes
        for share in (0.0, 0.02, 0.1, 0.3)
    ]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < peaks[1] < peaks[0]


def test_nothing_is_paged_to_save_memory_nobody_asked_for() -> None:
    graph = chain(8, nbytes=8192)
    plan = make_plan(graph, Budget(), {"step": unit_costs(graph)}, storage=STORAGE, options=A_TENTH_SLOWER)
    assert plan.peak_bytes < (plan.keep_all_bytes or 0)
    assert not explain(graph, plan).paged


def test_limits_of_a_step_hold_with_an_allowed_slowdown_too() -> None:
    graph = chain(10)
    costs = {"step": unit_costs(graph)}
    kept = make_plan(graph, Budget(), costs)
    plan = make_plan(graph, Budget(energy_j=Joules(kept.joules)), costs, options=A_TENTH_SLOWER)
    assert (plan.peak_bytes, plan.joules) == (kept.peak_bytes, kept.joules)


@pytest.mark.parametrize("solver", ["keep-all", "sqrt-n"])
def test_keeping_everything_and_the_baselines_save_nothing_unasked(solver: str) -> None:
    graph = chain(10)
    plan = make_plan(graph, Budget(), {"step": unit_costs(graph)}, solver=solver, options=A_TENTH_SLOWER)
    assert plan.peak_bytes == plan.keep_all_bytes


def test_less_than_another_function_needs_is_not_looked_for() -> None:
    graph = chain(10)
    hungry = tuple(replace(op, scratch_bytes=(1 << 20,)) for op in graph.functions["step"][:1])
    graph = replace(graph, functions={**graph.functions, "evaluate": hungry})
    costs = {function: unit_costs(graph, function) for function in graph.functions}
    plan = make_plan(graph, Budget(), costs, options=A_TENTH_SLOWER)
    assert not explain(graph, plan).recomputed
