"""What more memory gains: plans for several budgets, from the smallest that works to keeping everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from edgetrain.graph.ir import TrainGraph
from edgetrain.planner.explain import explain
from edgetrain.planner.make_plan import CostsByFunction, smallest_plan, try_plan
from edgetrain.planner.plan import NO_PROGRAM, Budget, Plan, ProgramMemory
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.targets.device import Storage
from edgetrain.units import Bytes, show_bytes, show_joules, show_seconds

POINTS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """The best plan known for a budget: one made for less memory is taken where it is faster."""

    budget_bytes: int
    peak_bytes: int
    seconds: float  # modelled, of one step
    joules: float
    slowdown: float | None  # against keeping everything
    recomputed: int  # runs of ops beyond their first
    paged: int  # tensors
    stored: int  # parameters and states that live in storage


def sweep(
    graph: TrainGraph,
    costs: CostsByFunction,
    *,
    solver: str = "greedy",
    storage: Storage | None = None,
    options: SolverOptions | None = None,
    beside: ProgramMemory = NO_PROGRAM,
    points: int = POINTS,
) -> Iterator[SweepPoint]:
    """The curve, smallest budget first, as it is computed. Seconds never rise along it.

    The options' time limit is for the whole sweep. Raises `UsageError` as `try_plan` does.
    """
    options = options or SolverOptions()
    options = replace(options, time_limit_s=options.time_limit_s / points)
    best = smallest_plan(graph, Budget(), costs, solver=solver, storage=storage, options=options, beside=beside)
    assert best.keep_all_bytes is not None  # the planner's own plans know it
    least, most = best.needed_bytes, best.keep_all_bytes + beside.resident_bytes
    yield _point(graph, best, least)
    for number in range(1, points if most > least else 1):
        budget_bytes = least + (most - least) * number // (points - 1)
        budget = Budget(memory_bytes=Bytes(budget_bytes))
        plan = try_plan(graph, budget, costs, solver=solver, storage=storage, options=options, beside=beside)
        if plan is not None and (plan.seconds, plan.joules) <= (best.seconds, best.joules):
            best = plan
        yield _point(graph, best, budget_bytes)


def _point(graph: TrainGraph, plan: Plan, budget_bytes: int) -> SweepPoint:
    explanation = explain(graph, plan)
    return SweepPoint(
        budget_bytes=budget_bytes,
        peak_bytes=plan.peak_bytes,
        seconds=plan.seconds,
        joules=plan.joules,
        slowdown=explanation.slowdown,
        recomputed=sum(explanation.recomputed.values()),
        paged=len(explanation.paged),
        stored=len(plan.stored),
    )


def sweep_to_json(points: Sequence[SweepPoint]) -> list[dict[str, Any]]:
    return [asdict(point) for point in points]


def sweep_text(points: Sequence[SweepPoint]) -> str:
    """A table for people."""
    lines = [f"{'budget':>10} {'peak':>10} {'step':>10} {'energy':>10} {'slowdown':>9} {'recomputed':>10} {'paged':>6}"]
    for point in points:
        slowdown = f"{point.slowdown:.3f}x" if point.slowdown is not None else ""
        lines.append(
            f"{show_bytes(point.budget_bytes):>10} {show_bytes(point.peak_bytes):>10} "
            f"{show_seconds(point.seconds):>10} {show_joules(point.joules):>10} {slowdown:>9} "
            f"{point.recomputed:>10} {point.paged:>6}"
        )
    return "\n".join(lines) + "\n"
