"""One attempt at a plan: solve each function inside a limit, pack it, and solve again where fragmentation spoils it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edgetrain.cost.analytic import OpCost
from edgetrain.errors import UsageError
from edgetrain.graph.ir import STEP, TrainGraph
from edgetrain.graph.persistent import PersistentLayout, align, layout_persistent
from edgetrain.planner.arena import MAX_REPACKS, pack, shift
from edgetrain.planner.known_solvers import SOLVERS
from edgetrain.planner.plan import (
    PAGE_BYTES,
    Budget,
    FunctionPlan,
    Plan,
    ProgramMemory,
    Replay,
    Step,
    paged_tensors,
)
from edgetrain.planner.solvers.answer import gap_of
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.planner.solvers.question import Question
from edgetrain.planner.solvers.solver import Solve
from edgetrain.progress import ReportProgress
from edgetrain.targets.device import Storage

CostsByFunction = Mapping[str, Mapping[str, OpCost]]

_MAX_TIGHTENINGS = 8  # solves again with a tighter limit because of fragmentation
_LEAST_TIGHTENING_SHARE = 0.005
_SHARE_OF_TIME_LEFT = 0.6  # for one solve: there may be others
_LEAST_SOLVE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """One function, solved and packed."""

    plan: FunctionPlan
    found: Replay
    arena_bytes: int  # from the arena's start
    lower_bound_bytes: int
    gap: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    graph: TrainGraph
    costs: CostsByFunction
    solver: str
    solve: Solve  # usually that solver
    storage: Storage | None
    stored: frozenset[str]
    layout: PersistentLayout  # of what is not stored
    options: SolverOptions
    beside: ProgramMemory
    progress: ReportProgress
    ends_s: float  # of `time.monotonic`: when planning should be over
    kept: Mapping[str, Solved]  # every function with nothing recomputed, paged or stored: nothing is cheaper

    @property
    def left_s(self) -> float:
        return self.ends_s - time.monotonic()

    def storing(self, stored: frozenset[str]) -> Inputs:
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


def main_function(graph: TrainGraph) -> str:
    return STEP if STEP in graph.functions else next(iter(graph.functions))


def attempt(inputs: Inputs, budget: Budget) -> Plan | None:
    """A plan that fits the memory, or None: every function solved, and packed behind what stays in memory."""
    if budget.memory_bytes is None:
        return assemble(inputs, budget, inputs.kept)
    for paged in (False, True):  # with room for the pager only where there is nothing without it
        arena_bytes = budget.memory_bytes - inputs.beside.of(paged=paged)
        solved = _solve_all(inputs, arena_bytes)
        plan = assemble(inputs, budget, solved) if solved is not None else None
        if plan is None or plan.needed_bytes <= budget.memory_bytes:
            return plan
    return None


def _solve_all(inputs: Inputs, arena_bytes: int) -> Mapping[str, Solved] | None:
    solved = dict(inputs.kept)
    larger = {f: a for f, a in inputs.kept.items() if inputs.stored or a.arena_bytes > arena_bytes}
    for function, time_limit_s in _time_limits(inputs, tuple(larger)):
        answer = _fit(inputs, function, arena_bytes, time_limit_s=time_limit_s)
        if answer is None:
            return None
        solved[function] = answer
    return solved


def beside_bytes(inputs: Inputs, solved: Mapping[str, Solved]) -> int:
    """What the process needs beside the arena of these plans."""
    any_paged = any(paged_tensors(answer.plan.steps) for answer in solved.values())
    return inputs.beside.of(paged=any_paged or bool(inputs.stored))


def assemble(inputs: Inputs, budget: Budget, solved: Mapping[str, Solved]) -> Plan:
    """The plan of functions that are solved and packed."""
    main = main_function(inputs.graph)
    layout, kept = inputs.layout, inputs.kept
    return Plan(
        solver=inputs.solver,
        budget=budget,
        functions={function: answer.plan for function, answer in solved.items()},
        persistent_offsets=layout.offsets,
        persistent_bytes=layout.nbytes,
        saved_bytes=layout_persistent(inputs.graph).saved_bytes,
        stored=tuple(sorted(inputs.stored)),
        gap=solved[main].gap,
        peak_bytes=max(answer.arena_bytes for answer in solved.values()),
        beside_bytes=beside_bytes(inputs, solved),
        lower_bound_bytes=max(answer.lower_bound_bytes for answer in solved.values()),
        seconds=solved[main].found.seconds,
        joules=solved[main].found.joules,
        written_bytes=solved[main].found.paged_out_bytes,
        keep_all_bytes=max(answer.arena_bytes for answer in kept.values()),
        keep_all_seconds=kept[main].found.seconds,
    )


def _time_limits(inputs: Inputs, functions: Sequence[str]) -> Iterator[tuple[str, float]]:
    """The functions, each with its time: what is left when it is asked for, shared out by size."""
    sizes = {function: len(inputs.graph.functions[function]) or 1 for function in functions}
    for number, function in enumerate(functions):
        rest = sum(sizes[later] for later in functions[number:])
        yield function, inputs.left_s * sizes[function] / rest


def _fit(inputs: Inputs, function: str, arena_bytes: int, *, time_limit_s: float) -> Solved | None:
    """Solves and packs until the packed arena fits; each time fragmentation spoils it, with a tighter limit."""
    available_bytes = arena_bytes - inputs.layout.nbytes
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
        solved = pack_function(inputs, function, answer.steps, enough_bytes=available_bytes)
        excess_bytes = solved.arena_bytes - arena_bytes
        if excess_bytes <= 0:
            return replace(solved, gap=gap_of(answer.cost, bound))
        limit_bytes -= max(excess_bytes, int(_LEAST_TIGHTENING_SHARE * available_bytes), inputs.graph.alignment_bytes)
    return None


def pack_function(
    inputs: Inputs, function: str, steps: tuple[Step, ...], *, enough_bytes: int, repacks: int = MAX_REPACKS
) -> Solved:
    """The steps replayed, and their stays placed behind what is in memory throughout."""
    question = inputs.question(function, None)
    return _packed(question, steps, inputs.layout.nbytes, enough_bytes=enough_bytes, repacks=repacks)


def _packed(
    question: Question, steps: tuple[Step, ...], persistent_bytes: int, *, enough_bytes: int, repacks: int
) -> Solved:
    found = question.replayed(steps)
    packing = pack(found.stays, enough_bytes=enough_bytes, repacks=repacks)
    any_paged = any(stay.paged for stay in found.stays)
    base = align(persistent_bytes, PAGE_BYTES if any_paged else question.graph.alignment_bytes)
    return Solved(
        plan=FunctionPlan(function=question.function, steps=steps, placements=shift(packing.placements, base)),
        found=found,
        arena_bytes=base + packing.arena_bytes,
        lower_bound_bytes=base + packing.lower_bound_bytes,
        gap=None,
    )


def make_inputs(
    graph: TrainGraph,
    costs: CostsByFunction,
    solver: str,
    storage: Storage | None,
    options: SolverOptions | None,
    progress: ReportProgress,
    beside: ProgramMemory,
) -> Inputs:
    """Raises `UsageError` for an unknown solver."""
    if solver not in SOLVERS:
        raise UsageError(f"there is no solver `{solver}`", fix=f"choose one of {', '.join(sorted(SOLVERS))}")
    options = options or SolverOptions()
    ends_s = time.monotonic() + options.time_limit_s
    layout = layout_persistent(graph)
    kept: dict[str, Solved] = {}
    for function in graph.functions:
        question = Question(graph=graph, function=function, limit_bytes=None, costs=costs[function], storage=storage)
        packed = _packed(question, question.everything, layout.nbytes, enough_bytes=0, repacks=MAX_REPACKS)
        kept[function] = replace(packed, gap=0.0)
    return Inputs(
        graph=graph,
        costs=costs,
        solver=solver,
        solve=SOLVERS[solver],
        storage=storage,
        stored=frozenset(),
        layout=layout,
        options=options,
        beside=beside,
        progress=progress,
        ends_s=ends_s,
        kept=kept,
    )
