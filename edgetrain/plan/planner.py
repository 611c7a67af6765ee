"""TrainGraph and budget in, Plan out: solve each function, pack it, and count everything, fragmentation included."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from edgetrain.cost.analytic import OpCost, StorageCost
from edgetrain.errors import PlanInfeasibleError, UsageError
from edgetrain.graph.ir import TrainGraph
from edgetrain.plan.arena import PersistentLayout, layout_persistent, pack, shift
from edgetrain.plan.explain import Explanation, explain
from edgetrain.plan.schedule import (
    ALIGNMENT_BYTES,
    PAGE_BYTES,
    Budget,
    Plan,
    Replay,
    Schedule,
    Step,
    align,
    replay,
)
from edgetrain.plan.solvers import FLOORS, SOLVERS, STAND_INS, STORING_SOLVERS, Solver
from edgetrain.plan.solvers.answer import gap_of
from edgetrain.plan.solvers.keep_all import keep_all_steps
from edgetrain.plan.solvers.options import Progress, SolverOptions, silent
from edgetrain.plan.solvers.question import Question
from edgetrain.plan.stored import storable, stored_prefixes
from edgetrain.units import Bytes, parse_bytes, show_bytes, show_bytes_up, show_joules, show_seconds

log = logging.getLogger(__name__)

CostsByFunction = Mapping[str, Mapping[str, OpCost]]

_TRAINING_FUNCTION = "step"
_MAX_TIGHTENINGS = 8  # solves again with a tighter limit because of fragmentation
_LEAST_TIGHTENING_SHARE = 0.005
_SHARE_OF_TIME_LEFT = 0.6  # for one solve: there may be others
_LEAST_SOLVE_S = 1.0
_FIRST_RAISE_SHARE = 0.0025  # how far the smallest budget is raised when packing misses it; doubles each time
_LOWERINGS = 3  # halvings between the last budget that failed and the first that fits
_LOOK_BEYOND = 1  # how many larger sets of stored tensors are tried after the first that fits


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inputs:
    graph: TrainGraph
    costs: CostsByFunction
    solver: str
    solve: Solver  # usually that solver
    storage: StorageCost | None
    stored: frozenset[str]
    layout: PersistentLayout  # of what is not stored
    options: SolverOptions
    progress: Progress

    def storing(self, stored: frozenset[str]) -> _Inputs:
        return replace(self, stored=stored, layout=layout_persistent(self.graph, stored=stored))

    def question(self, function: str, limit_bytes: int | None, *, time_limit_s: float | None = None) -> Question:
        options = self.options if time_limit_s is None else replace(self.options, time_limit_s=time_limit_s)
        return Question(
            graph=self.graph,
            function=function,
            limit_bytes=limit_bytes,
            costs=self.costs[function],
            storage=self.storage,
            stored=self.stored,
            options=options,
            progress=self.progress,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solved:
    """One function, solved and packed."""

    schedule: Schedule
    found: Replay
    arena_bytes: int  # from the arena's start
    lower_bound_bytes: int
    gap: float | None


def make_plan(
    graph: TrainGraph,
    budget: Budget,
    costs: CostsByFunction,
    *,
    solver: str = "greedy",
    storage: StorageCost | None = None,
    options: SolverOptions | None = None,
    progress: Progress = silent,
) -> Plan:
    """Plans every function of the graph into one arena that fits the budget.

    Without a memory budget nothing is recomputed or paged. Parameters and optimizer state stay in memory if any plan
    fits that way; else, where there is storage, as few of them as needed live there between their uses. Time and energy
    are checked against the model of `step`; if the fastest plan takes too much energy, the most frugal one is tried.
    Raises `PlanInfeasibleError` with the smallest budget that works, tried before it is named; `UsageError` for an
    unknown solver.
    """
    inputs = _inputs(graph, costs, solver, storage, options, progress)
    plan = _attempt_frugally(inputs, budget)
    if plan is None:
        assert budget.memory_bytes is not None  # without a limit every attempt succeeds
        smallest = _smallest_plan(inputs, budget)
        if smallest.peak_bytes > budget.memory_bytes:
            raise _does_not_fit(graph, budget.memory_bytes, smallest)
        plan = replace(smallest, budget=budget)  # a tighter limit happened to pack where this one did not
    _check_time_and_energy(plan)
    ops = sum(map(len, graph.functions.values()))
    log.info("planned %d ops, peak %s, one step %s", ops, show_bytes(plan.peak_bytes), show_seconds(plan.seconds))
    return plan


def try_plan(
    graph: TrainGraph,
    budget: Budget,
    costs: CostsByFunction,
    *,
    solver: str = "greedy",
    storage: StorageCost | None = None,
    options: SolverOptions | None = None,
    progress: Progress = silent,
) -> Plan | None:
    """`make_plan` without the search for the smallest budget: None where the solver finds nothing that fits.

    Raises `UsageError` for an unknown solver, or for a graph that the solver does not take.
    """
    return _attempt_frugally(_inputs(graph, costs, solver, storage, options, progress), budget)


def least_bytes(
    graph: TrainGraph, costs: CostsByFunction, *, solver: str = "greedy", storage: StorageCost | None = None
) -> int:
    """What the solver could hold at best with every parameter in memory, fragmentation left out."""
    inputs = _inputs(graph, costs, solver, storage, None, silent)
    return inputs.layout.nbytes + _floor_bytes(inputs)


def smallest_plan(
    graph: TrainGraph,
    budget: Budget,
    costs: CostsByFunction,
    *,
    solver: str = "greedy",
    storage: StorageCost | None = None,
    options: SolverOptions | None = None,
) -> Plan:
    """The plan for the smallest memory that the solver is known to hold, with that as its budget.

    Time and energy of `budget` are not looked at. Raises `UsageError` for an unknown solver.
    """
    return _smallest_plan(_inputs(graph, costs, solver, storage, options, silent), budget)


def _inputs(
    graph: TrainGraph,
    costs: CostsByFunction,
    solver: str,
    storage: StorageCost | None,
    options: SolverOptions | None,
    progress: Progress,
) -> _Inputs:
    if solver not in SOLVERS:
        raise UsageError(f"there is no solver `{solver}`", fix=f"choose one of {', '.join(sorted(SOLVERS))}")
    return _Inputs(
        graph=graph,
        costs=costs,
        solver=solver,
        solve=SOLVERS[solver],
        storage=storage,
        stored=frozenset(),
        layout=layout_persistent(graph),
        options=options or SolverOptions(),
        progress=progress,
    )


def _attempt_frugally(inputs: _Inputs, budget: Budget) -> Plan | None:
    """The fastest plan that fits; the one with the least energy, if the fastest breaks the energy budget."""
    plan = _attempt_storing(inputs, budget)
    if plan is None or budget.energy_j is None or plan.joules <= budget.energy_j:
        return plan
    options = replace(inputs.options, objective="joules", deadline_s=budget.deadline_s)
    return _attempt_storing(replace(inputs, options=options), budget) or plan


def _attempt_storing(inputs: _Inputs, budget: Budget) -> Plan | None:
    """A plan with every parameter in memory, or else the cheapest of some that leave more and more in storage.

    What to store is decided with the solver's stand-in, where it has one: it is asked several times.
    """
    if not _can_store(inputs):
        return _attempt(inputs, budget)
    quick = replace(inputs, solve=STAND_INS.get(inputs.solver, inputs.solve))
    chosen = _choose_stored(quick, budget)
    if chosen is None:
        return None if quick.solve is inputs.solve else _attempt(inputs, budget)
    plan, stored = chosen
    if quick.solve is inputs.solve:
        return plan
    return _attempt(inputs.storing(stored), budget) or plan


def _choose_stored(inputs: _Inputs, budget: Budget) -> tuple[Plan, frozenset[str]] | None:
    """The first plan with nothing stored, or the cheaper of the first two with more and more stored."""
    in_joules = inputs.options.objective == "joules"
    found: list[tuple[Plan, frozenset[str]]] = []
    for stored in (frozenset[str](), *stored_prefixes(inputs.graph, inputs.costs, inputs.storage)):
        plan = _attempt(inputs.storing(stored), budget)
        if plan is not None:
            found.append((plan, stored))
        if len(found) > _LOOK_BEYOND or (found and not stored):
            break
    return min(found, key=lambda pair: pair[0].joules if in_joules else pair[0].seconds, default=None)


def _can_store(inputs: _Inputs) -> bool:
    return inputs.storage is not None and inputs.solver in STORING_SOLVERS


def _attempt(inputs: _Inputs, budget: Budget) -> Plan | None:
    solved: dict[str, _Solved] = {}
    kept: dict[str, _Solved] = {}
    limits_s = _time_limits(inputs)
    for function in inputs.graph.functions:
        everything = keep_all_steps(inputs.graph, function)
        kept[function] = _pack(inputs.storing(frozenset()), function, everything, enough_bytes=0)
        fitted = replace(kept[function], gap=0.0)  # nothing is cheaper
        if budget.memory_bytes is not None and (inputs.stored or fitted.arena_bytes > budget.memory_bytes):
            answer = _fit(inputs, function, budget.memory_bytes, time_limit_s=limits_s[function])
            if answer is None:
                return None
            fitted = answer
        solved[function] = fitted
    main = _TRAINING_FUNCTION if _TRAINING_FUNCTION in solved else next(iter(solved))
    layout = inputs.layout
    return Plan(
        solver=inputs.solver,
        budget=budget,
        schedules={function: answer.schedule for function, answer in solved.items()},
        persistent_offsets=layout.offsets,
        persistent_bytes=layout.nbytes,
        saved_bytes=layout_persistent(inputs.graph).saved_bytes,
        stored=tuple(sorted(inputs.stored)),
        gap=solved[main].gap,
        peak_bytes=max(answer.arena_bytes for answer in solved.values()),
        lower_bound_bytes=max(answer.lower_bound_bytes for answer in solved.values()),
        seconds=solved[main].found.seconds,
        joules=solved[main].found.joules,
        keep_all_bytes=max(answer.arena_bytes for answer in kept.values()),
        keep_all_seconds=kept[main].found.seconds,
    )


def _time_limits(inputs: _Inputs) -> Mapping[str, float]:
    """The time for planning, shared out by the functions' sizes."""
    total = sum(map(len, inputs.graph.functions.values())) or 1
    return {f: inputs.options.time_limit_s * len(ops) / total for f, ops in inputs.graph.functions.items()}


def _fit(inputs: _Inputs, function: str, memory_bytes: int, *, time_limit_s: float) -> _Solved | None:
    """Solves and packs until the packed arena fits; each time fragmentation spoils it, with a tighter limit."""
    available_bytes = memory_bytes - inputs.layout.nbytes
    limit_bytes = available_bytes
    bound = inputs.question(function, None).least_cost
    ends_s = time.monotonic() + time_limit_s
    for _ in range(_MAX_TIGHTENINGS):
        if limit_bytes <= 0:
            return None
        left_s = max(_LEAST_SOLVE_S, _SHARE_OF_TIME_LEFT * (ends_s - time.monotonic()))
        answer = inputs.solve(inputs.question(function, limit_bytes, time_limit_s=left_s))
        if answer.steps is None:
            return None
        if limit_bytes == available_bytes and not inputs.stored and answer.bound is not None:
            # A tighter limit's bound says nothing about this one, nor that of one choice of what to store about others.
            bound = max(bound, answer.bound)
        solved = _pack(inputs, function, answer.steps, enough_bytes=available_bytes)
        excess_bytes = solved.arena_bytes - memory_bytes
        if excess_bytes <= 0:
            return replace(solved, gap=gap_of(answer.cost, bound))
        limit_bytes -= max(excess_bytes, int(_LEAST_TIGHTENING_SHARE * available_bytes), ALIGNMENT_BYTES)
    return None


def _pack(inputs: _Inputs, function: str, steps: tuple[Step, ...], *, enough_bytes: int) -> _Solved:
    found = replay(inputs.graph, function, steps, inputs.costs[function], inputs.storage)
    packing = pack(found.stays, enough_bytes=enough_bytes)
    any_paged = any(stay.paged for stay in found.stays)
    base = align(inputs.layout.nbytes, PAGE_BYTES if any_paged else ALIGNMENT_BYTES)
    return _Solved(
        schedule=Schedule(function=function, steps=steps, placements=shift(packing.placements, base)),
        found=found,
        arena_bytes=base + packing.arena_bytes,
        lower_bound_bytes=base + packing.lower_bound_bytes,
        gap=None,
    )


def _smallest_plan(inputs: _Inputs, budget: Budget) -> Plan:
    """A plan for the smallest budget the solver is known to hold, with that budget: the number to show.

    Starts from the solver's own floor, which knows nothing of fragmentation, and raises it until the arena fits.
    """
    inputs = replace(inputs, solve=STAND_INS.get(inputs.solver, inputs.solve))
    ways = [inputs]
    if _can_store(inputs):
        ways.append(inputs.storing(storable(inputs.graph)))
    floors = [_floor_bytes(way) for way in ways]
    least = min(range(len(ways)), key=lambda way: ways[way].layout.nbytes + floors[way])
    inputs, temporary_bytes = ways[least], floors[least]
    failed_bytes, raise_by = 0, _FIRST_RAISE_SHARE
    plan = _attempt_shown(inputs, budget, temporary_bytes)
    while plan is None:  # ends: keep-all fits from its own packed size on
        failed_bytes = temporary_bytes
        temporary_bytes += max(ALIGNMENT_BYTES, int(raise_by * temporary_bytes))
        raise_by *= 2
        plan = _attempt_shown(inputs, budget, temporary_bytes)
    for _ in range(_LOWERINGS if failed_bytes else 0):
        middle = (failed_bytes + temporary_bytes) // 2
        lower = _attempt_shown(inputs, budget, middle)
        if lower is None:
            failed_bytes = middle
        else:
            plan, temporary_bytes = lower, middle
    return plan


def _floor_bytes(inputs: _Inputs) -> int:
    floor = FLOORS[inputs.solver]
    return max(floor(inputs.question(function, None)) for function in inputs.graph.functions)


def _attempt_shown(inputs: _Inputs, budget: Budget, temporary_bytes: int) -> Plan | None:
    """Tries the number that a person would read, which is rounded up to a few digits."""
    shown = parse_bytes(show_bytes_up(inputs.layout.nbytes + temporary_bytes))
    return _attempt(inputs, replace(budget, memory_bytes=shown))


def _does_not_fit(graph: TrainGraph, memory_bytes: Bytes, smallest: Plan) -> PlanInfeasibleError:
    assert smallest.budget.memory_bytes is not None
    least = show_bytes_up(smallest.budget.memory_bytes)
    asked = show_bytes(memory_bytes)
    if asked == least:  # rounded to the same digits: only the bytes tell them apart
        asked, least = f"{memory_bytes}B", f"{smallest.budget.memory_bytes}B"
    why = _who_holds_what(explain(graph, smallest))
    if smallest.stored:
        why += f"; {len(smallest.stored)} parameters and states are in storage between their uses already"
    error = PlanInfeasibleError(
        f"no plan fits {asked}; the least possible is {least}",
        why=why,
        fix=f"give it more memory with `--budget {least}`, lower `train.batch=`, "
        "or train fewer tensors with `update.mode=head`",
    )
    error.smallest_bytes = smallest.budget.memory_bytes
    return error


def _who_holds_what(explanation: Explanation) -> str:
    held = sorted(explanation.bytes_by_label.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{label} {show_bytes(size)}" for label, size in held if size)
    biggest = ", ".join(f"{explanation.name_of(n)} {show_bytes(size)}" for n, size in explanation.biggest.items())
    source = f" ({explanation.peak_source})" if explanation.peak_source else ""
    text = f"at op `{explanation.peak_op}`{source} of `{explanation.peak_function}` memory holds {parts}"
    return f"{text}; largest temporaries there: {biggest}" if biggest else text


def _check_time_and_energy(plan: Plan) -> None:
    deadline_s, energy_j = plan.budget.deadline_s, plan.budget.energy_j
    problems: list[str] = []
    if deadline_s is not None and plan.seconds > deadline_s:
        problems.append(f"one step takes {show_seconds(plan.seconds)}, the deadline is {show_seconds(deadline_s)}")
    if energy_j is not None and plan.joules > energy_j:
        problems.append(f"one step takes {show_joules(plan.joules)}, the budget is {show_joules(energy_j)}")
    if not problems:
        return
    why = "these are modelled costs of the fastest plan found"
    if plan.keep_all_seconds is not None and plan.seconds > plan.keep_all_seconds:
        kept = show_bytes_up(plan.keep_all_bytes or 0)
        why += f"; with {kept} nothing is recomputed and a step takes {show_seconds(plan.keep_all_seconds)}"
    raise PlanInfeasibleError(
        "; ".join(problems),
        why=why,
        fix="raise the limit, give it more memory, lower `train.batch=`, or set `update.mode=head`",
    )
