"""TrainGraph and budget in, Plan out: solve each function, pack it, and count everything, fragmentation included."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from edgetrain.graph.ir import TrainGraph
from edgetrain.planner.allowed_slowdown import save_memory_within_slowdown
from edgetrain.planner.attempt import (
    CostsByFunction,
    Inputs,
    Solved,
    assemble,
    attempt,
    beside_bytes,
    main_function,
    make_inputs,
    pack_function,
)
from edgetrain.planner.infeasible import broken_limits, check_limits, does_not_fit
from edgetrain.planner.known_solvers import FLOORS, STAND_INS, sketches
from edgetrain.planner.plan import NO_PROGRAM, Budget, Plan, ProgramMemory
from edgetrain.planner.solvers import OUR_SOLVERS
from edgetrain.planner.solvers.answer import gap_of
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.planner.stored import storable, stored_prefixes
from edgetrain.progress import ReportProgress, silent
from edgetrain.targets.device import Storage
from edgetrain.units import Bytes, parse_bytes, show_bytes, show_bytes_up, show_seconds

__all__ = [
    "CostsByFunction",
    "is_plannable",
    "least_bytes",
    "make_plan",
    "smallest_budget",
    "smallest_plan",
    "try_plan",
]

log = logging.getLogger(__name__)

_SHARE_FOR_STORING = 0.5  # of the time, to decide what to store, where a stand-in does
_FIRST_RAISE_SHARE = 0.0025  # how far above the floor plans are packed for the smallest budget; doubles each time
_SKETCHES = 8  # how many, each time
_PROMISING = 2  # of these are packed as well as can be
_LOOK_BEYOND = 1  # how many larger sets of stored tensors are tried after the first that fits


def make_plan(
    graph: TrainGraph,
    budget: Budget,
    costs: CostsByFunction,
    *,
    solver: str = "greedy",
    storage: Storage | None = None,
    options: SolverOptions | None = None,
    beside: ProgramMemory = NO_PROGRAM,
    progress: ReportProgress = silent,
) -> Plan:
    """Plans every function of the graph into one arena that fits the budget.

    Without a memory budget nothing is paged, and no more recomputed than `allowed_slowdown` of the options pays for.
    Parameters and optimizer state stay in memory if any plan fits that way; else, where there is storage, as few of
    them as needed live there between their uses. Time, energy and what is written are checked against the model of
    `step`. An exact solver's time limit is for all of this.
    Raises `PlanInfeasibleError` with the smallest budget that works, tried before it is named; `UsageError` for an
    unknown solver.
    """
    inputs = make_inputs(graph, costs, solver, storage, options, progress, beside)
    plan = _attempt_limited(inputs, budget)
    if plan is None:
        assert budget.memory_bytes is not None  # without a limit every attempt succeeds
        smallest = _smallest_plan(inputs, budget)
        if smallest.needed_bytes > budget.memory_bytes:
            raise does_not_fit(graph, budget.memory_bytes, smallest)
        plan = replace(smallest, budget=budget)  # a tighter limit happened to pack where this one did not
    check_limits(plan)
    ops = sum(map(len, graph.functions.values()))
    log.info("planned %d ops, peak %s, one step %s", ops, show_bytes(plan.peak_bytes), show_seconds(plan.seconds))
    return plan


def try_plan(
    graph: TrainGraph,
    budget: Budget,
    costs: CostsByFunction,
    *,
    solver: str = "greedy",
    storage: Storage | None = None,
    options: SolverOptions | None = None,
    beside: ProgramMemory = NO_PROGRAM,
    progress: ReportProgress = silent,
) -> Plan | None:
    """`make_plan` without the search for the smallest budget: None where the solver finds nothing that fits.

    Raises `UsageError` for an unknown solver, or for a graph that the solver does not take.
    """
    return _attempt_limited(make_inputs(graph, costs, solver, storage, options, progress, beside), budget)


def least_bytes(
    graph: TrainGraph,
    costs: CostsByFunction,
    *,
    solver: str = "greedy",
    storage: Storage | None = None,
    beside: ProgramMemory = NO_PROGRAM,
) -> int:
    """What the solver could hold at best with every parameter in memory, fragmentation left out."""
    inputs = make_inputs(graph, costs, solver, storage, None, silent, beside)
    return inputs.beside.resident_bytes + inputs.layout.nbytes + max(_floors(inputs).values())


def is_plannable(
    graph: TrainGraph,
    memory_bytes: int,
    costs: CostsByFunction,
    *,
    solver: str = "greedy",
    storage: Storage | None = None,
    beside: ProgramMemory = NO_PROGRAM,
) -> bool:
    """Whether `make_plan` has a plan for that much memory, without making a good one."""
    inputs = make_inputs(graph, costs, solver, storage, None, silent, beside)
    inputs, found = _lowest(inputs, enough_bytes=memory_bytes - beside.of(paged=True))
    return _needed_bytes(inputs, found) <= memory_bytes


def smallest_budget(
    graph: TrainGraph,
    costs: CostsByFunction,
    *,
    solver: str = "greedy",
    storage: Storage | None = None,
    beside: ProgramMemory = NO_PROGRAM,
    progress: ReportProgress = silent,
) -> Bytes:
    """The budget of `smallest_plan`, without its plan."""
    inputs, found = _lowest(make_inputs(graph, costs, solver, storage, None, progress, beside))
    return _shown_bytes(inputs, found)


def smallest_plan(
    graph: TrainGraph,
    budget: Budget,
    costs: CostsByFunction,
    *,
    solver: str = "greedy",
    storage: Storage | None = None,
    options: SolverOptions | None = None,
    beside: ProgramMemory = NO_PROGRAM,
) -> Plan:
    """The plan for the smallest memory that the solver is known to hold, with that as its budget.

    Time and energy of `budget` are not looked at. Raises `UsageError` for an unknown solver.
    """
    return _smallest_plan(make_inputs(graph, costs, solver, storage, options, silent, beside), budget)


def _attempt_limited(inputs: Inputs, budget: Budget) -> Plan | None:
    """A plan within the memory, and within the limits of a step if the solver finds one.

    An exact solver has no plan outside of those limits; its stand-in then has one that shows by how much they are
    broken.
    """
    options = replace(
        inputs.options,
        deadline_s=budget.deadline_s,
        energy_j=budget.energy_j,
        written_bytes=budget.written_bytes,
    )
    limited = replace(inputs, options=options)
    if budget.memory_bytes is None:
        return _plan_without_limit(limited, budget)
    plan = _attempt_storing(limited, budget)
    is_limited = options != replace(options, deadline_s=None, energy_j=None, written_bytes=None)
    if plan is not None or not is_limited or inputs.solver not in STAND_INS:
        return plan
    return _attempt_storing(replace(limited, solve=STAND_INS[inputs.solver]), budget)


def _plan_without_limit(inputs: Inputs, budget: Budget) -> Plan:
    """Everything kept, or less memory where the options allow a slower step."""
    may_be_slower = inputs.options.allowed_slowdown > 0 and inputs.solver in OUR_SOLVERS
    saved = save_memory_within_slowdown(inputs) if may_be_slower else None
    solved = dict(inputs.kept)
    if saved is not None:
        solved[main_function(inputs.graph)] = saved
    return assemble(inputs, budget, solved)


def _attempt_storing(inputs: Inputs, budget: Budget) -> Plan | None:
    """A plan with every parameter in memory, or else the cheapest of some that leave more and more in storage.

    What to store is decided with the solver's stand-in, where it has one: it is asked several times.
    """
    if not _can_store(inputs):
        return attempt(inputs, budget)
    quick = replace(inputs, solve=STAND_INS.get(inputs.solver, inputs.solve))
    if quick.solve is not inputs.solve:
        quick = replace(quick, ends_s=time.monotonic() + _SHARE_FOR_STORING * inputs.left_s)
    chosen = _choose_stored(quick, budget)
    if chosen is None:
        return None if quick.solve is inputs.solve else attempt(inputs, budget)
    plan, stored = chosen
    if quick.solve is inputs.solve:
        return plan
    return attempt(inputs.storing(stored), budget) or plan


def _choose_stored(inputs: Inputs, budget: Budget) -> tuple[Plan, frozenset[str]] | None:
    """The first plan with nothing stored, or the cheaper of the first two with more and more stored.

    Where a stand-in has spent its time before it has a plan, storing everything that can be decides.
    """
    found: list[tuple[Plan, frozenset[str]]] = []
    sets = [frozenset[str](), *stored_prefixes(inputs.graph, inputs.costs, inputs.storage)]
    for number, stored in enumerate(sets):
        is_late = inputs.solver in STAND_INS and inputs.left_s < 0
        if is_late and (found or number < len(sets) - 1):
            if found:
                break
            continue
        inputs.progress(f"planning with {len(stored)} tensors in storage" if stored else "planning", 0, 0)
        way = inputs.storing(stored)
        plan = attempt(way, budget) if _is_promising(way, budget) else None
        if plan is not None:
            found.append((plan, stored))
        if len(found) > _LOOK_BEYOND or (found and not stored):
            break
    return min(found, key=lambda pair: _rank(inputs, pair[0]), default=None)


def _is_promising(inputs: Inputs, budget: Budget) -> bool:
    """False where nothing holds the training function's limit, even without fragmentation: known before a plan is."""
    if budget.memory_bytes is None:
        return True
    question = inputs.question(
        main_function(inputs.graph), budget.memory_bytes - inputs.beside.resident_bytes - inputs.layout.nbytes
    )
    return question.fits(question.everything) or next(sketches(inputs.solver, question), None) is not None


def _rank(inputs: Inputs, plan: Plan) -> tuple[bool, float]:
    """Plans within the limits of a step first, then by what is minimised."""
    weights = inputs.question(main_function(inputs.graph), None).weights
    return bool(broken_limits(plan)), weights.cost(plan.seconds, plan.joules)


def _can_store(inputs: Inputs) -> bool:
    return inputs.storage is not None and inputs.storage.keeps_parameters and inputs.solver in OUR_SOLVERS


def _smallest_plan(inputs: Inputs, budget: Budget) -> Plan:
    """A plan for the smallest budget the solver is known to hold, with that budget: the number to show.

    Only for the budget that `_lowest` comes to a good plan is looked for.
    """
    inputs, lowest = _lowest(inputs)
    sketch = assemble(inputs, replace(budget, memory_bytes=_shown_bytes(inputs, lowest)), lowest)
    better = attempt(replace(inputs, solve=STAND_INS.get(inputs.solver, inputs.solve)), sketch.budget)
    return sketch if better is None or better.seconds > sketch.seconds else better


def _needed_bytes(inputs: Inputs, solved: Mapping[str, Solved]) -> int:
    """The arena of all of them, and what the process needs beside it."""
    return beside_bytes(inputs, solved) + max(answer.arena_bytes for answer in solved.values())


def _shown_bytes(inputs: Inputs, lowest: Mapping[str, Solved]) -> Bytes:
    """The number that a person would read, which is rounded up to a few digits."""
    return parse_bytes(show_bytes_up(_needed_bytes(inputs, lowest)))


def _lowest(inputs: Inputs, *, enough_bytes: int = 0) -> tuple[Inputs, Mapping[str, Solved]]:
    """Every function in as little memory as is known, with nothing or everything stored, whichever needs less.

    Looks at the solver's own floor, which knows nothing of fragmentation, and packs what the solver has a little above
    it; no longer than until `enough_bytes` suffice.
    """
    ways = [inputs]
    if _can_store(inputs):
        ways.append(inputs.storing(storable(inputs.graph)))
    floors = [_floors(way) for way in ways]
    least = min(range(len(ways)), key=lambda way: ways[way].layout.nbytes + max(floors[way].values()))
    found = {
        function: _lowest_of_function(ways[least], function, floor, enough_bytes=enough_bytes)
        for function, floor in floors[least].items()
    }
    return ways[least], found


def _floors(inputs: Inputs) -> Mapping[str, int]:
    floor = FLOORS[inputs.solver]
    return {function: floor(inputs.question(function, None)) for function in inputs.graph.functions}


def _lowest_of_function(inputs: Inputs, function: str, floor_bytes: int, *, enough_bytes: int) -> Solved:
    """Of some plans with limits from the floor on, the one that is lowest when it is packed."""
    lowest: Solved | None = None
    raise_by = 0.0
    while lowest is None or inputs.layout.nbytes + (1 + raise_by) * floor_bytes < lowest.arena_bytes:
        inputs.progress("looking for the smallest budget", 0, 0)
        question = inputs.question(function, int((1 + raise_by) * floor_bytes))
        roughly = [
            pack_function(inputs, function, steps, enough_bytes=0, repacks=0)
            for steps in islice(sketches(inputs.solver, question), _SKETCHES)
        ]
        for promising in sorted(roughly, key=lambda solved: solved.arena_bytes)[:_PROMISING]:
            enough = enough_bytes - inputs.layout.nbytes
            solved = pack_function(inputs, function, promising.plan.steps, enough_bytes=enough)
            if lowest is None or solved.arena_bytes < lowest.arena_bytes:
                lowest = replace(solved, gap=gap_of(question.cost_of(solved.found), question.least_cost))
            if lowest.arena_bytes <= enough_bytes:
                return lowest
        raise_by = 2 * raise_by or _FIRST_RAISE_SHARE
    return lowest
