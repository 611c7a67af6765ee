"""What a user may ask of a solver beyond the memory limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgetrain.units import Bytes, Joules, Seconds

# What a long search tells: stage, done, total (0: unknown). An exact solver counts seconds of its time limit.
Progress = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverOptions:
    """Solvers that know one schedule only ignore what they cannot use; the planner checks the limits in any case.

    `energy_share` says what is minimised: 0 time, 1 energy, between them a mix of both, each as a share of what keeping
    everything takes. With `nodes`, and time enough to reach them, an exact solver gives the same answer on every
    machine. `open_solver` names who solves its programs: see `open_solvers.py`. `thrift_share` is how much more than
    keeping everything a plan without a memory limit may cost, where it needs less memory: see `thrift.py`.
    """

    energy_share: float = 0.0
    time_limit_s: float = 30.0
    nodes: int | None = None
    open_solver: str = "highs"
    deadline_s: Seconds | None = None
    energy_j: Joules | None = None
    written_bytes: Bytes | None = None  # to storage, in one call: flash wears
    thrift_share: float = 0.0


USUAL = SolverOptions(thrift_share=0.05)
