"""Search for better schedules: coordinate descent from the best known start, with more trials for slower kernels.

A deep search asks an explorer first, for half of a kernel's trials, and descends from whatever was best then.

Given the same measurements it asks for the same trials. It knows nothing of compilers and clocks: what measures, and
what says that time is up, is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from edgetrain_tuner.measure.outcome import MEASURED, REFUSED, MeasuringLostError, Outcome
from edgetrain_tuner.schedule import Schedule

STEP = 1.01  # a move must bring this much, or noise would lead the way
MARGIN = 1.03  # what a schedule must bring over the default to be kept
CONFIRMED = 2  # how many of the best are measured again
EXPLORED = 0.5  # of a kernel's trials or time, where there is an explorer
LEARNED, RANDOM = "xgboost", "random"  # what an explorer ranks its ideas by
TRIAL_S = 0.15
CONFIRMATION_S = 0.6

Neighbours = Callable[[Schedule], Sequence[tuple[str, Schedule]]]


class Explorer(Protocol):
    """Proposes schedules by its own method, and learns from their measurements."""

    def next(self) -> Schedule | None: ...

    def tell(self, schedule: Schedule, outcome: Outcome) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Tunable:
    """A kernel to tune: its default, what else to begin with (the most promising first), where to go from there."""

    number: int
    weight: float  # seconds of a step that it takes
    default: Schedule
    starts: tuple[Schedule, ...] = ()
    known: frozenset[Schedule] = frozenset()  # tried before, and no better
    neighbours: Neighbours
    explorer: Callable[[], Explorer | None] = lambda: None  # made when the kernel's turn comes


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A kernel with the schedules that race against its default."""

    number: int
    weight: float
    schedules: tuple[Schedule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    schedule: Schedule
    outcome: Outcome
    is_start: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What a kernel's search found. `best` is None where nothing was better than the default by the margin."""

    number: int
    best: Trial | None
    trials: tuple[Trial, ...]
    failure: str = ""  # why nothing could be measured


class Measurer(Protocol):
    def measure(self, number: int, schedule: Schedule, *, budget_s: float) -> Outcome: ...


@dataclass(kw_only=True)
class Descent:
    """One kernel's search. `next` is the next schedule to try, `tell` reports its outcome."""

    tunable: Tunable
    trials: list[Trial] = field(default_factory=list)
    _tried: set[Schedule] = field(init=False)
    _starts: list[Schedule] = field(init=False)
    _queue: list[tuple[str, Schedule]] = field(default_factory=list)
    _best: tuple[float, Schedule] = field(init=False)
    _expanded: Schedule | None = None

    def __post_init__(self) -> None:
        self._tried = {self.tunable.default, *self.tunable.known}
        self._starts = list(self.tunable.starts)
        self._best = (1.0, self.tunable.default)

    def next(self) -> Schedule | None:
        """The next schedule to try; None when no neighbour of the best is left."""
        while self._starts:
            schedule = self._starts.pop(0)
            if schedule not in self._tried:
                return schedule
        while True:
            while self._queue:
                _, schedule = self._queue.pop(0)
                if schedule not in self._tried:
                    return schedule
            if self._expanded == self._best[1]:
                return None
            self._expand()

    def tell(self, schedule: Schedule, outcome: Outcome) -> None:
        is_start = schedule in self.tunable.starts
        self._tried.add(schedule)
        self.trials.append(Trial(schedule=schedule, outcome=outcome, is_start=is_start))
        if outcome.speedup > self._best[0] * STEP:
            self._best = (outcome.speedup, schedule)
            if not self._starts:
                self._expand(first=self._moved(schedule))

    def adopt(self, schedule: Schedule, outcome: Outcome) -> None:
        """Takes note of a trial that was somebody else's idea; the best of those is what to descend from."""
        self._tried.add(schedule)
        self.trials.append(Trial(schedule=schedule, outcome=outcome))
        if outcome.speedup > self._best[0] * STEP:
            self._best = (outcome.speedup, schedule)
            self._queue = []

    def has_tried(self, schedule: Schedule) -> bool:
        return schedule in self._tried

    def has_starts(self) -> bool:
        return any(schedule not in self._tried for schedule in self._starts)

    def _moved(self, schedule: Schedule) -> str:
        """The parameter whose move led here: going on in that direction is tried first."""
        before = self._expanded
        if before is None or before.rule != schedule.rule:
            return ""
        changed = [name for name, values in schedule.parameters.items() if before.parameters.get(name) != values]
        return changed[0] if changed else ""

    def _expand(self, first: str = "") -> None:
        self._expanded = self._best[1]
        found = self.tunable.neighbours(self._expanded)
        self._queue = sorted(found, key=lambda neighbour: neighbour[0] != first)


@dataclass(kw_only=True)
class _Course:
    """Whose idea is next: the starts, then the explorer's for its share, then the descent's; at an end, the other's."""

    descent: Descent
    explorer: Explorer | None
    _explored: set[Schedule] = field(default_factory=set)

    def next(self, *, is_exploring: bool) -> Schedule | None:
        ideas = [self._descended, self._from_explorer]
        if is_exploring and not self.descent.has_starts():
            ideas.reverse()
        return next((schedule for idea in ideas if (schedule := idea()) is not None), None)

    def tell(self, schedule: Schedule, outcome: Outcome) -> None:
        if self.explorer is not None and schedule in self._explored:
            self.explorer.tell(schedule, outcome)
            self.descent.adopt(schedule, outcome)
        else:
            self.descent.tell(schedule, outcome)

    def _descended(self) -> Schedule | None:
        return self.descent.next()

    def _from_explorer(self) -> Schedule | None:
        while self.explorer is not None:
            schedule = self.explorer.next()
            if schedule is None:
                break
            if not self.descent.has_tried(schedule):
                self._explored.add(schedule)
                return schedule
            self.explorer.tell(schedule, Outcome(status=REFUSED, message="tried before"))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    """After each trial: which kernel, how many trials are done and allowed (0: time decides)."""

    number: int
    trials: int
    allowed: int
    speedup: float


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """How much a search may spend: so many trials, or so many seconds by `clock`. One of the two."""

    trials: int | None = None
    seconds: float | None = None
    clock: Callable[[], float]


def _raised(error: MeasuringLostError) -> None:
    raise error


def search(
    tunables: Iterable[Tunable],
    measurer: Measurer,
    allowance: Allowance,
    *,
    opened: Callable[[Tunable], str] = lambda _: "",
    closed: Callable[[Tunable], None] = lambda _: None,
    progress: Callable[[SearchProgress], None] = lambda _: None,
    lost: Callable[[MeasuringLostError], None] = _raised,
) -> list[Tuned]:
    """Tunes kernel by kernel, the heaviest first; what one leaves over goes to the rest.

    `opened` makes a kernel ready and says why where it cannot; `closed` lets go of it. `lost` hears that nothing can be
    measured any more: where it returns, what was found until then is the answer.
    """
    waiting = sorted(tunables, key=lambda tunable: (-tunable.weight, tunable.number))
    began = allowance.clock()
    found: list[Tuned] = []
    spent = 0
    for position, tunable in enumerate(waiting):
        share = _share([t.weight for t in waiting[position:]])
        trials = math.inf if allowance.trials is None else math.ceil((allowance.trials - spent) * share)
        until = math.inf
        if allowance.seconds is not None:
            now = allowance.clock()
            until = now + max(0.0, began + allowance.seconds - now) * share
        if trials < 1 or allowance.clock() >= until:
            continue
        descent = Descent(tunable=tunable)

        def tried(outcome: Outcome, number: int = tunable.number) -> None:
            nonlocal spent
            spent += 1
            allowed = allowance.trials or 0
            progress(SearchProgress(number=number, trials=spent, allowed=allowed, speedup=outcome.speedup))

        try:
            failure = opened(tunable)
            if failure:
                found.append(Tuned(number=tunable.number, best=None, trials=(), failure=failure))
                continue
            _descend(descent, measurer, allowance, trials=trials, until=until, tried=tried)
            found.append(_confirmed(tunable.number, descent.trials, measurer))
        except MeasuringLostError as error:
            lost(error)
            found.append(_tuned(tunable.number, descent.trials, descent.trials))
            break
        closed(tunable)
    return found


def _descend(
    descent: Descent,
    measurer: Measurer,
    allowance: Allowance,
    *,
    trials: float,
    until: float,
    tried: Callable[[Outcome], None],
) -> None:
    """One kernel's search, until its trials or its time are spent or nothing is left to try."""
    course = _Course(descent=descent, explorer=descent.tunable.explorer())
    began = allowance.clock()
    explored_until = began + (until - began) * EXPLORED
    while len(descent.trials) < trials and allowance.clock() < until:
        is_exploring = len(descent.trials) < trials * EXPLORED and allowance.clock() < explored_until
        schedule = course.next(is_exploring=is_exploring)
        if schedule is None:
            break
        outcome = measurer.measure(descent.tunable.number, schedule, budget_s=TRIAL_S)
        course.tell(schedule, outcome)
        tried(outcome)


def _share(weights: Sequence[float]) -> float:
    total = sum(weights)
    return weights[0] / total if total > 0 else 1.0


def race(
    entrants: Iterable[Entrant],
    measurer: Measurer,
    allowance: Allowance,
    *,
    opened: Callable[[Entrant], str] = lambda _: "",
    closed: Callable[[Entrant], None] = lambda _: None,
) -> Iterator[Tuned]:
    """Tries the schedules of each kernel and no others; the heaviest first, one result after the other.

    When the seconds are spent no other kernel is begun: it is missing in the results. One that was begun is finished.
    """
    until = math.inf if allowance.seconds is None else allowance.clock() + allowance.seconds
    for entrant in sorted(entrants, key=lambda entrant: (-entrant.weight, entrant.number)):
        if allowance.clock() >= until:
            return
        failure = opened(entrant)
        if failure:
            yield Tuned(number=entrant.number, best=None, trials=(), failure=failure)
            continue
        trials = [
            Trial(schedule=schedule, outcome=measurer.measure(entrant.number, schedule, budget_s=TRIAL_S))
            for schedule in entrant.schedules
        ]
        yield _confirmed(entrant.number, trials, measurer)
        closed(entrant)


def _confirmed(number: int, trials: Sequence[Trial], measurer: Measurer) -> Tuned:
    """The best by a second, longer measurement: the luckiest of many trials is not always the quickest."""
    again = [
        Trial(
            schedule=trial.schedule,
            outcome=measurer.measure(number, trial.schedule, budget_s=CONFIRMATION_S),
            is_start=trial.is_start,
        )
        for trial in _ranked(trials)[:CONFIRMED]
        if trial.outcome.speedup >= STEP
    ]
    replaced = {trial.schedule: trial for trial in again}
    return _tuned(number, [replaced.get(trial.schedule, trial) for trial in trials], again)


def _tuned(number: int, trials: Sequence[Trial], finalists: Sequence[Trial]) -> Tuned:
    """The best of the finalists wins, where it brings the margin."""
    good = [trial for trial in finalists if trial.outcome.status == MEASURED and trial.outcome.speedup >= MARGIN]
    best = max(good, key=lambda trial: (trial.outcome.speedup, trial.schedule.canonical()), default=None)
    return Tuned(number=number, best=best, trials=tuple(trials))


def _ranked(trials: Iterable[Trial]) -> list[Trial]:
    """What beat the default, the best first."""
    better = [trial for trial in trials if trial.outcome.speedup > 1.0]
    return sorted(better, key=lambda trial: (-trial.outcome.speedup, trial.schedule.canonical()))
