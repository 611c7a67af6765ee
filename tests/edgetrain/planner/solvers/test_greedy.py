from __future__ import annotations

import math

import pytest

from edgetrain.planner.known_solvers import FLOORS, SOLVERS
from edgetrain.planner.plan import Compute, replay
from edgetrain.planner.references.brute_force import solve_exactly
from edgetrain.planner.solvers.keep_all import keep_all_steps
from edgetrain.targets.device import Storage
from tests.edgetrain.planner.questions import floor_of, keep_all_floor, solved
from tests.edgetrain.planner.training_graphs import chain, random_costs, random_graph, unit_costs

STORAGE = Storage(
    read_bytes_per_s=4096.0,
    write_bytes_per_s=2048.0,
    joules_per_byte_read=1e-4,
    joules_per_byte_written=3e-4,
    latency_s=0.0,
)


@pytest.mark.parametrize("seed", range(30))
def test_greedy_is_never_better_than_the_exact_answer_nor_feasible_without_one(seed: int) -> None:
    graph = random_graph(seed, forward_ops=3)
    costs = random_costs(graph, seed)
    everything = keep_all_floor(graph, "step", costs, None)
    for limit in range(everything, 0, -64):
        exact = solve_exactly(graph, "step", limit, costs)
        greedy = solved("greedy", graph, "step", limit, costs, None)
        if exact is None:
            assert greedy is None
            break
        if greedy is not None:
            found = replay(graph, "step", greedy, costs)
            assert found.temporary_peak_bytes <= limit
            assert found.seconds >= replay(graph, "step", exact, costs).seconds


def test_greedy_mostly_finds_the_exact_answer_on_tiny_graphs() -> None:
    best, total = 0, 0
    for seed in range(12):
        graph = random_graph(seed, forward_ops=3)
        costs = random_costs(graph, seed)
        for limit in range(keep_all_floor(graph, "step", costs, None) - 64, 0, -64):
            exact = solve_exactly(graph, "step", limit, costs)
            if exact is None:
                break
            greedy = solved("greedy", graph, "step", limit, costs, None)
            total += 1
            best += greedy is not None and (
                replay(graph, "step", greedy, costs).seconds == replay(graph, "step", exact, costs).seconds
            )
    assert total >= 20
    assert best >= 0.9 * total


@pytest.mark.parametrize("seed", range(8))
def test_with_storage_greedy_pays_no_less_energy_than_the_exact_answer(seed: int) -> None:
    graph = random_graph(seed, forward_ops=2, unit_bytes=4096, max_units=2)
    costs = random_costs(graph, seed)
    for limit in range(keep_all_floor(graph, "step", costs, None), 0, -4096):
        exact = solve_exactly(graph, "step", limit, costs, STORAGE, objective="joules")
        greedy = solved("greedy", graph, "step", limit, costs, STORAGE)
        if exact is None:
            assert greedy is None
            break
        if greedy is not None:
            found = replay(graph, "step", greedy, costs, STORAGE)
            assert found.temporary_peak_bytes <= limit
            assert found.joules >= replay(graph, "step", exact, costs, STORAGE).joules - 1e-9


@pytest.mark.parametrize("layers", [16, 64, 144])
def test_a_chain_needs_two_roots_of_its_length_and_less_than_one_more_forward_pass(layers: int) -> None:
    graph = chain(layers)
    costs = unit_costs(graph)
    limit = (2 * math.isqrt(layers) + 3) * 1024  # checkpoints, a segment, and two gradients with an output
    steps = solved("greedy", graph, "step", limit, costs, None)
    assert steps is not None
    found = replay(graph, "step", steps, costs)
    assert found.temporary_peak_bytes <= limit
    assert sum(found.recomputed.values()) < layers


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.8, 0.5, 0.3])
def test_random_training_graphs_stay_inside_the_limit(seed: int, share: float) -> None:
    graph = random_graph(seed, forward_ops=40)
    costs = random_costs(graph, seed)
    limit = int(share * keep_all_floor(graph, "step", costs, None))
    steps = solved("greedy", graph, "step", limit, costs, None)
    if steps is None:
        assert floor_of("greedy", graph, "step", costs, None) > limit
    else:
        assert replay(graph, "step", steps, costs).temporary_peak_bytes <= limit


@pytest.mark.parametrize("seed", range(6))
def test_storage_reaches_limits_that_recomputing_does_not_and_keeps_them(seed: int) -> None:
    graph = random_graph(seed, forward_ops=25, unit_bytes=4096)
    costs = random_costs(graph, seed)
    without = floor_of("greedy", graph, "step", costs, None)
    floor = floor_of("greedy", graph, "step", costs, STORAGE)
    assert floor <= without
    steps = solved("greedy", graph, "step", floor, costs, STORAGE)
    assert steps is not None
    assert replay(graph, "step", steps, costs, STORAGE).temporary_peak_bytes <= floor


def test_without_need_nothing_is_recomputed() -> None:
    graph = chain(10)
    costs = unit_costs(graph)
    assert solved("greedy", graph, "step", None, costs, None) == keep_all_steps(graph, "step")
    floor = keep_all_floor(graph, "step", costs, None)
    assert solved("greedy", graph, "step", floor, costs, None) == keep_all_steps(graph, "step")


def test_first_runs_keep_the_order_of_the_function() -> None:
    graph = random_graph(3, forward_ops=40)
    costs = unit_costs(graph)
    steps = solved("greedy", graph, "step", keep_all_floor(graph, "step", costs, None) // 2, costs, None)
    assert steps is not None
    first_runs = dict.fromkeys(step.op for step in steps if isinstance(step, Compute))
    assert list(first_runs) == [o.name for o in graph.functions["step"]]


@pytest.mark.parametrize("seed", range(4))
def test_the_smallest_feasible_limit_is_feasible_and_far_below_keep_all(seed: int) -> None:
    graph = random_graph(seed, forward_ops=40)
    costs = random_costs(graph, seed)
    floor = floor_of("greedy", graph, "step", costs, None)
    assert floor < 0.7 * keep_all_floor(graph, "step", costs, None)
    assert solved("greedy", graph, "step", floor, costs, None) is not None


def test_solving_twice_gives_the_same_steps() -> None:
    graph = random_graph(5, forward_ops=30)
    costs = random_costs(graph, 5)
    limit = keep_all_floor(graph, "step", costs, None) // 2
    assert solved("greedy", graph, "step", limit, costs, None) == solved("greedy", graph, "step", limit, costs, None)


def test_every_solver_has_a_floor() -> None:
    assert set(SOLVERS) == set(FLOORS)
