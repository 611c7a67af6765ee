"""Many quick schedules, each inside the limit, and the cheapest of them.

One run of `evict.run_inside` takes milliseconds for a graph of hundreds of ops, so a grid of policies costs less than
one clever search. Storage is used only where it is cheaper than recomputing, or where recomputing cannot help.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from edgetrain.cost.analytic import OpCost, StorageCost
from edgetrain.graph.ir import TrainGraph
from edgetrain.plan.schedule import Step, replay
from edgetrain.plan.solvers.evict import Policy, run_inside
from edgetrain.plan.solvers.keep_all import keep_all_steps
from edgetrain.plan.solvers.options import SolverOptions
from edgetrain.plan.solvers.problem import (
    Problem,
    busy_seconds,
    largest_op_bytes,
    make_problem,
    priced_in_joules,
)
from edgetrain.plan.solvers.refine import refine

# Powers of cost, size and distance, and the weight of what is missed: see `evict.Policy`. Chosen by trying them on
# chains, random graphs and CNNs; no single one wins everywhere, and each of these wins somewhere.
_POWERS = (
    (1.0, 1.0, 0.5, 1.0),
    (1.0, 1.0, 1.0, 1.0),
    (1.0, 1.0, 0.5, 0.0),
    (1.0, 1.0, 1.0, 0.0),
    (0.5, 1.0, 1.0, 1.0),
    (1.0, 1.0, 0.25, 1.0),
    (1.0, 1.0, 0.25, 0.0),
    (1.0, 1.0, 2.0, 1.0),
    (2.0, 1.0, 1.0, 1.0),
    (1.0, 0.5, 0.5, 1.0),
    (1.0, 1.0, 0.0, 0.0),
    (0.0, 1.0, 1.0, 0.0),
)
_TRANSFER_WEIGHTS = (1.0, 0.3, 0.05)

# A run that is held to less than the limit sometimes drops better things; `refine` then uses the rest.
_SHARES = (1.0, 0.97, 0.93, 0.88)
_SHARES_WITH_STORAGE = (1.0, 0.93)

# `refine` makes a schedule cheaper, rarely by more than this: beyond it, a run cannot win any more.
_WORTH_REFINING = 1.2

_FLOOR_SHARE = 0.002  # how closely the smallest feasible limit is searched, as a share of what keep-all needs


def _policies(*, pages: bool) -> tuple[Policy, ...]:
    weights = (None, *_TRANSFER_WEIGHTS) if pages else (None,)
    return tuple(
        Policy(
            cost_power=cost,
            size_power=size,
            distance_power=distance,
            missed_weight=missed,
            transfer_weight=weight,
        )
        for weight, (cost, size, distance, missed) in product(weights, _POWERS)
    )


def _grid(*, pages: bool) -> Iterator[tuple[float, Policy]]:
    for policy in _policies(pages=pages):
        shares = _SHARES if policy.transfer_weight is None else _SHARES_WITH_STORAGE
        yield from ((share, policy) for share in shares)


def solve_greedy(
    graph: TrainGraph,
    function: str,
    limit_bytes: int | None,
    costs: Mapping[str, OpCost],
    storage: StorageCost | None,
    *,
    options: SolverOptions | None = None,
) -> tuple[Step, ...] | None:
    """A `Solver`: keep-all if it fits, else the cheapest schedule that some policy finds inside the limit."""
    everything = keep_all_steps(graph, function)
    if limit_bytes is None or replay(graph, function, everything, costs).temporary_peak_bytes <= limit_bytes:
        return everything
    problem = make_problem(graph, function, costs, storage)
    in_joules = options is not None and options.objective == "joules"
    best: tuple[Step, ...] | None = None
    best_cost = (float("inf"), float("inf"))
    for steps in quick_schedules(priced_in_joules(problem) if in_joules else problem, limit_bytes):
        found = replay(graph, function, steps, costs, storage)
        cost = (found.joules, found.seconds) if in_joules else (found.seconds, found.joules)
        if cost < best_cost:
            best, best_cost = steps, cost
    return best


def solve_greedy_without_storage(
    graph: TrainGraph,
    function: str,
    limit_bytes: int | None,
    costs: Mapping[str, OpCost],
    storage: StorageCost | None,
    *,
    options: SolverOptions | None = None,
) -> tuple[Step, ...] | None:
    """A `Solver`: `solve_greedy` that only recomputes."""
    return solve_greedy(graph, function, limit_bytes, costs, None, options=options)


def quick_schedules(problem: Problem, limit_bytes: int) -> Iterator[tuple[Step, ...]]:
    """The refined schedules of all policies that hold the limit, without those far dearer than an earlier one."""
    cheapest_s = float("inf")
    seen: set[tuple[Step, ...]] = set()
    for share, policy in _grid(pages=problem.transfers is not None):
        raw = run_inside(problem, int(share * limit_bytes), policy, give_up_s=_WORTH_REFINING * cheapest_s)
        if raw is None or raw in seen:
            continue
        seen.add(raw)
        steps = refine(problem, raw, limit_bytes)
        cheapest_s = min(cheapest_s, busy_seconds(problem, steps))
        yield steps


def smallest_feasible(
    graph: TrainGraph, function: str, costs: Mapping[str, OpCost], storage: StorageCost | None
) -> int:
    """The smallest peak of temporaries, in bytes, that `solve_greedy` reached; it holds when given back as a limit."""
    problem = make_problem(graph, function, costs, storage)
    policies = _policies(pages=storage is not None)
    everything = replay(graph, function, keep_all_steps(graph, function), costs).temporary_peak_bytes
    low, high = largest_op_bytes(problem) - 1, everything
    tolerance = max(1, int(_FLOOR_SHARE * everything))
    while high - low > tolerance:
        middle = (low + high) // 2
        peak = _first_peak(graph, function, costs, storage, problem, middle, policies)
        if peak is None:
            low = middle
        else:
            high = peak
    return high


def _first_peak(
    graph: TrainGraph,
    function: str,
    costs: Mapping[str, OpCost],
    storage: StorageCost | None,
    problem: Problem,
    limit_bytes: int,
    policies: Iterable[Policy],
) -> int | None:
    for policy in policies:
        steps = run_inside(problem, limit_bytes, policy)
        if steps is not None:
            return replay(graph, function, steps, costs, storage).temporary_peak_bytes
    return None


def smallest_feasible_without_storage(
    graph: TrainGraph, function: str, costs: Mapping[str, OpCost], storage: StorageCost | None
) -> int:
    """`smallest_feasible` for solvers that only recompute."""
    return smallest_feasible(graph, function, costs, None)
