"""Searches for the transfer benchmark that record every trial: its gain, and the seconds until then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Any

from edgetrain.compiler.search.request import deep_cost_model
from edgetrain.compiler.search.trials import MEASURING
from edgetrain.compiler.tuner_view import machine_of
from edgetrain.targets.profile import HOST, load_target
from edgetrain_tuner import rules
from edgetrain_tuner.deep import Evolution
from edgetrain_tuner.measure.bench import Subject
from edgetrain_tuner.measure.outcome import MEASURED, Opened, Outcome
from edgetrain_tuner.measure.serve import packed
from edgetrain_tuner.measure.worker import Worker
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError
from edgetrain_tuner.search import MARGIN, Allowance, Explorer, Neighbours, Tunable, search


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A trial: when it ended, counted from the search's beginning, and what it brought over the rule's schedule."""

    seconds: float
    schedule: Schedule
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A search's trials in their order. `opened_s` is what it took to compile the rule's schedule and the reference."""

    default: Schedule
    default_seconds: float
    events: tuple[Event, ...]
    search_s: float
    opened_s: float

    def best(self, trials: int | None = None) -> tuple[Schedule, float]:
        """The fastest of the first so many trials, and its speedup; the rule's own where that is as fast."""
        fastest = self.fastest(trials)
        return fastest if fastest is not None and fastest[1] >= MARGIN else (self.default, 1.0)

    def fastest(self, trials: int | None = None) -> tuple[Schedule, float] | None:
        """The fastest of the trials, though it may be slower than the rule's; None where none could be measured."""
        good = [event for event in self.events[:trials] if event.outcome.is_good]
        if not good:
            return None
        found = max(good, key=lambda event: event.outcome.speedup)
        return found.schedule, found.outcome.speedup

    def seconds_to(self, speedup: float) -> float | None:
        """Seconds of search until it was that fast; those of compiling where the rule's own is; None: it never was."""
        if speedup <= 1.0:
            return self.opened_s
        return next((e.seconds + self.opened_s for e in self.events if e.outcome.speedup >= speedup), None)


@dataclass(kw_only=True)
class Recording:
    """Measures with the worker that `edgetrain tune` measures with, and keeps a record."""

    worker: Worker
    began_s: float = field(default_factory=time.perf_counter)
    events: list[Event] = field(default_factory=list)

    def measure(self, number: int, schedule: Schedule, *, budget_s: float) -> Outcome:
        outcome = self.worker.measure(number, schedule, budget_s=budget_s)
        self.events.append(Event(seconds=time.perf_counter() - self.began_s, schedule=schedule, outcome=outcome))
        return outcome


class Tuner:
    """Searches on this machine with one thread. Use as a context."""

    def __init__(self) -> None:
        codegen = replace(load_target(HOST).device.codegen, cores=1)
        self.machine = machine_of(codegen)
        hello = {"codegen": asdict(codegen), "threads": 1}
        self._worker = Worker(MEASURING, hello)
        self.outcomes: list[Outcome] = []

    def __enter__(self) -> Tuner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.__exit__(kind, error, trace)

    def descend(self, subject: Subject, trials: int, starts: Sequence[Schedule] = ()) -> Searched:
        """Coordinate descent from these starts and what each rule proposes."""
        function = subject.function
        others = rules.propose(function, self.machine)[1:]
        return self._searched(
            subject, trials, (*starts, *others), lambda s: rules.neighbours(function, s, self.machine), lambda: None
        )

    def tried(self, subject: Subject, schedules: Sequence[Schedule]) -> Searched:
        """These schedules, and no others."""
        return self._searched(subject, max(len(schedules), 1), schedules, lambda _: (), lambda: None)

    def deep(self, subject: Subject, trials: int) -> Searched:
        """MetaSchedule's evolution alone; its candidates are built, checked and timed as all others."""

        def explorer() -> Explorer | None:
            try:
                return Evolution(subject.function, self.machine, cost_model=deep_cost_model())
            except ScheduleRefusedError:
                return None

        return self._searched(subject, trials, (), lambda _: (), explorer)

    def _searched(
        self,
        subject: Subject,
        trials: int,
        starts: Sequence[Schedule],
        neighbours: Neighbours,
        explorer: Callable[[], Explorer | None],
    ) -> Searched:
        default = rules.propose(subject.function, self.machine)[0]
        began_s = time.perf_counter()
        opened = self._worker.open(0, packed(subject))
        opened_s = time.perf_counter() - began_s
        if not isinstance(opened, Opened):
            raise SystemExit(f"a kernel cannot be measured: {opened}")
        recording = Recording(worker=self._worker)
        tunable = Tunable(
            number=0,
            weight=1.0,
            default=default,
            starts=tuple(dict.fromkeys(s for s in starts if s != default)),
            neighbours=neighbours,
            explorer=explorer,
        )
        (found,) = search([tunable], recording, Allowance(trials=trials, clock=time.perf_counter))
        self._worker.close(0)
        events = recording.events[: len(found.trials)]  # without those that confirm the best
        self.outcomes += [event.outcome for event in events]
        return Searched(
            default=default,
            default_seconds=opened.seconds,
            events=tuple(events),
            search_s=time.perf_counter() - recording.began_s,
            opened_s=opened_s,
        )

    def summary(self) -> dict[str, object]:
        """What became of all trials."""
        invalid = sum(outcome.status != MEASURED for outcome in self.outcomes)
        return {
            "trials": len(self.outcomes),
            "invalid": invalid,
            "invalid share": invalid / max(len(self.outcomes), 1),
            "longest compile s": max((outcome.compile_s for outcome in self.outcomes), default=0.0),
            "cost model": deep_cost_model(),
        }


def subject_of_case(function: Any, operations: int) -> Subject:
    return Subject(function=function, outputs=1, operations=operations)
