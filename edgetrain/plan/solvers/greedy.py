"""Many quick schedules, each inside the limit, and the cheapest of them.

One run of `evict.run_inside` takes milliseconds for a graph of hundreds of ops, so a grid of policies costs less than
one clever search. Storage is used only where it is cheaper than recomputing, or where recomputing cannot help.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from edgetrain.plan.schedule import Step
from edgetrain.plan.solvers.answer import NO_ANSWER, Answer
from edgetrain.plan.solvers.evict import Policy, run_inside
from edgetrain.plan.solvers.problem import Problem, busy_seconds, largest_op_bytes, priced_in_joules
from edgetrain.plan.solvers.question import Question
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


def answer_greedy(question: Question) -> Answer:
    """Keep-all if it fits, else the cheapest schedule that some policy finds inside the limit."""
    kept = question.answer_everything()
    if kept is not None or question.limit_bytes is None:
        return kept or NO_ANSWER
    in_joules = question.options.objective == "joules"
    problem = priced_in_joules(question.problem) if in_joules else question.problem
    best: tuple[Step, ...] | None = None
    best_cost = (float("inf"), float("inf"))
    for steps in quick_schedules(problem, question.limit_bytes):
        found = question.replayed(steps)
        cost = (found.joules, found.seconds) if in_joules else (found.seconds, found.joules)
        if cost < best_cost:
            best, best_cost = steps, cost
    return NO_ANSWER if best is None else Answer(steps=best, cost=best_cost[0])


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


def smallest_feasible(question: Question) -> int:
    """The smallest peak of temporaries, in bytes, that `answer_greedy` reached; it holds when given back as a limit."""
    problem = question.problem
    policies = _policies(pages=question.storage is not None)
    everything = question.peak_bytes(question.everything)
    low, high = largest_op_bytes(problem) - 1, everything
    tolerance = max(1, int(_FLOOR_SHARE * everything))
    while high - low > tolerance:
        middle = (low + high) // 2
        found = (steps for policy in policies if (steps := run_inside(problem, middle, policy)) is not None)
        first = next(found, None)
        if first is None:
            low = middle
        else:
            high = question.peak_bytes(first)
    return high
