"""Many quick plans, each inside the limit, and the cheapest of them.

One run of `evict.run_inside` takes milliseconds for a graph of hundreds of ops, so a grid of policies costs less than
one clever search. Storage is used only where it is cheaper than recomputing, or where recomputing cannot help.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product

from edgetrain.planner.plan import Step
from edgetrain.planner.solvers.answer import NO_ANSWER, Answer
from edgetrain.planner.solvers.evict import Policy, run_inside
from edgetrain.planner.solvers.problem import ENERGY, TIME, Problem, busy_seconds, largest_op_bytes, priced, unpaged
from edgetrain.planner.solvers.question import Question
from edgetrain.planner.solvers.refine import refine

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

# `refine` makes a plan cheaper, rarely by more than this: beyond it, a run cannot win any more.
_WORTH_REFINING = 1.2

_FLOOR_SHARE = 0.002  # how closely the smallest feasible limit is searched, as a share of what keep-all needs


def policies(*, pages: bool) -> tuple[Policy, ...]:
    """What the grid is made of; those that never page come first."""
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
    for policy in policies(pages=pages):
        shares = _SHARES if policy.transfer_weight is None else _SHARES_WITH_STORAGE
        yield from ((share, policy) for share in shares)


def answer_greedy(question: Question) -> Answer:
    """Keep-all if it fits, else the cheapest plan that some policy finds inside the limit.

    One that breaks the limits on time, energy or wear is the answer only where all do: it says by how much. No clock
    is looked at: the same question always has the same answer.
    """
    return _cheapest(question, until_s=float("inf"))


def answer_hurriedly(question: Question) -> Answer:
    """`answer_greedy` that takes the best it has when the question's time is over."""
    return _cheapest(question, until_s=time.monotonic() + question.options.time_limit_s)


def _cheapest(question: Question, *, until_s: float) -> Answer:
    kept = question.answer_everything()
    if kept is not None or question.limit_bytes is None:
        return kept or NO_ANSWER
    best: tuple[Step, ...] | None = None
    best_rank = (True, float("inf"), float("inf"), float("inf"))
    for steps in quick_answers(question, question.limit_bytes, until_s=until_s):
        found = question.replayed(steps)
        rank = (not question.holds(found), question.cost_of(found), found.seconds, found.joules)
        if rank < best_rank:
            best, best_rank = steps, rank
    return NO_ANSWER if best is None else Answer(steps=best, cost=best_rank[1])


def quick_answers(question: Question, limit_bytes: int, *, until_s: float = float("inf")) -> Iterator[tuple[Step, ...]]:
    """The quick plans for what is minimised; and for what is limited, where the cheapest may break that.

    For each of these at least one, if there is any; no more of them when `until_s` of `time.monotonic` is over.
    """
    problem, options, weights = question.problem, question.options, question.weights
    problems = [priced(problem, weights)]
    if options.deadline_s is not None and weights != TIME:
        problems.append(problem)
    if options.energy_j is not None and weights != ENERGY:
        problems.append(priced(problem, ENERGY))
    if options.written_bytes is not None and problem.transfers is not None:
        problems.append(priced(unpaged(problem), weights))
    for candidate in problems:
        for steps in quick_plans(candidate, limit_bytes):
            yield steps
            if time.monotonic() > until_s:
                break


def quick_plans(problem: Problem, limit_bytes: int) -> Iterator[tuple[Step, ...]]:
    """The refined plans of all policies that hold the limit, without those far dearer than an earlier one."""
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


def various_plans(problem: Problem, limit_bytes: int) -> Iterator[tuple[Step, ...]]:
    """The refined plans of all policies that hold the limit, whatever they cost; paging or not in turns."""
    grid = policies(pages=problem.transfers is not None)
    for policy in sorted(grid, key=lambda policy: grid.index(policy) % len(_POWERS)):
        raw = run_inside(problem, limit_bytes, policy)
        if raw is not None:
            yield refine(problem, raw, limit_bytes)


def smallest_feasible(question: Question) -> int:
    """The smallest peak of temporaries, in bytes, that `answer_greedy` reached; it holds when given back as a limit."""
    problem = question.problem
    grid = policies(pages=question.storage is not None)
    everything = question.peak_bytes(question.everything)
    low, high = largest_op_bytes(problem) - 1, everything
    tolerance = max(1, int(_FLOOR_SHARE * everything))
    while high - low > tolerance:
        middle = (low + high) // 2
        found = (steps for policy in grid if (steps := run_inside(problem, middle, policy)) is not None)
        first = next(found, None)
        if first is None:
            low = middle
        else:
            high = question.peak_bytes(first)
    return high
