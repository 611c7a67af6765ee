"""The planning problem as a mixed-integer program over a timeline of slots.

| here            | papers        | meaning                                                                            |
|-----------------|---------------|------------------------------------------------------------------------------------|
| runs[j]         | R             | slot j is used: its op runs there                                                  |
| keeps[i, j]     | S, K, 1 - F   | tensor i stays in memory from slot j, which touches it, to the next that does      |
| page_ins[i, j]  | M_in, N       | tensor i is read from storage just before slot j, which reads it                   |
| stored[i]       | M_out, M      | tensor i is written to storage once, when it is first made                         |

A tensor is kept or not between two slots that touch it, so there is no "free" variable and no big-M: POET's and
Checkmate's 5T² + T|E| binaries become a few per slot. `runs` and `keeps` are binary; transfers are integral once these
are. Redundant plans (running what is in memory, keeping what nobody reads) are cut off: none of them is cheaper.
Stored persistent tensors are paged in without having been written; what changes them pays for one write.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pulp

from edgetrain.planner.solvers.problem import Problem
from edgetrain.planner.solvers.repeats import Twins, find_twins
from edgetrain.planner.solvers.timeline import Slot

Variable = Any  # pulp.LpVariable: PuLP is not typed
Terms = Sequence[tuple[Variable, float]]

# How transfers and computing share the time: not at all (transfers cost joules only), side by side on a DMA lane, or
# one after the other.
Lanes = Literal["free", "dma", "synchronous"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What to minimise, a weighted mix, and the limits to hold.

    `stall_share` is the share of all transfer time that a DMA lane is believed not to hide; with 0 the model's
    seconds are a lower bound. `written_bytes` caps the wear of flash.
    """

    limit_bytes: int
    seconds_weight: float = 0.0
    joules_weight: float = 0.0
    lanes: Lanes = "free"
    stall_share: float = 0.0
    deadline_s: float | None = None
    energy_j: float | None = None
    written_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class WindowedModel:
    """A PuLP program with the meaning of its variables. `touches[i]` lists the slots that read or write tensor i."""

    problem: Problem
    timeline: tuple[Slot, ...]
    program: Any  # pulp.LpProblem
    objective_scale: float  # what the program's objective is multiplied with to give the aim's
    runs: tuple[Variable, ...]
    keeps: Mapping[tuple[int, int], Variable]
    page_ins: Mapping[tuple[int, int], Variable]
    stored: Mapping[int, Variable]
    touches: tuple[tuple[int, ...], ...]


def build_model(
    problem: Problem, timeline: tuple[Slot, ...], aim: Aim, *, pages: bool = True, merges_twins: bool = False
) -> WindowedModel:
    """The program for the aim. Without `pages` only stored tensors are paged, even if the problem has storage.

    With `merges_twins` blocks that look alike are decided alike, once: one variable for all (`repeats.py`). A solution
    is one of the whole program; its bound is not.
    """
    touches = touching_slots(problem, timeline)
    twins = find_twins(problem, timeline, touches) if merges_twins else None
    builder = _Builder(
        problem=problem,
        timeline=timeline,
        aim=aim,
        pages=pages and problem.transfers is not None,
        touches=touches,
        twins=twins,
    )
    builder.add_tensors()
    builder.add_memory_limit()
    scale = builder.add_aim()
    return WindowedModel(
        problem=problem,
        timeline=timeline,
        program=builder.program,
        objective_scale=scale,
        runs=builder.runs,
        keeps=builder.keeps,
        page_ins=builder.page_ins,
        stored=builder.stored,
        touches=builder.touches,
    )


def touching_slots(problem: Problem, timeline: Sequence[Slot]) -> tuple[tuple[int, ...], ...]:
    """For each tensor the slots that read or write it."""
    touches: list[list[int]] = [[] for _ in problem.tensor_names]
    for index, slot in enumerate(timeline):
        for tensor in dict.fromkeys((*problem.reads[slot.op], *problem.writes[slot.op])):
            touches[tensor].append(index)
    return tuple(tuple(slots) for slots in touches)


@dataclass(slots=True, kw_only=True)
class _Builder:
    problem: Problem
    timeline: tuple[Slot, ...]
    aim: Aim
    pages: bool
    touches: tuple[tuple[int, ...], ...]
    twins: Twins | None
    program: Any = field(init=False)
    runs: tuple[Variable, ...] = field(init=False)
    merged: dict[Hashable, Variable] = field(default_factory=dict)
    keeps: dict[tuple[int, int], Variable] = field(default_factory=dict)
    page_ins: dict[tuple[int, int], Variable] = field(default_factory=dict)
    stored: dict[int, Variable] = field(default_factory=dict)
    change: list[dict[Variable, float]] = field(init=False)  # of memory in use, by slot

    def __post_init__(self) -> None:
        self.program = pulp.LpProblem("plan", pulp.LpMinimize)
        self.runs = tuple(
            self.program.add_variable(f"run_{j}", 1, 1, "Integer") if slot.is_first else self._run(j)
            for j, slot in enumerate(self.timeline)
        )
        self.change = [{} for _ in range(len(self.timeline) + 1)]

    # -- variables that twins share ------------------------------------------------------------------------------

    def _run(self, slot: int) -> Variable:
        key = ("run", self.twins.by_slot[slot]) if self.twins is not None else None
        return self._shared(key, f"run_{slot}", pulp.LpBinary)

    def _keep(self, tensor: int, slot: int) -> Variable:
        key = ("keep", self.twins.by_touch[tensor, slot]) if self.twins is not None else None
        return self._shared(key, f"keep_{tensor}_{slot}", pulp.LpBinary)

    def _page_in(self, tensor: int, slot: int) -> Variable:
        key = ("in", self.twins.by_touch[tensor, slot]) if self.twins is not None else None
        return self._shared(key, f"in_{tensor}_{slot}", pulp.LpContinuous)

    def _shared(self, key: Hashable | None, name: str, category: str) -> Variable:
        if key is not None and key in self.merged:
            return self.merged[key]
        variable = self.program.add_variable(name, 0, 1, category)
        if key is not None:
            self.merged[key] = variable
        return variable

    # -- rows --------------------------------------------------------------------------------------------------

    def _at_most(self, terms: Terms, upper: float) -> None:
        self._row(terms, pulp.LpConstraintLE, upper)

    def _row(self, terms: Terms, sense: int, right: float) -> None:
        total: dict[Variable, float] = {}
        for variable, factor in terms:  # PuLP keeps the last of equal variables instead of adding them
            total[variable] = total.get(variable, 0.0) + factor
        expression = pulp.LpAffineExpression(total)
        self.program.addConstraint(pulp.LpConstraint(expression, sense, rhs=right))

    # -- tensors -----------------------------------------------------------------------------------------------

    def add_tensors(self) -> None:
        for tensor in range(len(self.problem.tensor_names)):
            if self._is_pageable(tensor) and not self.problem.is_stored(tensor):
                self.stored[tensor] = self.program.add_variable(f"store_{tensor}", 0, 1)
            before: Variable | None = None
            for number, slot in enumerate(self.touches[tensor]):
                after: Variable | None = None
                if number + 1 < len(self.touches[tensor]):
                    after = self._keep(tensor, slot)
                    self.keeps[tensor, slot] = after
                if tensor in self.problem.writes[self.timeline[slot].op]:
                    self._write(tensor, slot, before, after)
                else:
                    self._read(tensor, slot, before, after)
                before = after
        for slot, candidate in enumerate(self.timeline):
            if not candidate.is_first:  # a second run that nobody reads is no use
                kept = [
                    (self.keeps[t, slot], -1.0) for t in self.problem.writes[candidate.op] if (t, slot) in self.keeps
                ]
                self._at_most([(self.runs[slot], 1.0), *kept], 0)

    def _is_pageable(self, tensor: int) -> bool:
        if self.problem.is_stored(tensor):
            return True
        transfers = self.problem.transfers
        return self.pages and transfers is not None and transfers.is_worthwhile[tensor]

    def _write(self, tensor: int, slot: int, before: Variable | None, after: Variable | None) -> None:
        run = self.runs[slot]
        alone = len(self.problem.writes[self.timeline[slot].op]) == 1
        if before is not None:
            if alone:  # running what is in memory is no use
                self._at_most([(run, 1), (before, 1)], 1)
            self._at_most([(before, 1), *_minus(after)], 0)
        if after is not None:
            self._at_most([(after, 1), (run, -1), *_minus(before)], 0)
        occupied = after if alone and before is not None and after is not None else self._either(tensor, slot, after)
        self._occupy(tensor, slot, before, occupied, after)

    def _read(self, tensor: int, slot: int, before: Variable | None, after: Variable | None) -> None:
        run = self.runs[slot]
        source = _minus(before)
        if self._is_pageable(tensor):
            page_in = self._page_in(tensor, slot)
            self.page_ins[tensor, slot] = page_in
            if tensor in self.stored:
                self._at_most([(page_in, 1), (self.stored[tensor], -1)], 0)
            source = [*source, (page_in, -1.0)]
            if before is not None:
                self._at_most([(page_in, 1), (before, 1)], 1)
        self._at_most([(run, 1), *source], 0)
        if after is not None:
            self._at_most([(after, 1), *source], 0)
        if before is not None:  # kept up to here means read here or kept on
            self._at_most([(before, 1), (run, -1), *_minus(after)], 0)
        self._occupy(tensor, slot, before, self._either(tensor, slot, after), after)

    def _either(self, tensor: int, slot: int, after: Variable | None) -> Variable:
        """One while the slot runs if it runs or the tensor stays afterwards."""
        run = self.runs[slot]
        if after is None or self.timeline[slot].is_first:
            return run
        either = self.program.add_variable(f"there_{tensor}_{slot}", 0, 1)
        self._at_most([(run, 1), (either, -1)], 0)
        self._at_most([(after, 1), (either, -1)], 0)
        return either

    # -- memory ------------------------------------------------------------------------------------------------

    def _occupy(
        self, tensor: int, slot: int, before: Variable | None, during: Variable, after: Variable | None
    ) -> None:
        sizes = self.problem.paged_bytes if self._is_pageable(tensor) else self.problem.plain_bytes
        share = sizes[tensor] / max(1, self.aim.limit_bytes)
        if not share:
            return
        self._change(slot, during, share)
        self._change(slot + 1, during, -share)
        if before is not None:
            self._change(slot, before, -share)
        if after is not None:
            self._change(slot + 1, after, share)

    def _change(self, slot: int, variable: Variable, share: float) -> None:
        self.change[slot][variable] = self.change[slot].get(variable, 0.0) + share

    def add_memory_limit(self) -> None:
        for slot, candidate in enumerate(self.timeline):
            share = self.problem.scratch_bytes[candidate.op] / max(1, self.aim.limit_bytes)
            if share:
                self._change(slot, self.runs[slot], share)
                self._change(slot + 1, self.runs[slot], -share)
        in_memory: dict[Variable, float] = {}
        for slot in range(len(self.timeline)):
            for variable, share in self.change[slot].items():
                total = in_memory.pop(variable, 0.0) + share
                if abs(total) > _NOTHING:
                    in_memory[variable] = total
            self._at_most(tuple(in_memory.items()), 1)

    # -- what to minimise --------------------------------------------------------------------------------------

    def add_aim(self) -> float:
        problem, aim = self.problem, self.aim
        seconds = self._seconds_terms()
        joules = self._costs(problem.joules, *self._transfer_costs("joules"))
        if aim.deadline_s is not None:
            self._limit(seconds, aim.deadline_s)
        if aim.energy_j is not None:
            self._limit(joules, aim.energy_j)
        if aim.written_bytes is not None:
            self._limit(self._written(problem.paged_bytes), aim.written_bytes)
        # The solver's tolerances are absolute: an objective near one keeps microjoules from drowning in them.
        scale = aim.seconds_weight * sum(problem.seconds) + aim.joules_weight * sum(problem.joules) or 1.0
        total: dict[Variable, float] = {}
        for terms, weight in ((seconds, aim.seconds_weight), (joules, aim.joules_weight)):
            for variable, cost in terms:
                total[variable] = total.get(variable, 0.0) + weight * cost / scale
        self.program.setObjective(pulp.LpAffineExpression(total))
        return scale

    def _limit(self, terms: Terms, limit: float) -> None:
        unit = limit or 1.0
        self._at_most([(variable, cost / unit) for variable, cost in terms], limit / unit * _NEARLY_ONE)

    def _seconds_terms(self) -> Terms:
        computing = self._costs(self.problem.seconds, (), ())
        if self.aim.lanes == "free" or not self.page_ins:
            return computing
        reads, writes = self._transfer_costs("seconds")
        together = self._costs(self.problem.seconds, reads, writes)
        if self.aim.lanes == "synchronous":
            return together
        transfers = together[len(self.timeline) :]
        unit = sum(self.problem.seconds) or 1.0
        busy = self.program.add_variable("busy_lane", 0)  # the longer of the two lanes
        for lane in (computing, transfers):
            self._at_most([*((v, c / unit) for v, c in lane), (busy, -1.0)], 0)
        return [(busy, unit), *((v, self.aim.stall_share * c) for v, c in transfers)]

    def _transfer_costs(self, unit: Literal["seconds", "joules"]) -> tuple[Sequence[float], Sequence[float]]:
        transfers = self.problem.transfers
        if transfers is None or not self.page_ins:
            return (), ()
        if unit == "seconds":
            return transfers.read_seconds, transfers.write_seconds
        return transfers.read_joules, transfers.write_joules

    def _costs(
        self, by_op: Sequence[float], reads: Sequence[float], writes: Sequence[float]
    ) -> list[tuple[Variable, float]]:
        terms = [(self.runs[j], by_op[slot.op]) for j, slot in enumerate(self.timeline)]
        if reads:
            terms += [(variable, reads[tensor]) for (tensor, _), variable in self.page_ins.items()]
        if writes:
            terms += self._written(writes)
        return terms

    def _written(self, by_tensor: Sequence[float]) -> list[tuple[Variable, float]]:
        """What each tensor that is written to storage counts, once: if it is paged out, or when it changes."""
        terms = [(variable, float(by_tensor[tensor])) for tensor, variable in self.stored.items()]
        for slot, candidate in enumerate(self.timeline):
            if candidate.is_first:
                terms += [(self.runs[slot], float(by_tensor[t])) for t in self.problem.dirties[candidate.op]]
        return terms


_NOTHING = 1e-12  # what is left of a share after it was added and taken away
_NEARLY_ONE = 1.0 + 1e-9  # a deadline equal to the sum of the ops' seconds must hold when summed in another order


def _minus(variable: Variable | None) -> list[tuple[Variable, float]]:
    return [] if variable is None else [(variable, -1.0)]
