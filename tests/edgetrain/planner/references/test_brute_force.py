from __future__ import annotations

import pytest

from edgetrain.errors import InternalError
from edgetrain.graph.ir import Phase, Role, TrainGraph
from edgetrain.planner.plan import Compute, replay
from edgetrain.planner.references.brute_force import solve_exactly
from edgetrain.targets.device import Storage
from tests.edgetrain.planner.questions import keep_all_floor
from tests.edgetrain.planner.training_graphs import chain, graph_of, op, tensor, unit_costs

FREE_STORAGE = Storage(
    read_bytes_per_s=1e6, write_bytes_per_s=1e6, joules_per_byte_read=0.0, joules_per_byte_written=0.0, latency_s=0.0
)


def test_with_enough_memory_every_op_runs_once() -> None:
    graph = chain(3)
    costs = unit_costs(graph)
    steps = solve_exactly(graph, "step", keep_all_floor(graph, "step", costs, None), costs)
    assert steps is not None
    assert [s for s in steps if isinstance(s, Compute)] == [Compute(o.name) for o in graph.functions["step"]]


def test_a_chain_one_tensor_short_recomputes_one_op() -> None:
    graph = chain(3)
    costs = unit_costs(graph)
    limit = keep_all_floor(graph, "step", costs, None) - 1024  # a0 and a1 cannot both wait for their backward ops
    steps = solve_exactly(graph, "step", limit, costs)
    assert steps is not None
    found = replay(graph, "step", steps, costs)
    assert found.temporary_peak_bytes <= limit
    assert found.recomputed in ({"f0": 1}, {"f1": 1})


def test_less_than_one_op_needs_is_infeasible() -> None:
    graph = chain(3)
    assert solve_exactly(graph, "step", 3 * 1024 - 1, unit_costs(graph)) is None


def once_only() -> TrainGraph:
    """`f` updates a statistic, so `a` cannot be recomputed; it waits while `b` and `c` fill memory."""
    return graph_of(
        [
            tensor("x", 64, Role.INPUT),
            tensor("s", 64, Role.STATE),
            tensor("a", 4096),
            tensor("b", 4096),
            tensor("c", 4096),
        ],
        [
            op("f", ("x", "s"), ("a", "s")),
            op("g", ("x",), ("b",)),
            op("h", ("b",), ("c",)),
            op("end", ("a",), (), Phase.UPDATE),
        ],
    )


def test_storage_makes_room_where_recomputing_may_not() -> None:
    graph = once_only()
    costs = unit_costs(graph)
    assert solve_exactly(graph, "step", 2 * 4096, costs, objective="joules") is None
    steps = solve_exactly(graph, "step", 2 * 4096, costs, FREE_STORAGE, objective="joules")
    assert steps is not None
    assert replay(graph, "step", steps, costs, FREE_STORAGE).temporary_peak_bytes == 2 * 4096


def test_minimising_seconds_with_storage_is_refused() -> None:
    graph = chain(2)
    with pytest.raises(InternalError, match="joules"):
        solve_exactly(graph, "step", 10**6, unit_costs(graph), FREE_STORAGE)
