from __future__ import annotations

import pytest

from edgetrain.graph.ir import Role
from edgetrain.planner.plan import PageIn, PageOut, replay
from edgetrain.planner.solvers.evict import Policy, run_inside
from edgetrain.planner.solvers.problem import make_problem
from edgetrain.targets.device import Storage
from tests.edgetrain.planner.questions import keep_all_floor
from tests.edgetrain.planner.training_graphs import chain, graph_of, op, random_costs, random_graph, tensor, unit_costs

POLICY = Policy(cost_power=1.0, size_power=1.0, distance_power=1.0)
FAST_STORAGE = Storage(
    read_bytes_per_s=1e9, write_bytes_per_s=1e9, joules_per_byte_read=0.0, joules_per_byte_written=0.0, latency_s=0.0
)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("powers", [(1.0, 1.0, 1.0), (0.0, 1.0, 1.0), (1.0, 1.0, 0.0), (0.0, 0.0, 0.0)])
def test_every_policy_gives_valid_plans_inside_the_limit(seed: int, powers: tuple[float, float, float]) -> None:
    graph = random_graph(seed, forward_ops=12 + seed)
    costs = random_costs(graph, seed)
    problem = make_problem(graph, "step", costs, None)
    everything = keep_all_floor(graph, "step", costs, None)
    policy = Policy(cost_power=powers[0], size_power=powers[1], distance_power=powers[2])
    answers = [run_inside(problem, limit, policy) for limit in range(everything, 0, -everything // 8)]
    assert answers[0] is not None  # with room for everything, any policy succeeds
    for limit, steps in zip(range(everything, 0, -everything // 8), answers, strict=True):
        if steps is not None:
            assert replay(graph, "step", steps, costs).temporary_peak_bytes <= limit


@pytest.mark.parametrize("seed", range(15))
def test_paging_policies_give_valid_plans_inside_the_limit(seed: int) -> None:
    graph = random_graph(seed, forward_ops=15, unit_bytes=1600)  # odd sizes: rounding up to pages matters
    costs = random_costs(graph, seed)
    problem = make_problem(graph, "step", costs, FAST_STORAGE)
    policy = Policy(cost_power=1.0, size_power=1.0, distance_power=1.0, transfer_weight=1.0)
    limit = int(0.75 * keep_all_floor(graph, "step", costs, None))
    steps = run_inside(problem, limit, policy)
    assert steps is not None
    assert any(isinstance(step, PageOut) for step in steps)
    assert replay(graph, "step", steps, costs, FAST_STORAGE).temporary_peak_bytes <= limit


def test_a_tensor_is_written_to_storage_once_however_often_it_comes_back() -> None:
    graph = random_graph(2, forward_ops=30, unit_bytes=4096)
    costs = unit_costs(graph)
    problem = make_problem(graph, "step", costs, FAST_STORAGE)
    policy = Policy(cost_power=1.0, size_power=1.0, distance_power=0.0, transfer_weight=1.0)
    steps = run_inside(problem, keep_all_floor(graph, "step", costs, None) // 3, policy)
    assert steps is not None
    written = [step.tensor for step in steps if isinstance(step, PageOut)]
    read = [step.tensor for step in steps if isinstance(step, PageIn)]
    assert len(written) == len(set(written))
    assert set(read) <= set(written)


def test_a_policy_gives_up_on_plans_that_are_too_slow() -> None:
    graph = chain(20)
    costs = unit_costs(graph)
    problem = make_problem(graph, "step", costs, None)
    limit = keep_all_floor(graph, "step", costs, None) // 2
    steps = run_inside(problem, limit, POLICY)
    assert steps is not None
    seconds = replay(graph, "step", steps, costs).seconds
    assert run_inside(problem, limit, POLICY, give_up_s=seconds) is None
    assert run_inside(problem, limit, POLICY, give_up_s=seconds + 1) == steps


def test_tensors_without_elements_are_no_victims() -> None:
    graph = graph_of(
        [tensor("x", 64, Role.INPUT), tensor("empty", 0), tensor("big", 1024), tensor("other", 1024)],
        [
            op("nothing", ("x",), ("empty",)),
            op("big", ("x",), ("big",)),
            op("other", ("x",), ("other",)),
            op("end", ("big", "empty"), ()),
        ],
    )
    costs = unit_costs(graph)
    steps = run_inside(make_problem(graph, "step", costs, None), 1024, POLICY)
    assert steps is not None
    assert replay(graph, "step", steps, costs).recomputed == {"big": 1}


def test_too_little_for_one_op_is_infeasible() -> None:
    graph = chain(4)
    problem = make_problem(graph, "step", unit_costs(graph), None)
    assert run_inside(problem, 3 * 1024 - 1, POLICY) is None
