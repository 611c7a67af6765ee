from __future__ import annotations

import random

import pytest

from edgetrain.cost.analytic import StorageCost
from edgetrain.plan.schedule import Compute, PageIn, replay
from edgetrain.plan.solvers.brute_force import solve_exactly
from edgetrain.plan.solvers.keep_all import keep_all_steps
from edgetrain.plan.solvers.options import SolverOptions
from tests.edgetrain.plan.questions import answered, keep_all_floor, solved
from tests.edgetrain.plan.training_graphs import chain, random_costs, random_graph, unit_costs

STORAGE = StorageCost(
    read_bytes_per_s=4096.0, write_bytes_per_s=2048.0, joules_per_byte_read=1e-4, joules_per_byte_written=3e-4
)
SHORT = SolverOptions(time_limit_s=2.0)


@pytest.mark.parametrize("seed", range(60))
def test_on_small_graphs_it_equals_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    graph = random_graph(seed, forward_ops=rng.choice([2, 3, 4]))
    costs = random_costs(graph, seed)
    units = keep_all_floor(graph, "step", costs, None) // 64
    limit = 64 * rng.randint(int(0.4 * units), units)
    exact = solve_exactly(graph, "step", limit, costs)
    answer = answered("milp", graph, "step", limit, costs, None)
    if exact is None:
        assert answer.is_infeasible
    else:
        assert answer.cost == pytest.approx(replay(graph, "step", exact, costs).seconds)


@pytest.mark.parametrize("seed", range(10))
def test_with_storage_the_least_energy_equals_brute_force(seed: int) -> None:
    graph = random_graph(seed, forward_ops=2, unit_bytes=4096, max_units=2)
    costs = random_costs(graph, seed)
    full = keep_all_floor(graph, "step", costs, None)
    for limit in range(full, full // 2, -8192):
        exact = solve_exactly(graph, "step", limit, costs, STORAGE, objective="joules")
        answer = answered("milp", graph, "step", limit, costs, STORAGE, options=SolverOptions(objective="joules"))
        if exact is None:
            assert answer.is_infeasible
            return
        assert answer.cost == pytest.approx(replay(graph, "step", exact, costs, STORAGE).joules)


@pytest.mark.parametrize("seed", range(3))
def test_the_cost_never_rises_when_the_limit_grows(seed: int) -> None:
    graph = random_graph(seed, forward_ops=8)
    costs = random_costs(graph, seed)
    full = keep_all_floor(graph, "step", costs, None)
    seconds = [
        answered("milp", graph, "step", limit, costs, None).cost for limit in range(full // 2, full + 1, full // 8)
    ]
    found = [cost for cost in seconds if cost is not None]
    assert len(found) >= 3
    assert found == sorted(found, reverse=True)
    assert seconds[-len(found) :] == found, "a smaller limit had a plan and a larger one had none"


@pytest.mark.parametrize("storage", [None, STORAGE], ids=["recompute", "page"])
@pytest.mark.parametrize("seed", range(3))
def test_what_fits_unplanned_is_left_alone(seed: int, storage: StorageCost | None) -> None:
    graph = random_graph(seed, forward_ops=20)
    costs = random_costs(graph, seed)
    everything = keep_all_steps(graph, "step")
    full = keep_all_floor(graph, "step", costs, None)
    assert solved("milp", graph, "step", full, costs, storage) == everything
    assert solved("milp", graph, "step", None, costs, storage) == everything


@pytest.mark.parametrize("storage", [None, STORAGE], ids=["recompute", "page"])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_inside_the_limit_and_never_worse_than_greedy(seed: int, storage: StorageCost | None) -> None:
    graph = random_graph(seed, forward_ops=12, unit_bytes=4096)
    costs = random_costs(graph, seed)
    limit = int(0.6 * keep_all_floor(graph, "step", costs, None))
    quick = solved("greedy", graph, "step", limit, costs, storage)
    answer = answered("milp", graph, "step", limit, costs, storage, options=SHORT)
    assert quick is not None
    assert answer.steps is not None
    found = replay(graph, "step", answer.steps, costs, storage)
    assert found.temporary_peak_bytes <= limit
    assert found.seconds == answer.cost
    assert found.seconds <= replay(graph, "step", quick, costs, storage).seconds
    assert answer.bound is not None
    assert answer.bound <= found.seconds * (1 + 1e-9)


def test_checkmate_never_pages() -> None:
    graph = random_graph(1, forward_ops=12, unit_bytes=4096)
    costs = random_costs(graph, 1)
    limit = int(0.6 * keep_all_floor(graph, "step", costs, None))
    free = StorageCost(
        read_bytes_per_s=1e15, write_bytes_per_s=1e15, joules_per_byte_read=0.0, joules_per_byte_written=0.0
    )
    paged = solved("milp", graph, "step", limit, costs, free, options=SHORT)
    recomputed = solved("checkmate", graph, "step", limit, costs, free, options=SHORT)
    assert paged is not None
    assert recomputed is not None
    assert any(isinstance(step, PageIn) for step in paged)
    assert not any(isinstance(step, PageIn) for step in recomputed)


def test_a_deadline_that_no_schedule_meets_is_infeasible() -> None:
    graph = chain(6)
    costs = unit_costs(graph)
    limit = keep_all_floor(graph, "step", costs, None) - 1024
    needed = answered("milp", graph, "step", limit, costs, None)
    assert needed.cost == len(graph.functions["step"]) + 1
    strict = SolverOptions(deadline_s=type(costs["f0"].seconds)(needed.cost - 0.5))
    assert answered("milp", graph, "step", limit, costs, None, options=strict).steps is None


def test_no_op_runs_again_after_an_update_of_what_it_reads() -> None:
    graph = chain(10)
    costs = unit_costs(graph)
    steps = solved("milp", graph, "step", keep_all_floor(graph, "step", costs, None) // 2, costs, None, options=SHORT)
    assert steps is not None
    order = [step.op for step in steps if isinstance(step, Compute)]
    assert len(order) > len(set(order)), "nothing was recomputed, nothing was tested"
    for layer in range(10):
        assert f"f{layer}" not in order[order.index(f"u{layer}") :]
