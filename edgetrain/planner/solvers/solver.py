"""What a solver is to the planner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgetrain.planner.solvers.answer import Answer
from edgetrain.planner.solvers.question import Question

# Steps whose replayed peak is within the question's limit, or none. Deterministic, but for the time limit of the exact
# ones.
Solve = Callable[[Question], Answer]

# The least limit, as far as known, that the solver can hold; the question's own limit does not matter.
Floor = Callable[[Question], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solver:
    """How a solver answers, and how little it can hold.

    `stand_in` answers instead where a question is asked many times, as in the search for the smallest budget; what it
    can hold, the solver can hold. None where the solver is quick enough itself.
    """

    solve: Solve
    floor: Floor
    stand_in: Solve | None = None
