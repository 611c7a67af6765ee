"""Placement, copies and recomputation on two devices as one mixed-integer program.

| here               | meaning                                                                                    |
|--------------------|--------------------------------------------------------------------------------------------|
| runs[j]            | slot j is used: its op runs on its device                                                  |
| here[j, i, d]      | tensor i is in the memory of device d when slot j begins                                   |
| copies[j, i, d]    | tensor i is copied to device d in slot j, which is a pause                                 |

Slots are in order. Stage t ends with the two slots of op t's first run, of which one is used; before them, earlier ops
may run again on either device. A pause before each op's slots is for copies alone, so that what was copied away can be
dropped before the slot needs the room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulp

from edgetrain.planner.placement.problem import DEVICES, Copy, Drop, PlacedStep, PlacementProblem, Run, cost_inside
from edgetrain.planner.solvers.answer import gap_of
from edgetrain.planner.solvers.mip_solvers import Effort, HighsProgram, Status

Variable = Any  # pulp.LpVariable: PuLP is not typed

_WHOLE_OPS = 12  # up to here every earlier op may run again in every stage
_HOPS = 3  # beyond, only what lies so many ops before the operands


@dataclass(frozen=True, slots=True)
class PlacedSlot:
    """A chance for `op` to run on `device`; a pause has neither."""

    stage: int
    op: int | None = None
    device: int = 0

    @property
    def is_first(self) -> bool:
        return self.op == self.stage


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementAnswer:
    """The best plan found, replayed. `bound` is proven for reruns inside the windows."""

    steps: tuple[PlacedStep, ...] | None
    cost: float | None = None
    bound: float | None = None
    is_infeasible: bool = False

    @property
    def gap(self) -> float | None:
        return gap_of(self.cost, self.bound)


def place(problem: PlacementProblem, *, time_limit_s: float = 30.0) -> PlacementAnswer:
    """The cheapest plan on the two devices, as far as time allows."""
    model = _Model(problem=problem, slots=placed_slots(problem))
    outcome = HighsProgram(model.program).solve(Effort(seconds=time_limit_s))
    if outcome.status is Status.INFEASIBLE:
        return PlacementAnswer(steps=None, is_infeasible=len(problem.ops) <= _WHOLE_OPS)
    bound = None if outcome.bound is None else outcome.bound * model.scale
    if not outcome.values:
        return PlacementAnswer(steps=None, bound=bound)
    steps = model.decode(outcome.values)
    cost = cost_inside(problem, steps)
    return PlacementAnswer(steps=steps if cost is not None else None, cost=cost, bound=bound)


def placed_slots(problem: PlacementProblem) -> tuple[PlacedSlot, ...]:
    """Every point in time at which an op may run or a tensor be copied, in order."""
    slots: list[PlacedSlot] = []
    for stage in range(len(problem.ops)):
        for op in (*sorted(_window(problem, stage)), stage):
            slots.append(PlacedSlot(stage))
            slots += [PlacedSlot(stage, op, device) for device in DEVICES if problem.ops[op].runs_on(device)]
    return tuple(slots)


def _window(problem: PlacementProblem, stage: int) -> set[int]:
    if len(problem.ops) <= _WHOLE_OPS:
        return set(range(stage))
    window: set[int] = set()
    frontier = set(problem.ops[stage].reads)
    for _ in range(_HOPS):
        window |= frontier
        frontier = {source for op in frontier for source in problem.ops[op].reads} - window
    return window


@dataclass(slots=True, kw_only=True)
class _Model:
    problem: PlacementProblem
    slots: tuple[PlacedSlot, ...]
    program: Any = field(init=False)
    scale: float = field(init=False)
    runs: dict[int, Variable] = field(default_factory=dict)
    here: dict[tuple[int, int, int], Variable] = field(default_factory=dict)
    copies: dict[tuple[int, int, int], Variable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.program = pulp.LpProblem("placement", pulp.LpMinimize)
        self._add_variables()
        for stage in range(len(self.problem.ops)):
            first = [self.runs[j] for j, slot in enumerate(self.slots) if slot.is_first and slot.stage == stage]
            self.program += pulp.lpSum(first) == 1
        for index in range(len(self.slots)):
            self._add_slot(index)
        self._add_aim()

    def _add_variables(self) -> None:
        for index, slot in enumerate(self.slots):
            if slot.op is not None:
                self.runs[index] = self.program.add_variable(f"run_{index}", cat=pulp.LpBinary)
        for tensor, (begin, end) in enumerate(self._lives()):
            for index in range(begin + 1, end + 1):
                for device in DEVICES:
                    key, name = (index, tensor, device), f"{index}_{tensor}_{device}"
                    self.here[key] = self.program.add_variable(f"here_{name}", cat=pulp.LpBinary)
                    if self.slots[index].op is None:
                        self.copies[key] = self.program.add_variable(f"copy_{name}", cat=pulp.LpBinary)

    def _lives(self) -> list[tuple[int, int]]:
        """For each tensor, the first slot that makes it and the last that reads it."""
        begins: dict[int, int] = {}
        ends: dict[int, int] = {}
        for index, slot in enumerate(self.slots):
            if slot.op is None:
                continue
            begins.setdefault(slot.op, index)
            ends.update(dict.fromkeys(self.problem.ops[slot.op].reads, index))
        return [(begins.get(t, 0), ends.get(t, 0)) for t in range(len(self.problem.ops))]

    def _add_slot(self, index: int) -> None:
        slot = self.slots[index]
        if slot.op is not None:
            for tensor in self.problem.ops[slot.op].reads:
                self.program += self.runs[index] <= self.here.get((index, tensor, slot.device), 0)
        for device in DEVICES:
            held: list[Any] = []
            for tensor, op in enumerate(self.problem.ops):
                key = (index, tensor, device)
                before, copied = self.here.get(key, 0), self.copies.get(key, 0)
                made = self.runs[index] if (slot.op, slot.device) == (tensor, device) else 0
                if key in self.copies:
                    self.program += copied <= self.here[index, tensor, 1 - device]
                    self.program += copied + before <= 1
                after = self.here.get((index + 1, tensor, device))
                if after is not None:
                    self.program += after <= before + copied + made
                during = before + copied
                if slot.op == tensor and slot.device == device:
                    # Running what is there already is no use; where it is cut off, the two never add up.
                    if key in self.here:
                        self.program += before + made <= 1
                    during = during + made
                held.append(op.output_bytes / max(1, self.problem.memory_bytes[device]) * during)
            self.program += pulp.lpSum(held) <= 1

    def _add_aim(self) -> None:
        problem = self.problem
        ops = range(len(problem.ops))
        self.scale = sum(min(problem.run_cost(o, d) for d in DEVICES if problem.ops[o].runs_on(d)) for o in ops) or 1.0
        runs = [
            problem.run_cost(slot.op, slot.device) / self.scale * self.runs[index]
            for index, slot in enumerate(self.slots)
            if slot.op is not None
        ]
        copies = [problem.copy_cost(t) / self.scale * variable for (_, t, _), variable in self.copies.items()]
        self.program.setObjective(pulp.lpSum([*runs, *copies]))

    def decode(self, values: Mapping[str, float]) -> tuple[PlacedStep, ...]:
        """The plan that a solution means; what the next slot does not hold is dropped."""
        on = {name for name, value in values.items() if value > 0.5}
        present: tuple[set[int], set[int]] = (set(), set())
        steps: list[PlacedStep] = []
        for index, slot in enumerate(self.slots):
            arrivals = [key for key in _at(index, self.copies) if self.copies[key].name in on]
            steps += [Copy(tensor, device) for _, tensor, device in arrivals]
            for _, tensor, device in arrivals:
                present[device].add(tensor)
            if slot.op is not None and self.runs[index].name in on:
                steps.append(Run(slot.op, slot.device))
                present[slot.device].add(slot.op)
            for device in DEVICES:
                next_keys = (key for key in _at(index + 1, self.here) if key[2] == device)
                kept = {key[1] for key in next_keys if self.here[key].name in on}
                steps += [Drop(tensor, device) for tensor in sorted(present[device] - kept)]
                present[device].intersection_update(kept)
        return tuple(steps)


def _at(index: int, variables: Mapping[tuple[int, int, int], Variable]) -> Sequence[tuple[int, int, int]]:
    return [key for key in variables if key[0] == index]
