from __future__ import annotations

import random
from dataclasses import replace

import pytest

from edgetrain.planner.plan import Compute, PageIn, replay
from edgetrain.planner.references.brute_force import solve_exactly
from edgetrain.planner.solvers.keep_all import keep_all_steps
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.targets.device import Storage
from edgetrain.units import Bytes, Joules, Seconds
from tests.edgetrain.planner.questions import answered, keep_all_floor, solved
from tests.edgetrain.planner.training_graphs import chain, random_costs, random_graph, unit_costs

STORAGE = Storage(
    read_bytes_per_s=4096.0,
    write_bytes_per_s=2048.0,
    joules_per_byte_read=1e-4,
    joules_per_byte_written=3e-4,
    latency_s=0.0,
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
        answer = answered("milp", graph, "step", limit, costs, STORAGE, options=SolverOptions(energy_share=1.0))
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
def test_what_fits_unplanned_is_left_alone(seed: int, storage: Storage | None) -> None:
    graph = random_graph(seed, forward_ops=20)
    costs = random_costs(graph, seed)
    everything = keep_all_steps(graph, "step")
    full = keep_all_floor(graph, "step", costs, None)
    assert solved("milp", graph, "step", full, costs, storage) == everything
    assert solved("milp", graph, "step", None, costs, storage) == everything


@pytest.mark.parametrize("storage", [None, STORAGE], ids=["recompute", "page"])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_inside_the_limit_and_never_worse_than_greedy(seed: int, storage: Storage | None) -> None:
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
    free = Storage(
        read_bytes_per_s=1e15,
        write_bytes_per_s=1e15,
        joules_per_byte_read=0.0,
        joules_per_byte_written=0.0,
        latency_s=0.0,
    )
    paged = solved("milp", graph, "step", limit, costs, free, options=SHORT)
    recomputed = solved("checkmate", graph, "step", limit, costs, free, options=SHORT)
    assert paged is not None
    assert recomputed is not None
    assert any(isinstance(step, PageIn) for step in paged)
    assert not any(isinstance(step, PageIn) for step in recomputed)


def test_a_deadline_that_no_plan_meets_is_infeasible() -> None:
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


@pytest.mark.parametrize("share", [0.25, 0.75])
@pytest.mark.parametrize("seed", range(8))
def test_the_least_mix_of_time_and_energy_equals_brute_force(seed: int, share: float) -> None:
    """Brute force over the mix as if it were seconds: without storage a plan's cost is a sum over its ops."""
    graph = random_graph(seed, forward_ops=3)
    costs = random_costs(graph, seed)
    limit = int(0.7 * keep_all_floor(graph, "step", costs, None))
    total_s, total_j = sum(c.seconds for c in costs.values()), sum(c.joules for c in costs.values())
    mixed = {
        name: replace(c, seconds=Seconds((1 - share) * c.seconds / total_s + share * c.joules / total_j))
        for name, c in costs.items()
    }
    exact = solve_exactly(graph, "step", limit, mixed)
    answer = answered("milp", graph, "step", limit, costs, None, options=SolverOptions(energy_share=share))
    if exact is None:
        assert answer.is_infeasible
    else:
        assert answer.cost == pytest.approx(replay(graph, "step", exact, mixed).seconds)


def test_a_mix_lies_between_the_fastest_and_the_most_frugal() -> None:
    graph = random_graph(3, forward_ops=6, unit_bytes=4096)
    costs = random_costs(graph, 3)
    limit = int(0.7 * keep_all_floor(graph, "step", costs, None))
    found = []
    for share in (0.0, 0.5, 1.0):
        options = SolverOptions(energy_share=share)
        steps = solved("milp", graph, "step", limit, costs, replace(STORAGE, overlaps=False), options=options)
        assert steps is not None
        found.append(replay(graph, "step", steps, costs, replace(STORAGE, overlaps=False)))
    fastest, mixed, frugal = found
    assert fastest.seconds <= mixed.seconds <= frugal.seconds
    assert fastest.joules >= mixed.joules >= frugal.joules
    assert fastest.joules > frugal.joules, "all three are the same, nothing was tested"


@pytest.mark.parametrize("seed", range(6))
def test_on_storage_that_does_not_overlap_the_least_time_equals_brute_force(seed: int) -> None:
    """Then seconds add up as joules do, and brute force over joules knows the optimum."""
    waits = replace(STORAGE, overlaps=False)
    graph = random_graph(seed, forward_ops=2, unit_bytes=4096, max_units=2)
    costs = random_costs(graph, seed)
    as_joules = {name: replace(c, joules=Joules(c.seconds)) for name, c in costs.items()}
    priced = replace(
        waits,
        joules_per_byte_read=1 / waits.read_bytes_per_s,
        joules_per_byte_written=1 / waits.write_bytes_per_s,
    )
    limit = int(0.75 * keep_all_floor(graph, "step", costs, None))
    exact = solve_exactly(graph, "step", limit, as_joules, priced, objective="joules")
    answer = answered("milp", graph, "step", limit, costs, waits)
    if exact is None:
        assert answer.is_infeasible
    else:
        assert answer.cost == pytest.approx(replay(graph, "step", exact, costs, waits).seconds)


@pytest.mark.parametrize("solver", ["milp", "greedy"])
def test_no_more_is_written_to_storage_than_the_wear_allows(solver: str) -> None:
    graph = random_graph(1, forward_ops=12, unit_bytes=4096)
    costs = random_costs(graph, 1)
    limit = int(0.6 * keep_all_floor(graph, "step", costs, None))
    free = Storage(
        read_bytes_per_s=1e15,
        write_bytes_per_s=1e15,
        joules_per_byte_read=0.0,
        joules_per_byte_written=0.0,
        latency_s=0.0,
    )
    written: list[int] = []
    seconds: list[float] = []
    for most in (None, 16384, 0):
        options = replace(SHORT, written_bytes=None if most is None else Bytes(most))
        steps = solved(solver, graph, "step", limit, costs, free, options=options)
        assert steps is not None
        found = replay(graph, "step", steps, costs, free)
        written.append(found.paged_out_bytes)
        seconds.append(found.seconds)
    assert written[0] > 16384 >= written[1]
    assert written[2] == 0
    assert seconds == sorted(seconds)
