"""What a user may ask of a solver beyond the memory limit."""

from __future__ import annotations

from dataclasses import dataclass

from edgetrain.units import Bytes, Joules, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverOptions:
    """Solvers that know one plan only ignore what they cannot use; the planner checks the limits in any case.

    `energy_share` says what is minimised: 0 time, 1 energy, between them a mix of both, each as a share of what keeping
    everything takes. With `nodes`, and time enough to reach them, an exact solver gives the same answer on every
    machine. `mip_solver` names who solves its programs: see `mip_solvers.py`. `allowed_slowdown` is how much more a
    plan without a memory limit may cost than keeping everything, as a share of that, where it needs less memory: see
    `planner/allowed_slowdown.py`.
    """

    energy_share: float = 0.0
    time_limit_s: float = 30.0
    nodes: int | None = None
    mip_solver: str = "highs"
    deadline_s: Seconds | None = None
    energy_j: Joules | None = None
    written_bytes: Bytes | None = None  # to storage, in one call: flash wears
    allowed_slowdown: float = 0.0


USUAL = SolverOptions(allowed_slowdown=0.05)
