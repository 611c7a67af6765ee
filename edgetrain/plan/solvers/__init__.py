"""The solvers, by the name a user gives to `--solver`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from edgetrain.cost.analytic import OpCost, StorageCost
from edgetrain.graph.ir import TrainGraph
from edgetrain.plan.schedule import Step
from edgetrain.plan.solvers.decided import (
    capuchin_floor,
    solve_capuchin,
    solve_sqrt_n,
    solve_swap_all,
    sqrt_n_floor,
    swap_all_floor,
)
from edgetrain.plan.solvers.greedy import (
    smallest_feasible,
    smallest_feasible_without_storage,
    solve_greedy,
    solve_greedy_without_storage,
)
from edgetrain.plan.solvers.keep_all import keep_all_floor, solve_keep_all
from edgetrain.plan.solvers.milp import solve_checkmate, solve_milp
from edgetrain.plan.solvers.options import SolverOptions
from edgetrain.plan.solvers.poet import solve_poet


class Solver(Protocol):
    """Steps whose replayed peak is at most `limit_bytes` for temporaries (None: no limit), or None if none are found.

    Deterministic, but for the time limit of the exact ones.
    """

    def __call__(
        self,
        graph: TrainGraph,
        function: str,
        limit_bytes: int | None,
        costs: Mapping[str, OpCost],
        storage: StorageCost | None,
        *,
        options: SolverOptions | None = None,
    ) -> tuple[Step, ...] | None: ...


# (graph, function, costs by op, storage or None) -> the least limit, as far as known, that the solver can hold.
Floor = Callable[[TrainGraph, str, Mapping[str, OpCost], StorageCost | None], int]

SOLVERS: Mapping[str, Solver] = {
    "greedy": solve_greedy,
    "milp": solve_milp,
    "keep-all": solve_keep_all,
    "checkmate": solve_checkmate,
    "poet": solve_poet,
    "sqrt-n": solve_sqrt_n,
    "swap-all": solve_swap_all,
    "capuchin": solve_capuchin,
}

FLOORS: Mapping[str, Floor] = {
    "greedy": smallest_feasible,
    "milp": smallest_feasible,
    "keep-all": keep_all_floor,
    "checkmate": smallest_feasible_without_storage,
    "poet": smallest_feasible,
    "sqrt-n": sqrt_n_floor,
    "swap-all": swap_all_floor,
    "capuchin": capuchin_floor,
}

# Who answers instead where a question is asked many times, as in the search for the smallest budget. What a stand-in
# can hold, its principal can hold.
STAND_INS: Mapping[str, Solver] = {
    "milp": solve_greedy,
    "checkmate": solve_greedy_without_storage,
    "poet": solve_greedy,
}
