"""Every op once, every tensor freed after its last read: the fastest schedule, and the hungriest."""

from __future__ import annotations

from collections.abc import Mapping

from edgetrain.cost.analytic import OpCost, StorageCost
from edgetrain.graph.ir import TrainGraph
from edgetrain.plan.schedule import Compute, Free, Step, replay
from edgetrain.plan.solvers.options import SolverOptions


def keep_all_steps(graph: TrainGraph, function: str) -> tuple[Step, ...]:
    """The schedule without recomputation or paging; its peak is the least for the function's own order."""
    ops = graph.functions[function]
    last_touch: dict[str, int] = {}
    for position, op in enumerate(ops):
        for name in (*op.reads, *op.writes):
            if graph.tensors[name].is_temporary:
                last_touch[name] = position
    steps: list[Step] = []
    for position, op in enumerate(ops):
        steps.append(Compute(op.name))
        touched = dict.fromkeys((*op.reads, *op.writes))
        steps += [Free(name) for name in touched if last_touch.get(name) == position]
    return tuple(steps)


def solve_keep_all(
    graph: TrainGraph,
    function: str,
    limit_bytes: int | None,
    costs: Mapping[str, OpCost],
    storage: StorageCost | None,
    *,
    options: SolverOptions | None = None,
) -> tuple[Step, ...] | None:
    """A `Solver`: the one schedule it knows, if it fits."""
    steps = keep_all_steps(graph, function)
    if limit_bytes is None or replay(graph, function, steps, costs).temporary_peak_bytes <= limit_bytes:
        return steps
    return None


def keep_all_floor(graph: TrainGraph, function: str, costs: Mapping[str, OpCost], storage: StorageCost | None) -> int:
    """The bytes of temporaries that `solve_keep_all` needs."""
    return replay(graph, function, keep_all_steps(graph, function), costs).temporary_peak_bytes
