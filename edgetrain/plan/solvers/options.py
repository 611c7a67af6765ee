"""What a user may ask of a solver beyond the memory limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from edgetrain.units import Joules, Seconds

PlanObjective = Literal["seconds", "joules"]

# What a long search tells: stage, done, total (0: unknown). An exact solver counts seconds of its time limit.
Progress = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverOptions:
    """Solvers that know one schedule only ignore what they cannot use; the planner checks the limits in any case.

    With `nodes`, and time enough to reach them, an exact solver gives the same answer on every machine.
    """

    objective: PlanObjective = "seconds"
    time_limit_s: float = 30.0
    nodes: int | None = None
    deadline_s: Seconds | None = None
    energy_j: Joules | None = None
