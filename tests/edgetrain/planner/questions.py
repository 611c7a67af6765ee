"""Questions to solvers in one line, for the planner's tests."""

from __future__ import annotations

from collections.abc import Mapping

from edgetrain.cost.analytic import OpCost
from edgetrain.graph.ir import TrainGraph
from edgetrain.planner.known_solvers import FLOORS, SOLVERS
from edgetrain.planner.plan import Step
from edgetrain.planner.solvers.answer import Answer
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.planner.solvers.question import Question
from edgetrain.targets.device import Storage


def asked(
    graph: TrainGraph,
    function: str,
    limit_bytes: int | None,
    costs: Mapping[str, OpCost],
    storage: Storage | None,
    *,
    stored: frozenset[str] = frozenset(),
    options: SolverOptions | None = None,
) -> Question:
    return Question(
        graph=graph,
        function=function,
        limit_bytes=limit_bytes,
        costs=costs,
        storage=storage,
        stored=stored,
        options=options or SolverOptions(),
    )


def answered(
    solver: str,
    graph: TrainGraph,
    function: str,
    limit_bytes: int | None,
    costs: Mapping[str, OpCost],
    storage: Storage | None,
    *,
    options: SolverOptions | None = None,
) -> Answer:
    return SOLVERS[solver](asked(graph, function, limit_bytes, costs, storage, options=options))


def solved(
    solver: str,
    graph: TrainGraph,
    function: str,
    limit_bytes: int | None,
    costs: Mapping[str, OpCost],
    storage: Storage | None,
    *,
    options: SolverOptions | None = None,
) -> tuple[Step, ...] | None:
    return answered(solver, graph, function, limit_bytes, costs, storage, options=options).steps


def floor_of(
    solver: str, graph: TrainGraph, function: str, costs: Mapping[str, OpCost], storage: Storage | None
) -> int:
    return FLOORS[solver](asked(graph, function, None, costs, storage))


def keep_all_floor(graph: TrainGraph, function: str, costs: Mapping[str, OpCost], storage: Storage | None) -> int:
    return floor_of("keep-all", graph, function, costs, storage)
