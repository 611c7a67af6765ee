"""What every solver is asked: one function of a graph, its costs, and the limits to hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from edgetrain.cost.analytic import OpCost
from edgetrain.graph.ir import TrainGraph
from edgetrain.planner.plan import Replay, Step, replay
from edgetrain.planner.solvers.answer import NO_ANSWER, Answer
from edgetrain.planner.solvers.keep_all import keep_all_steps
from edgetrain.planner.solvers.options import SolverOptions
from edgetrain.planner.solvers.problem import ENERGY, TIME, Problem, Weights, make_problem
from edgetrain.progress import ReportProgress, silent
from edgetrain.targets.device import Storage


@dataclass(frozen=True, kw_only=True)
class Question:
    """One function to plan with a replayed peak of at most `limit_bytes` (None: no limit).

    `stored` names the persistent tensors that live in storage between their uses; all others are in memory throughout
    and not part of the limit.
    """

    graph: TrainGraph
    function: str
    limit_bytes: int | None
    costs: Mapping[str, OpCost]
    storage: Storage | None = None
    stored: frozenset[str] = frozenset()
    options: SolverOptions = field(default_factory=SolverOptions)
    progress: ReportProgress = silent

    @cached_property
    def problem(self) -> Problem:
        return make_problem(self.graph, self.function, self.costs, self.storage, stored=self.stored)

    @cached_property
    def everything(self) -> tuple[Step, ...]:
        """Keep-all: nothing recomputed, nothing paged but what is stored."""
        return keep_all_steps(self.graph, self.function, stored=self.stored)

    def replayed(self, steps: tuple[Step, ...]) -> Replay:
        return replay(self.graph, self.function, steps, self.costs, self.storage)

    def peak_bytes(self, steps: tuple[Step, ...]) -> int:
        return self.replayed(steps).temporary_peak_bytes

    def fits(self, steps: tuple[Step, ...]) -> bool:
        return self.limit_bytes is None or self.peak_bytes(steps) <= self.limit_bytes

    @cached_property
    def weights(self) -> Weights:
        """What the options' `energy_share` means for this function."""
        share = self.options.energy_share
        if share in (0.0, 1.0):
            return ENERGY if share else TIME
        seconds, joules = self._least
        return Weights(per_second=(1 - share) / (seconds or 1.0), per_joule=share / (joules or 1.0))

    def cost_of(self, found: Replay) -> float:
        """What is to be minimised, of a plan that was replayed."""
        return self.weights.cost(found.seconds, found.joules)

    def holds(self, found: Replay) -> bool:
        """Whether a plan keeps the limits on time, energy and what is written; memory is another question."""
        options = self.options
        limits = (
            (found.seconds, options.deadline_s),
            (found.joules, options.energy_j),
            (found.paged_out_bytes, options.written_bytes),
        )
        return all(limit is None or value <= limit for value, limit in limits)

    def cost(self, steps: tuple[Step, ...]) -> float:
        return self.cost_of(self.replayed(steps))

    @property
    def least_cost(self) -> float:
        """A bound that needs no solver: every op runs once."""
        return self.weights.cost(*self._least)

    @property
    def _least(self) -> tuple[float, float]:
        costs = [self.costs[op.name] for op in self.graph.functions[self.function]]
        return sum(c.seconds for c in costs), sum(c.joules for c in costs)

    def without_paging(self) -> Question:
        """The same question on a device without storage."""
        return replace(self, storage=None, stored=frozenset())

    def answer_everything(self) -> Answer | None:
        """Keep-all, if it fits: no plan is cheaper. Where something is stored, one that reads ahead may be."""
        if self.stored or not self.fits(self.everything):
            return None
        cost = self.cost(self.everything)
        return Answer(steps=self.everything, cost=cost, bound=cost)

    def first_that_fits(self, candidates: Iterable[tuple[Step, ...]]) -> Answer:
        """Of candidates in order of preference, the first inside the limit."""
        for steps in candidates:
            if self.fits(steps):
                return Answer(steps=steps, cost=self.cost(steps))
        return NO_ANSWER
