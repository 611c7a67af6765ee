"""POET's own formulation (Patil et al., arXiv:2207.07697), as a baseline for small graphs: about 5T² + T|E| binaries.

| here             | POET     | meaning                                                                    |
|------------------|----------|----------------------------------------------------------------------------|
| runs[t, k]       | R        | op k runs in stage t, which ends with the first run of op t                |
| in_memory[t, i]  | S^RAM    | tensor i is in memory when stage t begins                                  |
| in_storage[t, i] | S^SD     | tensor i is in storage when stage t begins                                 |
| reads[t, i]      | M^in     | tensor i is paged in during stage t, for the next                          |
| writes[t, i]     | M^out    | tensor i is paged out during stage t                                       |
| frees[t, k, i]   | FREE     | tensor i goes after op k of stage t: big-M over what still needs it        |

Scratch is added; POET knows none. Nothing is added to make it faster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pulp

from edgetrain.errors import UsageError
from edgetrain.planner.plan import Compute, Free, PageIn, PageOut, Step
from edgetrain.planner.solvers.answer import NO_ANSWER, Answer
from edgetrain.planner.solvers.mip_solvers import Effort, HighsProgram, Outcome
from edgetrain.planner.solvers.problem import Problem
from edgetrain.planner.solvers.question import Question
from edgetrain.planner.solvers.windowed_model import Aim

MAX_OPS = 40  # 5T² binaries: beyond, not even the root relaxation is solved in reasonable time

Variable = Any  # pulp.LpVariable


def solve_poet_program(problem: Problem, aim: Aim, *, time_limit_s: float) -> Answer:
    """The plan that POET's program has when it is optimal or out of time. The caller must replay it.

    Raises `UsageError` for more than `MAX_OPS` ops.
    """
    count = len(problem.op_names)
    if count > MAX_OPS:
        raise UsageError(
            f"the solver `poet` takes at most {MAX_OPS} ops, this graph has {count}",
            why="its formulation has five binaries for every pair of ops",
            fix="choose `milp`, which asks the same question with a few binaries an op",
        )
    model = _PoetModel(problem=problem, aim=aim)
    outcome = HighsProgram(model.program).solve(Effort(seconds=time_limit_s))
    bound = None if outcome.bound is None else outcome.bound * model.scale
    return Answer(steps=model.decode(outcome) if outcome.values else None, bound=bound)


def answer_poet(question: Question) -> Answer:
    """Keep-all if it fits, else what POET's program finds. It minimises joules, as POET does.

    Raises `UsageError` for more than `MAX_OPS` ops.
    """
    kept = question.answer_everything()
    if kept is not None or question.limit_bytes is None:
        return kept or NO_ANSWER
    aim = Aim(limit_bytes=question.limit_bytes, joules_weight=1.0)
    steps = solve_poet_program(question.problem, aim, time_limit_s=question.options.time_limit_s).steps
    return question.first_that_fits([] if steps is None else [steps])


@dataclass(slots=True, kw_only=True)
class _PoetModel:
    problem: Problem
    aim: Aim
    program: Any = field(init=False)
    scale: float = field(init=False)
    runs: dict[tuple[int, int], Variable] = field(default_factory=dict)
    in_memory: dict[tuple[int, int], Variable] = field(default_factory=dict)
    in_storage: dict[tuple[int, int], Variable] = field(default_factory=dict)
    reads: dict[tuple[int, int], Variable] = field(default_factory=dict)
    writes: dict[tuple[int, int], Variable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.program = pulp.LpProblem("poet", pulp.LpMinimize)
        for stage in range(len(self.problem.op_names)):
            self._add_variables(stage)
        for stage in range(len(self.problem.op_names)):
            self._add_flow(stage)
            self._add_memory(stage)
        self.scale = self._add_aim()

    def _binary(self, name: str, stage: int, index: int) -> Variable:
        return self.program.add_variable(f"{name}_{stage}_{index}", cat=pulp.LpBinary)

    def _size(self, tensor: int) -> float:
        sizes = self.problem.plain_bytes if self.problem.transfers is None else self.problem.paged_bytes
        return sizes[tensor] / max(1, self.aim.limit_bytes)

    def _add_variables(self, stage: int) -> None:
        for op in range(stage + 1):
            run = self._binary("run", stage, op)
            if op == stage:
                run.lowBound = 1
            elif self.problem.rerun_until[op] < stage:
                run.upBound = 0
            self.runs[stage, op] = run
        for tensor, producer in enumerate(self.problem.producer):
            if producer >= stage:
                continue
            self.in_memory[stage, tensor] = self._binary("memory", stage, tensor)
            if self.problem.transfers is not None and self.problem.transfers.is_worthwhile[tensor]:
                self.in_storage[stage, tensor] = self._binary("storage", stage, tensor)
                self.reads[stage, tensor] = self._binary("in", stage, tensor)
                self.writes[stage, tensor] = self._binary("out", stage, tensor)

    def _add_flow(self, stage: int) -> None:
        program = self.program
        for op in range(stage + 1):
            for tensor in self.problem.reads[op]:
                source = self.runs[stage, self.problem.producer[tensor]]
                program += self.runs[stage, op] <= source + self.in_memory.get((stage, tensor), 0)
        for tensor, producer in enumerate(self.problem.producer):
            if producer >= stage:
                continue
            before = (stage - 1, tensor)
            arrived = self.in_memory.get(before, 0) + self.runs[stage - 1, producer] + self.reads.get(before, 0)
            program += self.in_memory[stage, tensor] <= arrived
            if (stage, tensor) in self.in_storage:
                written = self.in_storage.get(before, 0) + self.writes.get(before, 0)
                program += self.in_storage[stage, tensor] <= written
                program += self.reads[stage, tensor] <= self.in_storage[stage, tensor]
                program += self.reads[stage, tensor] + self.in_memory[stage, tensor] <= 1
                program += self.writes[stage, tensor] <= self.in_memory[stage, tensor]

    def _add_memory(self, stage: int) -> None:
        held = [self._size(i) * v for (t, i), v in (*self.in_memory.items(), *self.reads.items()) if t == stage]
        level = pulp.lpSum(held)
        for op in range(stage + 1):
            scratch = self.problem.scratch_bytes[op] / max(1, self.aim.limit_bytes)
            made = pulp.lpSum(self._size(tensor) for tensor in self.problem.writes[op]) * self.runs[stage, op]
            here = self.program.add_variable(f"level_{stage}_{op}", 0)
            self.program += here == level + made
            self.program += here + scratch * self.runs[stage, op] <= 1
            touched = dict.fromkeys((*self.problem.reads[op], *self.problem.writes[op]))
            level = here - pulp.lpSum(self._size(i) * self._freed(stage, op, i) for i in touched)

    def _freed(self, stage: int, op: int, tensor: int) -> Variable:
        """One only if the op runs, nothing later in the stage reads the tensor, and the next stage begins without."""
        later = [self.runs[stage, use] for use in self.problem.uses[tensor] if op < use <= stage]
        kept = self.in_memory.get((stage + 1, tensor), 0)
        hazards = (1 - self.runs[stage, op]) + kept + pulp.lpSum(later)
        freed = self.program.add_variable(f"free_{stage}_{op}_{tensor}", cat=pulp.LpBinary)
        most = 2 + len(later)
        self.program += most * (1 - freed) >= hazards
        self.program += 1 - freed <= hazards
        return freed

    def _add_aim(self) -> float:
        problem, aim = self.problem, self.aim
        seconds = pulp.lpSum(problem.seconds[op] * run for (_, op), run in self.runs.items())
        joules = pulp.lpSum(problem.joules[op] * run for (_, op), run in self.runs.items())
        if problem.transfers is not None:
            joules += pulp.lpSum(problem.transfers.read_joules[i] * v for (_, i), v in self.reads.items())
            joules += pulp.lpSum(problem.transfers.write_joules[i] * v for (_, i), v in self.writes.items())
        if aim.deadline_s is not None:
            self.program += seconds * (1 / aim.deadline_s) <= 1 + 1e-9
        scale = aim.seconds_weight * sum(problem.seconds) + aim.joules_weight * sum(problem.joules) or 1.0
        self.program.setObjective((aim.seconds_weight / scale) * seconds + (aim.joules_weight / scale) * joules)
        return scale

    def decode(self, outcome: Outcome) -> tuple[Step, ...]:
        on = {name for name, value in outcome.values.items() if value > 0.5}
        names = self.problem.tensor_names
        here: set[int] = set()
        steps: list[Step] = []
        for stage in range(len(self.problem.op_names)):
            chosen = [op for op in range(stage + 1) if self.runs[stage, op].name in on]
            stays = {i for (t, i), v in self.in_memory.items() if t == stage + 1 and v.name in on}
            coming = sorted(i for (t, i), v in self.reads.items() if t == stage and v.name in on and i in stays)
            going = sorted(i for (t, i), v in self.writes.items() if t == stage and v.name in on)
            steps += [PageOut(names[i]) for i in going]
            steps += [PageIn(names[i]) for i in coming if i not in here]
            here.update(coming)
            for number, op in enumerate(chosen):
                steps.append(Compute(self.problem.op_names[op]))
                here.update(self.problem.writes[op])
                needed = stays.union(*(self.problem.reads[later] for later in chosen[number + 1 :]))
                steps += [Free(names[i]) for i in sorted(here - needed)]
                here &= needed
        return tuple(steps)
