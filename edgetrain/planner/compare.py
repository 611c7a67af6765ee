"""The solvers side by side on one graph and budget."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgetrain.errors import UsageError
from edgetrain.graph.ir import TrainGraph
from edgetrain.planner.known_solvers import SOLVERS
from edgetrain.planner.make_plan import CostsByFunction, try_plan
from edgetrain.planner.plan import NO_PROGRAM, Budget, ProgramMemory
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.targets.device import Storage
from edgetrain.units import show_bytes, show_joules, show_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One solver's answer. Without a plan, `why` says why there is none and the numbers are None."""

    solver: str
    peak_bytes: int | None = None
    seconds: float | None = None  # modelled, of one step
    joules: float | None = None
    slowdown: float | None = None  # against keeping everything
    gap: float | None = None  # proven: how much cheaper a plan could be at most, as a share
    planning_s: float
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare_solvers(
    graph: TrainGraph,
    budget: Budget,
    costs: CostsByFunction,
    *,
    storage: Storage | None,
    options: SolverOptions,
    beside: ProgramMemory = NO_PROGRAM,
    solvers: Sequence[str] = tuple(SOLVERS),
) -> Iterator[Comparison]:
    """Each solver's answer, as it comes."""
    for solver in solvers:
        started = time.monotonic()
        why = "nothing that it finds fits"
        try:
            plan = try_plan(graph, budget, costs, solver=solver, storage=storage, options=options, beside=beside)
        except UsageError as error:  # a formulation that does not take graphs of this size
            plan, why = None, error.what
        planning_s = time.monotonic() - started
        if plan is None:
            yield Comparison(solver=solver, planning_s=planning_s, why=why)
            continue
        yield Comparison(
            solver=solver,
            peak_bytes=plan.peak_bytes,
            seconds=plan.seconds,
            joules=plan.joules,
            slowdown=plan.seconds / plan.keep_all_seconds if plan.keep_all_seconds else None,
            gap=plan.gap,
            planning_s=planning_s,
        )


def comparison_text(rows: Sequence[Comparison]) -> str:
    """A table for people."""
    lines = [f"{'solver':<10} {'peak':>10} {'step':>10} {'energy':>10} {'slowdown':>9} {'gap':>8} {'planned in':>11}"]
    for row in rows:
        if row.peak_bytes is None or row.seconds is None or row.joules is None:
            lines.append(f"{row.solver:<10} {'no plan: ' + row.why}")
            continue
        slowdown = f"{row.slowdown:.3f}x" if row.slowdown is not None else ""
        gap = f"{row.gap:.2%}" if row.gap is not None else "no bound"
        lines.append(
            f"{row.solver:<10} {show_bytes(row.peak_bytes):>10} {show_seconds(row.seconds):>10} "
            f"{show_joules(row.joules):>10} {slowdown:>9} {gap:>8} {show_seconds(row.planning_s):>11}"
        )
    return "\n".join(lines) + "\n"
