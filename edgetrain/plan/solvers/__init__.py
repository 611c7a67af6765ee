"""The solvers, by the name a user gives to `--solver`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edgetrain.plan.solvers.answer import Answer
from edgetrain.plan.solvers.decided import (
    answer_capuchin,
    answer_sqrt_n,
    answer_swap_all,
    capuchin_floor,
    sqrt_n_floor,
    swap_all_floor,
)
from edgetrain.plan.solvers.greedy import answer_greedy, smallest_feasible
from edgetrain.plan.solvers.milp import answer_checkmate, answer_milp
from edgetrain.plan.solvers.poet import answer_poet
from edgetrain.plan.solvers.question import Question

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
    "milp": answer_greedy,
    "checkmate": lambda question: answer_greedy(question.without_paging()),
    "poet": answer_greedy,
}

# Solvers that can leave parameters and optimizer state in storage; the others are baselines, run as published.
STORING_SOLVERS = frozenset({"greedy", "milp"})
