"""The search for the cheapest plan: quick ones, relaxation, branch and bound, repeated blocks once, neighbourhoods.

Nothing that a solver returns is believed: every plan is priced by the caller, who replays it, and one that the
caller refuses does not count.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from edgetrain.planner.plan import PageIn, Step
from edgetrain.planner.solvers.answer import Answer
from edgetrain.planner.solvers.mip_solvers import Effort, MipProgram, Outcome, Status, open_mip_program
from edgetrain.planner.solvers.neighbourhood import fixed_outside, sweep
from edgetrain.planner.solvers.problem import Problem, largest_op_bytes
from edgetrain.planner.solvers.refine import refine
from edgetrain.planner.solvers.repeats import find_twins
from edgetrain.planner.solvers.timeline import Slot, full_timeline, windowed_timeline
from edgetrain.planner.solvers.translate import steps_of, values_of
from edgetrain.planner.solvers.windowed_model import Aim, WindowedModel, build_model, touching_slots

log = logging.getLogger(__name__)

# What a plan costs, in the unit of the aim, or None if it breaks a limit. Replays it.
Price = Callable[[tuple[Step, ...]], float | None]

_PATIENT_BINARIES = 4_000  # up to here one flat search gets most of the time; beyond, neighbourhoods do
_FLAT_SHARE = 0.7
_FLAT_SHARE_LARGE = 0.25
_FIRST_NEIGHBOURHOOD = 600  # binaries that are free at once
_NEIGHBOURHOOD_GROWTH = 1.6
_NEIGHBOURHOOD_S = 4.0
_SMALL_SLOTS = 400  # a full timeline of at most so many slots is taken whole
_MIN_TIME_S = 0.05
_SHARE_WITHOUT_PAGING = 0.5
_WORTH_MERGING = 0.7  # decisions that are left when blocks that look alike are decided alike, as a share of all
_MERGED_SHARE = 0.5  # of the time, for that
_TWO_PASSES_OPS = 12  # up to here a whole timeline offers every op twice a stage: out of order, or two times over


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How long and how widely to search. With `nodes` and enough time the answer is the same everywhere."""

    time_limit_s: float = 30.0
    nodes: int | None = None
    hops: int = 4
    relative_gap: float = 1e-6
    mip_solver: str = "highs"
    full: bool = False  # every op in every stage: the reference formulation, for small graphs
    merges_repeats: bool = True  # blocks that look alike are decided alike first, as one
    told: Callable[[float, float], None] = lambda done_s, limit_s: None  # how long it has searched, now and then


def search(
    problem: Problem, aim: Aim, price: Price, *, known: Iterable[tuple[Step, ...]] = (), options: SearchOptions
) -> Answer:
    """The cheapest plan that the caller accepts, as far as time allows, never dearer than the `known` ones."""
    if largest_op_bytes(problem) > aim.limit_bytes:
        return Answer(steps=None, is_infeasible=True)
    # A bound that needs no search: every op runs once.
    least = aim.seconds_weight * sum(problem.seconds) + aim.joules_weight * sum(problem.joules)
    run = _Search(problem=problem, aim=aim, price=price, options=options, bound=least)
    for steps in known:
        run.offer(steps)
        run.tell()
    if problem.transfers is not None and aim.lanes != "free":
        # A transfer is slower than most ops: the smaller program without paging soon has a plan that is hard to beat.
        run.improve(
            next(iter(run.timelines())).slots, pages=False, until_s=_SHARE_WITHOUT_PAGING * options.time_limit_s
        )
    for candidate in run.timelines():
        status = run.improve(candidate.slots, pages=True, until_s=options.time_limit_s)
        if run.best is not None or status is not Status.INFEASIBLE:
            break
        if candidate.is_whole:
            return Answer(steps=None, is_infeasible=True)
    return Answer(steps=run.best, cost=run.best_cost, bound=run.bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    slots: tuple[Slot, ...]
    is_whole: bool  # every op in every stage


@dataclass(slots=True, kw_only=True)
class _Search:
    problem: Problem
    aim: Aim
    price: Price
    options: SearchOptions
    bound: float  # proven, in the aim's unit
    best: tuple[Step, ...] | None = None
    best_cost: float | None = None
    started_s: float = field(default_factory=time.monotonic)
    ends_s: float = 0.0  # of the current search

    def tell(self) -> None:
        self.options.told(time.monotonic() - self.started_s, self.options.time_limit_s)

    def offer(self, steps: tuple[Step, ...]) -> bool:
        """Takes the plan if it is the cheapest so far."""
        cost = self.price(steps)
        if cost is None or (self.best_cost is not None and cost >= self.best_cost):
            return False
        self.best, self.best_cost = steps, cost
        return True

    def timelines(self) -> Iterator[_Candidate]:
        """Wider and wider, up to everything; the caller stops as soon as one is not proven too narrow."""
        count = len(self.problem.op_names)
        hops = self.options.hops
        known = [] if self.best is None else [self.best]
        while not self.options.full and hops < count and count * (count + 1) // 2 > _SMALL_SLOTS:
            yield _Candidate(slots=windowed_timeline(self.problem, hops, known=known), is_whole=False)
            hops *= 3
        slots = full_timeline(self.problem, passes=2 if count <= _TWO_PASSES_OPS else 1, known=known)
        yield _Candidate(slots=slots, is_whole=True)

    def improve(self, timeline: tuple[Slot, ...], *, pages: bool, until_s: float) -> Status:
        """Searches the timeline until so long after the search began; says what the program says."""
        self.ends_s = self.started_s + until_s
        if self.best is not None and self.left_s < _MIN_TIME_S:
            return Status.FEASIBLE  # what was known took all the time: to build the program alone would take more
        model = build_model(self.problem, timeline, self.aim, pages=pages)
        program = open_mip_program(self.options.mip_solver, model.program)
        relaxed = program.relax(Effort(seconds=max(self.left_s, 1.0)))
        if relaxed.status is Status.INFEASIBLE:
            return relaxed.status
        if pages or self.problem.transfers is None:
            self._take_bound(timeline, model, relaxed)
        if self._is_done():
            return Status.OPTIMAL
        binaries = len(model.keeps) + len(timeline) - len(self.problem.op_names)
        share = _FLAT_SHARE if binaries <= _PATIENT_BINARIES else _FLAT_SHARE_LARGE
        flat = program.solve(self._effort(share * self.left_s), start=self._start(model))
        if flat.status is Status.INFEASIBLE:
            return flat.status
        if (pages or self.problem.transfers is None) and not self.aim.stall_share:
            self._raise_bound(model, flat)
        self._take(model, flat)
        if flat.status is not Status.OPTIMAL and not self._is_done():
            if self.options.merges_repeats and binaries > _PATIENT_BINARIES:
                self._solve_repeats_once(timeline, pages=pages)
            self._search_neighbourhoods(model, program)
        return flat.status

    def _solve_repeats_once(self, timeline: tuple[Slot, ...], *, pages: bool) -> None:
        """Where blocks repeat: the smaller program that decides them alike. Its solution is one of the whole."""
        touches = touching_slots(self.problem, timeline)
        decisions = find_twins(self.problem, timeline, touches).by_touch
        if len(set(decisions.values())) > _WORTH_MERGING * len(decisions):
            return
        model = build_model(self.problem, timeline, self.aim, pages=pages, merges_twins=True)
        program = open_mip_program(self.options.mip_solver, model.program)
        self._take(model, program.solve(self._effort(_MERGED_SHARE * self.left_s)))

    def _search_neighbourhoods(self, model: WindowedModel, program: MipProgram) -> None:
        size = float(_FIRST_NEIGHBOURHOOD)
        while self.best is not None and self.left_s > _MIN_TIME_S:
            improved = False
            for free in sweep(model, int(size)):
                if self.left_s < _MIN_TIME_S or self._is_done():
                    return
                start = self._start(model)
                if start is None:
                    return
                effort = self._effort(self.left_s if self.options.nodes else min(_NEIGHBOURHOOD_S, self.left_s))
                outcome = program.solve(effort, fixed=fixed_outside(start, free), start=start)
                improved |= self._take(model, outcome)
            if not improved:
                if size > len(model.keeps):
                    return
                size *= _NEIGHBOURHOOD_GROWTH

    @property
    def left_s(self) -> float:
        return self.ends_s - time.monotonic()

    def _effort(self, seconds: float) -> Effort:
        return Effort(seconds=seconds, nodes=self.options.nodes, relative_gap=self.options.relative_gap, told=self.tell)

    def _take_bound(self, timeline: tuple[Slot, ...], model: WindowedModel, relaxed: Outcome) -> None:
        """The relaxation's bound; where the program is pessimistic about transfers, that of an optimistic one."""
        if self.aim.stall_share:
            model = build_model(self.problem, timeline, replace(self.aim, stall_share=0.0))
            program = open_mip_program(self.options.mip_solver, model.program)
            relaxed = program.relax(Effort(seconds=max(self.left_s, 1.0)))
        self._raise_bound(model, relaxed)

    def _raise_bound(self, model: WindowedModel, outcome: Outcome) -> None:
        if outcome.bound is not None:
            bound = outcome.bound * model.objective_scale
            self.bound = max(self.bound, bound)

    def _start(self, model: WindowedModel) -> Mapping[str, float] | None:
        """The best plan as a start, unless it pages what the program cannot."""
        pageable = {self.problem.tensor_names[tensor] for tensor, _ in model.page_ins}
        if self.best is None or any(isinstance(step, PageIn) and step.tensor not in pageable for step in self.best):
            return None
        return values_of(model, self.best)

    def _take(self, model: WindowedModel, outcome: Outcome) -> bool:
        if not outcome.values:
            return False
        steps = refine(self.problem, steps_of(model, outcome.values), self.aim.limit_bytes)
        taken = self.offer(steps)
        if taken:
            log.debug("plan of cost %g, bound %g, %.1f s left", self.best_cost, self.bound, self.left_s)
        return taken

    def _is_done(self) -> bool:
        if self.best_cost is None:
            return False
        return self.best_cost - self.bound <= self.options.relative_gap * abs(self.best_cost)
