"""Every solver that a user can name: ours, then the references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgetrain.planner.plan import Step
from edgetrain.planner.references import REFERENCES
from edgetrain.planner.solvers import OUR_SOLVERS
from edgetrain.planner.solvers.greedy import various_plans
from edgetrain.planner.solvers.question import Question
from edgetrain.planner.solvers.solver import Floor, Solve, Solver

_KNOWN: Mapping[str, Solver] = {**OUR_SOLVERS, **REFERENCES}

SOLVERS: Mapping[str, Solve] = {name: solver.solve for name, solver in _KNOWN.items()}
FLOORS: Mapping[str, Floor] = {name: solver.floor for name, solver in _KNOWN.items()}
STAND_INS: Mapping[str, Solve] = {name: s.stand_in for name, s in _KNOWN.items() if s.stand_in is not None}

_QUICK = frozenset({"greedy", *STAND_INS})


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
