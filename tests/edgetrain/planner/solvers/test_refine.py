from __future__ import annotations

import pytest

from edgetrain.planner.plan import Compute, Free, PageIn, PageOut, Step, replay
from edgetrain.planner.solvers.evict import Policy, run_inside
from edgetrain.planner.solvers.keep_all import keep_all_steps
from edgetrain.planner.solvers.problem import make_problem
from edgetrain.planner.solvers.refine import refine
from edgetrain.targets.device import Storage
from tests.edgetrain.planner.questions import keep_all_floor
from tests.edgetrain.planner.training_graphs import chain, random_costs, random_graph, unit_costs

STORAGE = Storage(
    read_bytes_per_s=2048.0,
    write_bytes_per_s=2048.0,
    joules_per_byte_read=0.0,
    joules_per_byte_written=0.0,
    latency_s=0.0,
)


def page_a0(*, at: int) -> list[Step]:
    """A chain of 4 layers of 4096 bytes; `a0` is paged out when `f2` is done and in right before its last use."""
    steps = list(keep_all_steps(chain(4, 4096), "step"))
    use = steps.index(Compute("b1"))
    steps[use:use] = [PageIn("a0")]
    steps[at:at] = [PageOut("a0"), Free("a0")]
    return steps


def test_a_recomputation_that_memory_does_not_need_goes() -> None:
    graph = chain(4)
    costs = unit_costs(graph)
    problem = make_problem(graph, "step", costs, None)
    steps = list(keep_all_steps(graph, "step"))
    use = steps.index(Compute("b1"))
    steps[use:use] = [Compute("f0")]
    steps[2:2] = [Free("a0")]
    limit = keep_all_floor(graph, "step", costs, None)
    assert replay(graph, "step", steps, costs).recomputed == {"f0": 1}
    assert replay(graph, "step", refine(problem, steps, limit), costs).recomputed == {}


def test_a_paging_that_memory_does_not_need_goes_with_its_write() -> None:
    graph = chain(4, 4096)
    costs = unit_costs(graph)
    problem = make_problem(graph, "step", costs, STORAGE)
    refined = refine(problem, page_a0(at=3), 10**6)
    assert not any(isinstance(step, PageOut | PageIn) for step in refined)


def test_a_write_starts_right_after_the_tensor_is_made_and_a_read_before_it_is_needed() -> None:
    graph = chain(4, 4096)
    costs = unit_costs(graph)
    problem = make_problem(graph, "step", costs, STORAGE)
    steps = page_a0(at=3)
    limit = 4 * 4096
    before, refined = replay(graph, "step", steps, costs, STORAGE), refine(problem, steps, limit)
    after = replay(graph, "step", refined, costs, STORAGE)
    assert refined[:2] == (Compute("f0"), PageOut("a0"))
    assert refined.index(PageIn("a0")) < refined.index(Compute("u2"))
    assert after.seconds < before.seconds
    assert after.temporary_peak_bytes <= limit


@pytest.mark.parametrize("storage", [None, STORAGE])
@pytest.mark.parametrize("seed", range(20))
def test_refining_never_costs_more_computing_and_never_breaks_the_limit(seed: int, storage: Storage | None) -> None:
    graph = random_graph(seed, forward_ops=20, unit_bytes=1600)
    costs = random_costs(graph, seed)
    problem = make_problem(graph, "step", costs, storage)
    limit = int(0.75 * keep_all_floor(graph, "step", costs, None))
    policy = Policy(cost_power=1.0, size_power=1.0, distance_power=1.0, transfer_weight=0.1)
    steps = run_inside(problem, limit, policy)
    assert steps is not None
    before = replay(graph, "step", steps, costs, storage)
    after = replay(graph, "step", refine(problem, steps, limit), costs, storage)
    assert after.temporary_peak_bytes <= limit
    assert sum(after.recomputed.values()) <= sum(before.recomputed.values())
    assert after.paged_in_bytes <= before.paged_in_bytes
    assert after.joules <= before.joules + 1e-9
