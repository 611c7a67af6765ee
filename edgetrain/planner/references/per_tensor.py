"""Plans from one decision per tensor, as in papers that decide ahead: keep it, recompute it, or swap it.

These are the baselines, run as their authors describe them: `sqrt-n` (Chen et al., arXiv:1604.06174), `swap-all`
(Meng et al., "Training deeper models by GPU memory optimization on TensorFlow", 2017), and `capuchin`, after Peng et
al. (ASPLOS 2020). A decision covers a tensor's longest wait between two uses; a tensor brought back stays until its
last use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from edgetrain.planner.plan import Compute, Free, PageIn, PageOut, Step
from edgetrain.planner.solvers.answer import Answer
from edgetrain.planner.solvers.problem import Problem
from edgetrain.planner.solvers.question import Question

_LEAST_WAIT_OPS = 3  # shorter waits, as of most gradients, are not worth a trip
_CAPUCHIN_BATCH = 40  # a plan is replayed so many times at most on the way to the limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Tensors that leave memory during their longest wait; all others are kept."""

    recomputed: frozenset[int] = frozenset()
    swapped: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The longest time between two touches of a tensor: from op `start` to op `end`, which reads it."""

    tensor: int
    start: int
    end: int


def longest_waits(problem: Problem) -> tuple[Wait, ...]:
    """The longest wait of each tensor that waits for some ops, by tensor."""
    waits: list[Wait] = []
    for tensor, uses in enumerate(problem.uses):
        touches = (problem.producer[tensor], *uses)
        start, end = max(pairwise(touches), key=lambda w: w[1] - w[0], default=(0, 0))
        if end - start >= _LEAST_WAIT_OPS:
            waits.append(Wait(tensor=tensor, start=start, end=end))
    return tuple(waits)


def decided_steps(problem: Problem, decisions: Decisions) -> tuple[Step, ...]:
    """Every op in order; what was recomputed or swapped comes back when an op first asks for it."""
    run = _Run(problem=problem, decisions=decisions)
    for op in range(len(problem.op_names)):
        run.first_run(op)
    return tuple(run.steps)


@dataclass(slots=True, kw_only=True)
class _Run:
    problem: Problem
    decisions: Decisions
    steps: list[Step] = field(default_factory=list)
    in_memory: set[int] = field(default_factory=set)
    leaves_after: dict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.leaves_after = {}
        for wait in longest_waits(self.problem):
            if wait.tensor in self.decisions.recomputed or wait.tensor in self.decisions.swapped:
                self.leaves_after.setdefault(wait.start, []).append(wait.tensor)

    def first_run(self, op: int) -> None:
        self._bring_back(self.problem.reads[op])
        self._compute(op)
        for tensor in self.problem.writes[op]:
            if tensor in self.decisions.swapped:
                self.steps.append(PageOut(self.problem.tensor_names[tensor]))
        for tensor in sorted(self.in_memory):
            is_over = max((*self.problem.uses[tensor], self.problem.producer[tensor])) <= op
            if is_over or tensor in self.leaves_after.get(op, ()):
                self._free(tensor)

    def _bring_back(self, tensors: tuple[int, ...]) -> None:
        missing: set[int] = set()
        again: set[int] = set()
        stack = [tensor for tensor in tensors if tensor not in self.in_memory]
        while stack:
            tensor = stack.pop()
            if tensor in missing:
                continue
            missing.add(tensor)
            if tensor not in self.decisions.swapped:
                producer = self.problem.producer[tensor]
                again.add(producer)
                stack += [source for source in self.problem.reads[producer] if source not in self.in_memory]
        for tensor in sorted(missing & self.decisions.swapped):
            self.steps.append(PageIn(self.problem.tensor_names[tensor]))
            self.in_memory.add(tensor)
        for op in sorted(again):
            self._compute(op)

    def _compute(self, op: int) -> None:
        self.steps.append(Compute(self.problem.op_names[op]))
        self.in_memory.update(self.problem.writes[op])

    def _free(self, tensor: int) -> None:
        self.steps.append(Free(self.problem.tensor_names[tensor]))
        self.in_memory.discard(tensor)


def sqrt_n_decisions(problem: Problem) -> Decisions:
    """Of the tensors that wait and can be recomputed, keeps every √n-th and recomputes the others."""
    waiting = [w.tensor for w in longest_waits(problem) if w.end <= problem.recompute_until[w.tensor]]
    stride = max(1, math.isqrt(len(waiting)))
    return Decisions(recomputed=frozenset(t for number, t in enumerate(waiting) if (number + 1) % stride))


def swap_all_decisions(problem: Problem) -> Decisions:
    """Swaps everything that waits and may be paged."""
    transfers = problem.transfers
    if transfers is None:
        return Decisions()
    return Decisions(swapped=frozenset(w.tensor for w in longest_waits(problem) if transfers.is_worthwhile[w.tensor]))


def capuchin_order(problem: Problem) -> tuple[tuple[int, bool], ...]:
    """Tensors in the order in which they leave, and whether by swapping: hidden swaps first, then bytes per second."""
    begins_s = [0.0]
    for seconds in problem.seconds:
        begins_s.append(begins_s[-1] + seconds)
    ranked: list[tuple[float, int, bool]] = []
    for wait in longest_waits(problem):
        tensor = wait.tensor
        choices: list[tuple[float, bool]] = []
        if wait.end <= problem.recompute_until[tensor]:
            choices.append((problem.seconds[problem.producer[tensor]], False))
        if problem.transfers is not None and problem.transfers.is_worthwhile[tensor]:
            moving_s = problem.transfers.write_seconds[tensor] + problem.transfers.read_seconds[tensor]
            choices.append((max(0.0, moving_s - (begins_s[wait.end] - begins_s[wait.start + 1])), True))
        if choices:
            overhead_s, swaps = min(choices)
            ranked.append((overhead_s / max(1, problem.plain_bytes[tensor]), tensor, swaps))
    return tuple((tensor, swaps) for _, tensor, swaps in sorted(ranked))


def answer_sqrt_n(question: Question) -> Answer:
    """Keep-all if it fits, else √n checkpoints if those fit."""
    return question.first_that_fits(_with_everything(question, sqrt_n))


def answer_swap_all(question: Question) -> Answer:
    """Keep-all if it fits, else everything that waits goes to storage."""
    return question.first_that_fits(_with_everything(question, swap_all))


def answer_capuchin(question: Question) -> Answer:
    """Lets tensors go in `capuchin_order`, some more at a time, until the plan fits."""
    return question.first_that_fits(_with_everything(question, capuchin))


def sqrt_n_floor(question: Question) -> int:
    return min(map(question.peak_bytes, _with_everything(question, sqrt_n)))


def swap_all_floor(question: Question) -> int:
    return min(map(question.peak_bytes, _with_everything(question, swap_all)))


def capuchin_floor(question: Question) -> int:
    return min(map(question.peak_bytes, _with_everything(question, capuchin)))


def _with_everything(
    question: Question, decide: Callable[[Problem], Iterable[Decisions]]
) -> Iterator[tuple[Step, ...]]:
    """Keep-all, and the plans of the decisions, as they are asked for."""
    yield question.everything
    for decisions in decide(question.problem):
        yield decided_steps(question.problem, decisions)


def sqrt_n(problem: Problem) -> Iterator[Decisions]:
    yield sqrt_n_decisions(problem)


def swap_all(problem: Problem) -> Iterator[Decisions]:
    yield swap_all_decisions(problem)


def capuchin(problem: Problem) -> Iterator[Decisions]:
    """More and more tensors of `capuchin_order`."""
    order = capuchin_order(problem)
    stride = max(1, len(order) // _CAPUCHIN_BATCH)
    for count in [*range(stride, len(order), stride), len(order)]:
        chosen = order[:count]
        yield Decisions(
            recomputed=frozenset(tensor for tensor, swaps in chosen if not swaps),
            swapped=frozenset(tensor for tensor, swaps in chosen if swaps),
        )
