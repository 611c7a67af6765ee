"""What every plan is checked for, whoever made it."""

from __future__ import annotations

from dataclasses import replace

from edgetrain.graph.ir import Phase, TrainGraph
from edgetrain.planner.make_plan import CostsByFunction
from edgetrain.planner.plan import Plan, replay
from edgetrain.targets.device import Storage
from tests.edgetrain.planner.training_graphs import random_costs


def with_evaluate(graph: TrainGraph) -> TrainGraph:
    """The forward ops as a second function, as real graphs have."""
    forward = tuple(o for o in graph.functions["step"] if o.phase is Phase.FORWARD)
    return replace(graph, functions={**graph.functions, "evaluate": forward})


def costs_of(graph: TrainGraph, seed: int = 0) -> CostsByFunction:
    return {function: random_costs(graph, seed, function) for function in graph.functions}


def check(graph: TrainGraph, plan: Plan, costs: CostsByFunction, storage: Storage | None = None) -> None:
    """Everything a program relies on, derived again from the plan's own steps and offsets."""
    for function, function_plan in plan.functions.items():
        found = replay(graph, function, function_plan.steps, costs[function], storage)
        assert [(s.tensor, s.start, s.end, s.nbytes) for s in found.stays] == [
            (p.tensor, p.start, p.end, p.nbytes) for p in function_plan.placements
        ]
        for stay, placement in zip(found.stays, function_plan.placements, strict=True):
            assert placement.offset >= plan.persistent_bytes
            assert placement.offset % (4096 if stay.paged else 64) == 0
            assert placement.offset + placement.nbytes <= plan.peak_bytes
        for index, p in enumerate(function_plan.placements):
            for q in function_plan.placements[index + 1 :]:
                together = p.start <= q.end and q.start <= p.end
                apart = p.offset + p.nbytes <= q.offset or q.offset + q.nbytes <= p.offset
                assert apart or not together
    assert plan.lower_bound_bytes <= plan.peak_bytes
