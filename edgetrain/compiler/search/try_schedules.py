"""Tries schedules of others on a model's kernels, in the compiler's process, and stores the verdicts.

The measuring is done in yet another process, which may crash or hang.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from edgetrain.compiler.request import CompileRequest
from edgetrain.compiler.schedules import ScheduleChoice, ScheduleStores, choice_of, choose_schedules
from edgetrain.compiler.search.entries import entry_of
from edgetrain.compiler.search.trial_time import StepTimes, allowed_seconds
from edgetrain.compiler.search.trials import NOTHING_TRIED, TrialReport, TrialTerms, TriedSchedule
from edgetrain.compiler.search.tune_kernels import calls_of, subject_of
from edgetrain.compiler.tuner_view import schedule_target
from edgetrain.graph.extract import Extracted
from edgetrain_tuner import rules
from edgetrain_tuner.cache.entry import Target, Workload
from edgetrain_tuner.cache.errors import CacheError
from edgetrain_tuner.cache.levels import Levels
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.measure.outcome import REFUSED, Outcome
from edgetrain_tuner.measure.serve import packed
from edgetrain_tuner.measure.worker import Worker
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError
from edgetrain_tuner.search import Allowance, Entrant, Tuned, race
from edgetrain_tuner.transfer import Donor, entries_to_verify, identity
from edgetrain_tuner.workload import workload_of

log = logging.getLogger(__name__)

Counted = Callable[[int, int], None]  # kernels: done, in all


@dataclass(frozen=True, kw_only=True)
class TrialBench:
    """A model's kernels and where they are measured."""

    extracted: Extracted
    machine: Machine
    request: CompileRequest
    terms: TrialTerms
    progress: Counted

    @property
    def target(self) -> Target:
        target = schedule_target(self.request.codegen)
        assert target is not None  # whoever tries has asked
        return target


@dataclass(frozen=True, kw_only=True)
class Chosen:
    choices: Mapping[str, ScheduleChoice]
    report: TrialReport = NOTHING_TRIED


def choose_after_trials(bench: TrialBench, workloads: Mapping[str, Workload], stores: ScheduleStores) -> Chosen:
    """What held on this machine for each kernel, after a trial of what others say is faster.

    The choice is read from the stores after the trials, as the next program's will be: both come to the same.
    A store that cannot be used has nothing.
    """
    machine = bench.terms.origin.machine
    try:
        with stores.opened() as levels:
            known = choose_schedules(workloads, bench.target, levels, machine=machine)
            if not known.untried or not bench.terms.are_allowed:
                return Chosen(choices=known.choices)
            times = StepTimes.of(bench.extracted.graph, workloads, bench.terms.rates)
            lent = _Lent.of(bench, workloads, known.untried)
            report = _try_all(bench, lent, times, levels)
            after = choose_schedules(workloads, bench.target, levels, machine=machine).choices
    except (CacheError, OSError, sqlite3.Error) as error:
        log.warning("the schedule cache %s is left out: %s", stores.folder, error)
        return Chosen(choices={})
    named = {symbol: lent.choice(workloads[symbol], choice) for symbol, choice in after.items()}
    return Chosen(choices=named, report=report)


def try_faster_entries(bench: TrialBench, stores: ScheduleStores) -> TrialReport:
    """Tries every entry that says it is faster for one of the kernels, whatever is known of it here."""
    workloads = {kernel.symbol: workload_of(kernel.function) for kernel in bench.extracted.kernels}
    with stores.opened() as levels:
        found = {
            symbol: tuple(entries_to_verify(workload, bench.target, levels)) for symbol, workload in workloads.items()
        }
        lent = _Lent.of(bench, workloads, {s: donors for s, donors in found.items() if donors})
        times = StepTimes.of(bench.extracted.graph, workloads, bench.terms.rates)
        return _try_all(bench, lent, times, levels)


@dataclass(frozen=True, kw_only=True)
class _Contest:
    """A kernel, and the schedules to try on it with who lends each."""

    symbol: str
    workload: Workload
    lenders: Mapping[Schedule, tuple[Donor, ...]]
    refused: Mapping[Schedule, str]  # as it was lent: why it cannot be fitted

    @property
    def name(self) -> str:
        return f"{self.workload.name} {'x'.join(map(str, self.workload.dims))}"

    @property
    def racing(self) -> tuple[Schedule, ...]:
        return tuple(schedule for schedule in self.lenders if schedule not in self.refused)

    def tried(self, schedule: Schedule, outcome: Outcome) -> Iterator[TriedSchedule]:
        """What came of it, for everyone who lends it."""
        for donor in self.lenders[schedule]:
            yield TriedSchedule(
                kernel=self.name, entry=donor.id, level=donor.level, claimed=donor.speedup, outcome=outcome
            )


@dataclass(frozen=True, kw_only=True)
class _Lent:
    """One contest for each kernel; two symbols of the same kernel have one."""

    contests: Mapping[tuple[object, ...], _Contest]

    @staticmethod
    def of(bench: TrialBench, workloads: Mapping[str, Workload], donors: Mapping[str, Iterable[Donor]]) -> _Lent:
        functions = {kernel.symbol: kernel.function for kernel in bench.extracted.kernels}
        contests: dict[tuple[object, ...], _Contest] = {}
        for symbol, lending in donors.items():
            workload = workloads[symbol]
            if identity(workload) in contests:
                continue
            lenders: dict[Schedule, tuple[Donor, ...]] = {}
            refused: dict[Schedule, str] = {}
            for donor in lending:
                schedule = donor.schedule
                try:
                    # What was made for this very kernel and target is taken as it is, or refused.
                    if not donor.is_known:
                        schedule = rules.refit(functions[symbol], schedule, bench.machine)
                except ScheduleRefusedError as error:
                    refused[schedule] = str(error)
                lenders[schedule] = (*lenders.get(schedule, ()), donor)
            contests[identity(workload)] = _Contest(symbol=symbol, workload=workload, lenders=lenders, refused=refused)
        return _Lent(contests=contests)

    def choice(self, workload: Workload, choice: ScheduleChoice) -> ScheduleChoice:
        """The choice under the name of who lent it, where it was tried just now."""
        contest = self.contests.get(identity(workload))
        lenders = contest.lenders.get(choice.schedule, ()) if contest and choice.schedule else ()
        return choice_of(lenders[0], choice.schedule) if lenders and choice.schedule else choice


def _try_all(bench: TrialBench, lent: _Lent, times: StepTimes, levels: Levels) -> TrialReport:
    """Every contest, the heaviest kernel first, until the time is up; what was learned is stored as it comes."""
    contests = list(lent.contests.values())
    tried: list[TriedSchedule] = []
    unmeasured: dict[str, str] = {}

    def learn(contest: _Contest, schedule: Schedule, outcome: Outcome, *, is_kept: bool = False) -> None:
        origin = bench.terms.origin
        levels.user.put(entry_of(contest.workload, bench.target, schedule, outcome, is_kept=is_kept, origin=origin))
        tried.extend(contest.tried(schedule, outcome))

    for contest in contests:
        for schedule, why in contest.refused.items():
            learn(contest, schedule, Outcome(status=REFUSED, message=why))
    left = sum(1 for contest in contests if contest.racing)
    bench.progress(len(contests) - left, len(contests))
    for tuned in _raced(bench, contests, times):
        contest = contests[tuned.number]
        if tuned.failure:
            unmeasured[contest.name] = tuned.failure
        for trial in tuned.trials:
            is_best = tuned.best is not None and tuned.best.schedule == trial.schedule
            learn(contest, trial.schedule, trial.outcome, is_kept=is_best)
        left -= 1
        bench.progress(len(contests) - left, len(contests))
    return TrialReport(tried=tuple(tried), left=left, unmeasured=unmeasured)


def _raced(bench: TrialBench, contests: Sequence[_Contest], times: StepTimes) -> Iterator[Tuned]:
    kernels = {kernel.symbol: kernel for kernel in bench.extracted.kernels}
    calls = calls_of(bench.extracted)
    trials = bench.terms.trials
    hello = {"codegen": asdict(bench.request.codegen), "threads": bench.terms.threads}

    def opened(entrant: Entrant) -> str:
        contest = contests[entrant.number]
        subject = subject_of(kernels[contest.symbol], calls[contest.symbol], contest.workload.operations)
        answer = worker.open(entrant.number, packed(subject))
        return answer if isinstance(answer, str) else ""

    entrants = [
        Entrant(number=number, weight=times.kernel_s[contest.symbol], schedules=contest.racing)
        for number, contest in enumerate(contests)
        if contest.racing
    ]
    with Worker(trials.measuring, hello, limits=trials.limits) as worker:
        yield from race(
            entrants,
            worker,
            Allowance(seconds=allowed_seconds(bench.terms, times), clock=time.monotonic),
            opened=opened,
            closed=lambda entrant: worker.close(entrant.number),
        )
