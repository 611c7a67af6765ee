"""Between plans and the variables of the windowed program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from edgetrain.planner.plan import Compute, Free, PageIn, PageOut, Step
from edgetrain.planner.solvers.problem import Problem
from edgetrain.planner.solvers.timeline import slots_of
from edgetrain.planner.solvers.windowed_model import WindowedModel


def steps_of(model: WindowedModel, values: Mapping[str, float]) -> tuple[Step, ...]:
    """The plan that a solution means. Whether it is valid and what it costs, only a replay says."""
    problem = model.problem
    on = {name for name, value in values.items() if value > 0.5}
    paged = {tensor for (tensor, _), variable in model.page_ins.items() if variable.name in on}
    in_memory: set[int] = set()
    steps: list[Step] = []
    for index, slot in enumerate(model.timeline):
        touched = dict.fromkeys((*problem.reads[slot.op], *problem.writes[slot.op]))
        if model.runs[index].name in on:
            for tensor in problem.reads[slot.op]:
                if tensor not in in_memory and tensor in paged:
                    steps.append(PageIn(problem.tensor_names[tensor]))
                    in_memory.add(tensor)
            steps.append(Compute(problem.op_names[slot.op]))
            in_memory.update(problem.writes[slot.op])
            if slot.is_first:
                steps += [PageOut(problem.tensor_names[t]) for t in problem.writes[slot.op] if t in paged]
                steps += [PageOut(problem.tensor_names[t]) for t in problem.dirties[slot.op]]
        for tensor in touched:
            kept = model.keeps.get((tensor, index))
            if tensor in in_memory and (kept is None or kept.name not in on):
                steps.append(Free(problem.tensor_names[tensor]))
                in_memory.discard(tensor)
    return tuple(steps)


def values_of(model: WindowedModel, steps: Sequence[Step]) -> Mapping[str, float]:
    """The binaries that mean a plan, by variable name.

    The plan must be refined, for the program has no solution with a run that nobody reads, and the timeline must
    have slots for all its runs.
    """
    problem = model.problem
    used = slots_of(problem, model.timeline, steps)
    values = {variable.name: 0.0 for variable in (*model.runs, *model.keeps.values())}
    for slot in used:
        values[model.runs[slot].name] = 1.0
    next_touch = {
        (tensor, slot): following for tensor, slots in enumerate(model.touches) for slot, following in pairwise(slots)
    }
    for tensor, begin, last_need in _stays(problem, steps, used):
        for slot in model.touches[tensor]:
            if begin <= slot < last_need and next_touch[tensor, slot] <= last_need:
                values[model.keeps[tensor, slot].name] = 1.0
    return values


def _stays(problem: Problem, steps: Sequence[Step], used: Sequence[int]) -> list[tuple[int, int, int]]:
    """Tensor, slot that begins its stay, slot that needs it last. A page-in begins where the tensor is first read."""
    number = {name: index for index, name in enumerate(problem.tensor_names)}
    current: dict[int, tuple[int | None, int]] = {}
    stays: list[tuple[int, int, int]] = []
    computes = iter(used)
    op_number = {name: index for index, name in enumerate(problem.op_names)}
    for step in steps:
        match step:
            case Compute(name):
                slot, op = next(computes), op_number[name]
                for tensor in problem.reads[op]:
                    begin = current[tensor][0]
                    current[tensor] = (slot if begin is None else begin, slot)
                for tensor in problem.writes[op]:
                    if tensor not in current:
                        current[tensor] = (slot, slot)
            case PageIn(name):
                current[number[name]] = (None, 0)
            case Free(name):
                begin, last_need = current.pop(number[name])
                if begin is not None:
                    stays.append((number[name], begin, last_need))
            case PageOut():
                pass
    stays += [(tensor, begin, last) for tensor, (begin, last) in current.items() if begin is not None]
    return stays
