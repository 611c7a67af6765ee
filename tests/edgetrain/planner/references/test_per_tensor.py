from __future__ import annotations

import math

import pytest

from edgetrain.planner.plan import PageIn, PageOut, replay
from edgetrain.planner.references.per_tensor import (
    Decisions,
    capuchin_order,
    decided_steps,
    longest_waits,
)
from edgetrain.planner.solvers.keep_all import keep_all_steps
from edgetrain.planner.solvers.problem import make_problem
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
BASELINES = ("sqrt-n", "swap-all", "capuchin")


def test_without_decisions_every_op_runs_once() -> None:
    graph = chain(5)
    problem = make_problem(graph, "step", unit_costs(graph), None)
    found = replay(graph, "step", decided_steps(problem, Decisions()), unit_costs(graph))
    assert found.recomputed == {}
    assert found.temporary_peak_bytes == keep_all_floor(graph, "step", unit_costs(graph), None)


def test_activations_of_a_chain_wait_from_their_last_forward_use_for_their_backward_op() -> None:
    graph = chain(4)
    problem = make_problem(graph, "step", unit_costs(graph), None)
    waits = {
        problem.tensor_names[w.tensor]: (problem.op_names[w.start], problem.op_names[w.end])
        for w in longest_waits(problem)
    }
    assert waits["a0"] == ("f1", "b1")
    assert "a2" not in waits, "f3, loss, b3: too short"


@pytest.mark.parametrize("layers", [16, 64, 144])
def test_a_chain_with_root_n_checkpoints_needs_two_roots_of_memory_and_runs_forward_once_more(layers: int) -> None:
    graph = chain(layers)
    costs = unit_costs(graph)
    limit = (2 * math.isqrt(layers) + 4) * 1024
    steps = solved("sqrt-n", graph, "step", limit, costs, None)
    assert steps is not None
    assert sum(replay(graph, "step", steps, costs).recomputed.values()) <= layers


def test_swapping_all_pages_each_waiting_tensor_out_and_in_once() -> None:
    graph = chain(6, nbytes=8192)
    costs = unit_costs(graph)
    steps = solved("swap-all", graph, "step", floor_of("swap-all", graph, "step", costs, STORAGE), costs, STORAGE)
    assert steps is not None
    out = [step.tensor for step in steps if isinstance(step, PageOut)]
    back = [step.tensor for step in steps if isinstance(step, PageIn)]
    assert len(out) == len(set(out))
    assert sorted(out) == sorted(back) == ["a0", "a1", "a2", "a3"]


def test_capuchin_lets_go_first_what_storage_hides() -> None:
    graph = chain(12, nbytes=8192)
    costs = unit_costs(graph)  # a second each: the first activations wait long enough for six seconds of transfers
    problem = make_problem(graph, "step", costs, STORAGE)
    order = capuchin_order(problem)
    assert (problem.tensor_names[order[0][0]], order[0][1]) == ("a0", True)
    assert any(not swaps for _, swaps in order), "short waits are cheaper to recompute"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("solver", BASELINES)
def test_a_baselines_plan_is_valid_inside_its_limit_and_its_floor_holds(solver: str, seed: int) -> None:
    graph = random_graph(seed, forward_ops=20, unit_bytes=4096)
    costs = random_costs(graph, seed)
    floor = floor_of(solver, graph, "step", costs, STORAGE)
    steps = solved(solver, graph, "step", floor, costs, STORAGE)
    assert steps is not None
    assert replay(graph, "step", steps, costs, STORAGE).temporary_peak_bytes <= floor
    assert solved(solver, graph, "step", floor - 1, costs, STORAGE) is None


@pytest.mark.parametrize("solver", BASELINES)
def test_a_baseline_keeps_all_where_that_fits(solver: str) -> None:
    graph = random_graph(0, forward_ops=20)
    costs = random_costs(graph, 0)
    assert solved(solver, graph, "step", None, costs, STORAGE) == keep_all_steps(graph, "step")
    assert floor_of("sqrt-n", graph, "step", costs, None) < keep_all_floor(graph, "step", costs, None)
    assert solved("capuchin", graph, "step", None, costs, None) == keep_all_steps(graph, "step")
