"""The exact planner for real graphs: recomputing and paging chosen together, by the windowed program.

Weights and state are part of every budget already; here are the temporaries, with scratch, page alignment and the
updates in place, after which nothing that reads the old value may run again (the timeline has no slot for it).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from edgetrain.cost.analytic import OpCost, StorageCost
from edgetrain.graph.ir import TrainGraph
from edgetrain.plan.schedule import Step, replay
from edgetrain.plan.solvers.greedy import quick_schedules
from edgetrain.plan.solvers.keep_all import keep_all_steps
from edgetrain.plan.solvers.options import SolverOptions
from edgetrain.plan.solvers.problem import Problem, make_problem, priced_in_joules
from edgetrain.plan.solvers.search import Answer, Price, SearchOptions, search
from edgetrain.plan.solvers.windowed_model import Aim

log = logging.getLogger(__name__)

# The share of a DMA lane's transfer time that is believed to delay the ops. The replay says what it really is; this
# only keeps the program from paging as if all of it were hidden.
_STALL_SHARE = 0.3


def solve_milp(
    graph: TrainGraph,
    function: str,
    limit_bytes: int | None,
    costs: Mapping[str, OpCost],
    storage: StorageCost | None,
    *,
    options: SolverOptions | None = None,
) -> tuple[Step, ...] | None:
    """A `Solver`: keep-all if it fits, else the cheapest schedule found inside the limit in the time allowed."""
    answer = answer_milp(graph, function, limit_bytes, costs, storage, options=options)
    if answer.gap is not None:
        log.info("`%s` is at most %.2g %% from the best plan of its window", function, 100 * answer.gap)
    return answer.steps


def solve_checkmate(
    graph: TrainGraph,
    function: str,
    limit_bytes: int | None,
    costs: Mapping[str, OpCost],
    storage: StorageCost | None,
    *,
    options: SolverOptions | None = None,
) -> tuple[Step, ...] | None:
    """A `Solver`: `solve_milp` without paging, which is Checkmate's question (Jain et al., arXiv:1910.02653)."""
    return answer_milp(graph, function, limit_bytes, costs, None, options=options).steps


def answer_milp(
    graph: TrainGraph,
    function: str,
    limit_bytes: int | None,
    costs: Mapping[str, OpCost],
    storage: StorageCost | None,
    *,
    options: SolverOptions | None = None,
    search_options: SearchOptions | None = None,
) -> Answer:
    """`solve_milp` with what it knows: the replayed cost in the objective's unit, and the proven bound."""
    options = options or SolverOptions()
    everything = keep_all_steps(graph, function)
    price = _price(graph, function, limit_bytes, costs, storage, options)
    kept = price(everything)
    if kept is not None:
        return Answer(steps=everything, cost=kept, bound=kept, is_infeasible=False)
    if limit_bytes is None:  # keep-all is the cheapest there is, and breaks a deadline or an energy budget
        return Answer(steps=None, cost=None, bound=None, is_infeasible=True)
    problem = make_problem(graph, function, costs, storage)
    priced = priced_in_joules(problem) if options.objective == "joules" else problem
    return search(
        problem,
        _aim(limit_bytes, problem, options),
        price,
        known=quick_schedules(priced, limit_bytes),
        options=search_options or SearchOptions(time_limit_s=options.time_limit_s, nodes=options.nodes),
    )


def _aim(limit_bytes: int, problem: Problem, options: SolverOptions) -> Aim:
    aim = Aim(
        limit_bytes=limit_bytes,
        seconds_weight=1.0 if options.objective == "seconds" else 0.0,
        joules_weight=1.0 if options.objective == "joules" else 0.0,
        lanes="dma",
        deadline_s=options.deadline_s,
        energy_j=options.energy_j,
    )
    return aim if problem.transfers is None or options.objective == "joules" else replace(aim, stall_share=_STALL_SHARE)


def _price(
    graph: TrainGraph,
    function: str,
    limit_bytes: int | None,
    costs: Mapping[str, OpCost],
    storage: StorageCost | None,
    options: SolverOptions,
) -> Price:
    def price(steps: tuple[Step, ...]) -> float | None:
        found = replay(graph, function, steps, costs, storage)
        if limit_bytes is not None and found.temporary_peak_bytes > limit_bytes:
            return None
        if options.deadline_s is not None and found.seconds > options.deadline_s:
            return None
        if options.energy_j is not None and found.joules > options.energy_j:
            return None
        return found.seconds if options.objective == "seconds" else found.joules

    return price
