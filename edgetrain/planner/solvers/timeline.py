"""The slots of a plan: every point in time at which an op may run, in order.

Stage t ends with the first run of op t. Before it come slots in which earlier ops may run again, to bring back what op
t reads: only ops in a window of some hops round its operands, for recomputing from further away hardly ever pays.
A plan is a choice of slots; what it may choose from grows linearly with the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgetrain.errors import InternalError
from edgetrain.planner.plan import Compute, Step
from edgetrain.planner.solvers.problem import Problem


@dataclass(frozen=True, slots=True)
class Slot:
    """A chance for `op` to run. `is_first` for the run that every op has, at the end of its stage."""

    op: int
    stage: int

    @property
    def is_first(self) -> bool:
        return self.op == self.stage


def full_timeline(problem: Problem, *, passes: int = 1, known: Iterable[Sequence[Step]] = ()) -> tuple[Slot, ...]:
    """Every earlier op in every stage, `passes` times over: for small graphs, where nothing may be missed.

    A plan that runs ops of one stage out of their order, or one op twice in a stage, needs more than one pass.
    """
    whole = [{op for op in range(stage) if problem.rerun_until[op] >= stage} for stage in range(len(problem.op_names))]
    return _with_runs(problem, [[set(ops) for _ in range(passes)] for ops in whole], known)


def windowed_timeline(problem: Problem, hops: int, *, known: Iterable[Sequence[Step]] = ()) -> tuple[Slot, ...]:
    """Slots for what lies up to `hops` ops before the operands of each stage, and for all runs of the known plans.

    Operands that the op just before reads or writes are in memory as it is: they open no window.
    """
    windows = [[_window(problem, stage, hops)] for stage in range(len(problem.op_names))]
    return _with_runs(problem, windows, known)


def _with_runs(
    problem: Problem, passes_by_stage: list[list[set[int]]], known: Iterable[Sequence[Step]]
) -> tuple[Slot, ...]:
    """Adds what the known plans run to the passes of each stage, and further passes where they do not suffice."""
    for steps in known:
        for passes, runs in zip(passes_by_stage, _runs_by_stage(problem, steps), strict=True):
            for number, ascending in enumerate(_ascending_parts(runs)):
                if number < len(passes):
                    passes[number] |= ascending
                else:
                    passes.append(ascending)
    return tuple(
        slot
        for stage, passes in enumerate(passes_by_stage)
        for slot in (*(Slot(op, stage) for ops in passes for op in sorted(ops)), Slot(stage, stage))
    )


def _window(problem: Problem, stage: int, hops: int) -> set[int]:
    just_touched = {*problem.reads[stage - 1], *problem.writes[stage - 1]} if stage else set()
    frontier = [tensor for tensor in problem.reads[stage] if tensor not in just_touched]
    window: set[int] = set()
    for _ in range(hops + 1):
        ops = {problem.producer[tensor] for tensor in frontier if not problem.is_stored(tensor)} - window
        ops = {op for op in ops if problem.rerun_until[op] >= stage}
        window |= ops
        frontier = [tensor for op in sorted(ops) for tensor in problem.reads[op]]
    return window


def _runs_by_stage(problem: Problem, steps: Sequence[Step]) -> list[list[int]]:
    """The ops that a plan runs again before each op's first run."""
    number = {name: index for index, name in enumerate(problem.op_names)}
    runs: list[list[int]] = [[] for _ in problem.op_names]
    stage = 0
    for step in steps:
        if not isinstance(step, Compute):
            continue
        op = number[step.op]
        if op == stage:
            stage += 1
        elif stage < len(runs):
            runs[stage].append(op)
    return runs


def _ascending_parts(ops: Sequence[int]) -> list[set[int]]:
    parts: list[list[int]] = []
    for op in ops:
        if parts and op > parts[-1][-1]:
            parts[-1].append(op)
        else:
            parts.append([op])
    return [set(part) for part in parts]


def slots_of(problem: Problem, timeline: Sequence[Slot], steps: Sequence[Step]) -> tuple[int, ...]:
    """The index of the slot that each `Compute` of a plan falls into.

    Raises `InternalError` if the timeline has no slot for one; there is one for every run of the known plans that the
    timeline was made with.
    """
    number = {name: index for index, name in enumerate(problem.op_names)}
    chosen: list[int] = []
    place = 0
    for step in steps:
        if not isinstance(step, Compute):
            continue
        op = number[step.op]
        while place < len(timeline) and timeline[place].op != op:
            if timeline[place].is_first:
                raise InternalError(f"the timeline has no slot for `{step.op}` in stage {timeline[place].stage}")
            place += 1
        if place == len(timeline):
            raise InternalError(f"the timeline has no slot for `{step.op}` at its end")
        chosen.append(place)
        place += 1
    return tuple(chosen)
