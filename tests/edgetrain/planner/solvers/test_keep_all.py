from __future__ import annotations

import pytest

from edgetrain.planner.plan import Compute, Free, replay
from edgetrain.planner.solvers.keep_all import keep_all_steps
from tests.edgetrain.planner.questions import keep_all_floor, solved
from tests.edgetrain.planner.training_graphs import chain, random_graph, unit_costs


def test_a_chain_is_computed_in_order_and_freed_after_the_last_read() -> None:
    assert keep_all_steps(chain(2), "step") == (
        Compute("f0"),
        Compute("f1"),
        Compute("loss"),
        Free("a1"),
        Compute("b1"),
        Compute("u1"),
        Free("g1"),
        Free("a0"),
        Compute("u0"),
        Free("g0"),
    )


@pytest.mark.parametrize("seed", range(10))
def test_keep_all_holds_at_each_op_only_what_that_op_or_a_later_one_touches(seed: int) -> None:
    graph = random_graph(seed, forward_ops=15)
    ops = graph.functions["step"]
    steps = keep_all_steps(graph, "step")
    found = replay(graph, "step", steps, unit_costs(graph))
    computes = [index for index, step in enumerate(steps) if isinstance(step, Compute)]
    for position, index in enumerate(computes):
        made = {n for o in ops[: position + 1] for n in o.writes}
        wanted = {n for o in ops[position:] for n in (*o.reads, *o.writes)}
        live = {n for n in made & wanted if graph.tensors[n].is_temporary}
        expected = sum(graph.tensors[n].nbytes for n in live) + ops[position].total_scratch_bytes
        assert found.memory_timeline[index] == expected  # sizes of random graphs are multiples of the alignment


def test_keep_all_fits_exactly_from_its_floor_on() -> None:
    graph = chain(5)
    costs = unit_costs(graph)
    floor = keep_all_floor(graph, "step", costs, None)
    assert solved("keep-all", graph, "step", floor, costs, None) == keep_all_steps(graph, "step")
    assert solved("keep-all", graph, "step", floor - 1, costs, None) is None
