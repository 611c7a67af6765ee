"""The solvers, by the name a user gives to `--solver`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from edgetrain.planner.plan import Step
from edgetrain.planner.references.per_tensor import (
    answer_capuchin,
    answer_sqrt_n,
    answer_swap_all,
    capuchin_floor,
    sqrt_n_floor,
    swap_all_floor,
)
from edgetrain.planner.references.poet import answer_poet
from edgetrain.planner.solvers.answer import Answer
from edgetrain.planner.solvers.greedy import answer_greedy, answer_hurriedly, smallest_feasible, various_plans
from edgetrain.planner.solvers.milp import answer_checkmate, answer_milp
from edgetrain.planner.solvers.question import Question

# Steps whose replayed peak is within the question's limit, or none. Deterministic, but for the time limit of the exact
# ones.
Solver = Callable[[Question], Answer]

# The least limit, as far as known, that the solver can hold; the question's own limit does not matter.
Floor = Callable[[Question], int]

SOLVERS: Mapping[str, Solver] = {
    "greedy": answer_greedy,
    "milp": answer_milp,
    "keep-all": lambda question: question.first_that_fits([question.everything]),
    "checkmate": answer_checkmate,
    "poet": answer_poet,
    "sqrt-n": lambda question: answer_sqrt_n(question.without_paging()),
    "swap-all": answer_swap_all,
    "capuchin": answer_capuchin,
}

FLOORS: Mapping[str, Floor] = {
    "greedy": smallest_feasible,
    "milp": smallest_feasible,
    "keep-all": lambda question: question.peak_bytes(question.everything),
    "checkmate": lambda question: smallest_feasible(question.without_paging()),
    "poet": smallest_feasible,
    "sqrt-n": lambda question: sqrt_n_floor(question.without_paging()),
    "swap-all": swap_all_floor,
    "capuchin": capuchin_floor,
}

# Who answers instead where a question is asked many times, as in the search for the smallest budget. What a stand-in
# can hold, its principal can hold.
STAND_INS: Mapping[str, Solver] = {
    "milp": answer_hurriedly,
    "checkmate": lambda question: answer_hurriedly(question.without_paging()),
    "poet": answer_hurriedly,
}

# The others are baselines, run as published: these may leave parameters and optimizer state in storage, and save memory
# unasked where that costs little.
OWN_SOLVERS = frozenset({"greedy", "milp"})


def sketches(solver: str, question: Question) -> Iterator[tuple[Step, ...]]:
    """Plans inside the question's limit, as the solver or its stand-in comes by them: at least one, if it has any.

    For those who want to know what can be held, not what is cheapest.
    """
    if solver == "checkmate":
        question = question.without_paging()
    if question.limit_bytes is not None and solver in _QUICK:
        yield from various_plans(question.problem, question.limit_bytes)
        return
    steps = SOLVERS[solver](question).steps
    if steps is not None:
        yield steps


_QUICK = frozenset({"greedy", *STAND_INS})
