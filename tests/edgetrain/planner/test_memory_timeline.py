from __future__ import annotations

import pytest

from edgetrain.graph.ir import TrainGraph
from edgetrain.planner.explain import explain, replay_bytes
from edgetrain.planner.make_plan import CostsByFunction, make_plan, smallest_plan
from edgetrain.planner.memory_timeline import LAYERS, PAGE_BUFFERS, memory_timeline
from edgetrain.planner.plan import Budget, Free
from edgetrain.targets.device import Storage
from edgetrain.units import Bytes
from tests.edgetrain.planner.training_graphs import chain, random_graph, unit_costs

STORAGE = Storage(
    read_bytes_per_s=1e9, write_bytes_per_s=1e9, joules_per_byte_read=1e-9, joules_per_byte_written=1e-9, latency_s=0.0
)


def costs_of(graph: TrainGraph) -> CostsByFunction:
    return {"step": unit_costs(graph)}


@pytest.mark.parametrize("seed", range(10))
def test_the_layers_of_each_moment_add_up_to_what_the_replay_has_in_memory(seed: int) -> None:
    graph = random_graph(seed, forward_ops=8)
    plan = smallest_plan(graph, Budget(), costs_of(graph))
    moments = memory_timeline(graph, plan).moments
    function_plan = plan.functions["step"]
    live = replay_bytes(graph, function_plan).memory_timeline
    expected = [
        plan.persistent_bytes + nbytes
        for step, nbytes in zip(function_plan.steps, live, strict=True)
        if not isinstance(step, Free)
    ]
    assert [moment.nbytes for moment in moments] == expected
    assert all(tuple(moment.bytes_by_layer) == LAYERS for moment in moments)


@pytest.mark.parametrize("seed", range(5))
def test_the_peak_is_the_one_that_the_explanation_names(seed: int) -> None:
    graph = random_graph(seed, forward_ops=8)
    plan = smallest_plan(graph, Budget(), costs_of(graph))
    timeline, explanation = memory_timeline(graph, plan), explain(graph, plan)
    peak = timeline.moments[timeline.peak]
    assert peak.nbytes + explanation.fragmentation_bytes == plan.peak_bytes == timeline.needed_bytes
    assert peak.nbytes == max(moment.nbytes for moment in timeline.moments)


def test_a_second_run_of_an_op_is_marked_as_such() -> None:
    graph = chain(12)
    plan = smallest_plan(graph, Budget(), costs_of(graph))
    recomputed = [moment.name for moment in memory_timeline(graph, plan).moments if moment.kind == "recompute"]
    assert sorted(set(recomputed)) == sorted(name.partition("/")[2] for name in explain(graph, plan).recomputed)
    assert len(recomputed) == sum(explain(graph, plan).recomputed.values()) > 0


def test_a_paged_tensor_counts_as_a_page_buffer_and_each_transfer_is_a_moment() -> None:
    graph = chain(6, nbytes=65536)
    full = make_plan(graph, Budget(), costs_of(graph))
    budget = Budget(memory_bytes=Bytes(full.peak_bytes * 3 // 4))
    plan = make_plan(graph, budget, costs_of(graph), solver="swap-all", storage=STORAGE)
    timeline = memory_timeline(graph, plan)
    kinds = [moment.kind for moment in timeline.moments]
    assert kinds.count("page in") == kinds.count("page out") > 0
    out = next(moment for moment in timeline.moments if moment.kind == "page out")
    assert out.bytes_by_layer[PAGE_BUFFERS] >= 65536
    assert timeline.budget_bytes == budget.memory_bytes
