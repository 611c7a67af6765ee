"""Without a memory limit: the least memory at which a step costs hardly more than one that keeps everything.

Much of what waits for the backward pass is cheap to compute again: an activation or a norm's result costs one pass over
memory. A person who names no budget would rather have that memory than the last percents of speed. Nothing is paged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from edgetrain.planner.attempt import Inputs, Solved, main_function, pack_function
from edgetrain.planner.plan import Step
from edgetrain.planner.solvers.answer import gap_of
from edgetrain.planner.solvers.evict import run_inside
from edgetrain.planner.solvers.greedy import policies
from edgetrain.planner.solvers.problem import largest_op_bytes, priced
from edgetrain.planner.solvers.question import Question
from edgetrain.planner.solvers.refine import refine

_TOLERANCE_SHARE = 0.01  # how closely the limit is searched, as a share of what keeping everything needs
_POLICIES = 4  # as many as are tried at each limit: the planner's first are its best


def save_memory_within_slowdown(inputs: Inputs) -> Solved | None:
    """The training function in less memory, at most `allowed_slowdown` of the options slower; None where none is less.

    The limits of a step hold, if they hold with everything kept. The same inputs give the same answer.
    """
    function = main_function(inputs.graph)
    kept = inputs.kept[function]
    question = inputs.question(function, None).without_paging()
    most_cost = (1 + inputs.options.allowed_slowdown) * question.cost_of(kept.found)
    steps = _least(question, most_cost, floor_bytes=_useful_bytes(inputs))
    if steps is None:
        return None
    solved = pack_function(inputs, function, steps, enough_bytes=0)
    if solved.arena_bytes >= kept.arena_bytes:
        return None
    return replace(solved, gap=gap_of(question.cost_of(solved.found), question.least_cost))


def _useful_bytes(inputs: Inputs) -> int:
    """What the other functions need for temporaries: the arena is as large in any case."""
    main = main_function(inputs.graph)
    others = [solved.lower_bound_bytes for function, solved in inputs.kept.items() if function != main]
    return max(others, default=0) - inputs.layout.nbytes


def _least(question: Question, most_cost: float, *, floor_bytes: int) -> tuple[Step, ...] | None:
    """Steps of at most that cost under the lowest limit at which one was found, by halving."""
    everything = question.peak_bytes(question.everything)
    low, high = max(floor_bytes, largest_op_bytes(question.problem)) - 1, everything
    best: tuple[Step, ...] | None = None
    while high - low > _TOLERANCE_SHARE * everything:
        middle = (low + high) // 2
        found = next(_affordable(question, middle, most_cost), None)
        if found is None:
            low = middle
        else:
            best, high = found, question.peak_bytes(found)
    return best


def _affordable(question: Question, limit_bytes: int, most_cost: float) -> Iterator[tuple[Step, ...]]:
    problem = priced(question.problem, question.weights)
    for policy in islice(policies(pages=False), _POLICIES):
        raw = run_inside(problem, limit_bytes, policy)
        if raw is None:
            continue
        steps = refine(problem, raw, limit_bytes)
        found = question.replayed(steps)
        if question.cost_of(found) <= most_cost and question.holds(found):
            yield steps
