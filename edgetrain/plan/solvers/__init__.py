"""The solvers, by the name a user gives to `--solver`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edgetrain.cost.analytic import OpCost, StorageCost
from edgetrain.graph.ir import TrainGraph
from edgetrain.plan.schedule import Step
from edgetrain.plan.solvers.greedy import smallest_feasible, solve_greedy
from edgetrain.plan.solvers.keep_all import keep_all_floor, solve_keep_all

# (graph, function, bytes for temporaries or None, costs by op, storage or None) -> steps whose replayed peak is at
# most the limit, or None if the solver finds none. Deterministic.
Solver = Callable[
    [TrainGraph, str, int | None, Mapping[str, OpCost], StorageCost | None],
    tuple[Step, ...] | None,
]

# (graph, function, costs by op, storage or None) -> the least limit, as far as known, that the solver can hold.
Floor = Callable[[TrainGraph, str, Mapping[str, OpCost], StorageCost | None], int]

SOLVERS: Mapping[str, Solver] = {
    "greedy": solve_greedy,
    "keep-all": solve_keep_all,
}

FLOORS: Mapping[str, Floor] = {
    "greedy": smallest_feasible,
    "keep-all": keep_all_floor,
}
