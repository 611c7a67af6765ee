"""The search itself, in the compiler's process: kernels, donors from the cache, and a process that measures."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edgetrain.compiler.measure.runners import Runner
from edgetrain.compiler.schedules import CACHE, TRANSFERRED
from edgetrain.compiler.search.request import DEEP, SEARCHED, KernelTrial, Searched, TunedKernel, TuneRequest
from edgetrain.compiler.search.trials import MEASURING
from edgetrain.compiler.tuner_view import machine_of, schedule_target
from edgetrain.errors import DeviceError
from edgetrain.graph.extract import Extracted, Kernel
from edgetrain.graph.ir import Op
from edgetrain_tuner import rules
from edgetrain_tuner.cache.entry import Target, Workload
from edgetrain_tuner.cache.levels import Levels
from edgetrain_tuner.deep import Evolution
from edgetrain_tuner.machine import Machine
from edgetrain_tuner.measure.bench import Subject
from edgetrain_tuner.measure.outcome import MeasuringLostError
from edgetrain_tuner.measure.serve import packed
from edgetrain_tuner.measure.worker import Limits, Worker
from edgetrain_tuner.rules.metaschedule.rule import NAME as META_SCHEDULE
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError
from edgetrain_tuner.search import Allowance, Explorer, SearchProgress, Trial, Tunable, Tuned, search
from edgetrain_tuner.transfer import donors, tried
from edgetrain_tuner.workload import workload_of

log = logging.getLogger(__name__)

_DEVICE_START_S = 900.0  # the first link for a target builds a C library for it
_DEVICE_COMPILE_S = 30.0
MOST_DONORS = 6  # what is lent by the seventh was hardly ever better in trials


def _limits_of(runner: Runner | None) -> Limits:
    """A runner keeps its own limits; these are for the process that waits for it, and links for its device."""
    if runner is None:
        return Limits()
    return Limits(start_s=_DEVICE_START_S, compile_s=_DEVICE_COMPILE_S, run_s=2 * (runner.run_s + runner.way_s))


def _worker(request: TuneRequest) -> Worker:
    """The process that measures on this machine, or has a runner's device do it."""
    hello: dict[str, Any] = {"codegen": asdict(request.compile.codegen), "threads": request.threads}
    if request.runner is not None:
        hello["runner"] = request.runner.to_json()
    return Worker(MEASURING, hello, limits=_limits_of(request.runner))


def tune_kernels(extracted: Extracted, request: TuneRequest, progress: Callable[[int, int], None]) -> Searched:
    """Tunes the kernels that `request.weights` name, in the order of what they weigh."""
    machine = machine_of(request.compile.codegen)
    lost: list[MeasuringLostError] = []
    kernels = {kernel.symbol: kernel for kernel in extracted.kernels if kernel.symbol in request.weights}
    symbols = list(kernels)
    with request.stores.opened() as levels, _worker(request) as worker:
        search_ = _Search(extracted, machine, schedule_target(request.compile.codegen), levels)
        subjects = {symbol: search_.candidates(kernel) for symbol, kernel in kernels.items()}
        tunables = [
            subjects[symbol].tunable(number, request.weights[symbol], machine, request.deep)
            for number, symbol in enumerate(symbols)
        ]
        began_s = time.monotonic()

        def told(done: SearchProgress) -> None:
            elapsed_s = round(time.monotonic() - began_s)
            progress(*((done.trials, done.allowed) if done.allowed else (elapsed_s, round(request.seconds or 0))))

        def opened(tunable: Tunable) -> str:
            answer = worker.open(tunable.number, packed(subjects[symbols[tunable.number]].subject))
            return answer if isinstance(answer, str) else ""

        found = search(
            tunables,
            worker,
            Allowance(trials=request.trials, seconds=request.seconds, clock=time.monotonic),
            opened=opened,
            closed=lambda tunable: worker.close(tunable.number),
            progress=told,
            lost=lost.append,
        )
    tuned_kernels = tuple(subjects[symbols[tuned.number]].tuned(symbols[tuned.number], tuned) for tuned in found)
    return Searched(kernels=tuned_kernels, lost=_told(lost[0]) if lost else None)


def _told(lost: MeasuringLostError) -> DeviceError:
    words = {name: str(lost.told.get(name, "")) for name in ("what", "why", "fix")}
    return DeviceError(words["what"], why=words["why"], fix=words["fix"])


@dataclass(frozen=True, kw_only=True)
class _Candidates:
    """A kernel with where its search begins."""

    kernel: Kernel
    subject: Subject
    workload: Workload
    default: Schedule
    lent: Mapping[Schedule, str]  # with where each comes from
    others: tuple[Schedule, ...]  # what other rules propose
    known: frozenset[Schedule]

    def tunable(self, number: int, weight: float, machine: Machine, deep: str) -> Tunable:
        function = self.kernel.function
        return Tunable(
            number=number,
            weight=weight,
            default=self.default,
            starts=tuple(dict.fromkeys((*self.lent, *self.others))),
            known=self.known - self.lent.keys(),
            neighbours=lambda schedule: rules.neighbours(function, schedule, machine),
            explorer=lambda: self._explorer(machine, deep),
        )

    def _explorer(self, machine: Machine, deep: str) -> Explorer | None:
        """MetaSchedule's search; None where none was asked for, or its rules have nothing to say about the kernel."""
        if not deep:
            return None
        try:
            # What is known already was proposed from another seed: the next search begins elsewhere.
            return Evolution(self.kernel.function, machine, cost_model=deep, seed=1 + len(self.known))
        except ScheduleRefusedError as error:
            log.info("%s is not searched deeply: %s", self.kernel.symbol, error)
            return None

    def tuned(self, symbol: str, tuned: Tuned) -> TunedKernel:
        return TunedKernel(
            symbol=symbol,
            workload=self.workload,
            best=self._trial(tuned.best) if tuned.best is not None else None,
            trials=tuple(self._trial(trial) for trial in tuned.trials),
            failure=tuned.failure,
        )

    def _trial(self, trial: Trial) -> KernelTrial:
        found_by = DEEP if trial.schedule.rule == META_SCHEDULE else SEARCHED
        source = self.lent.get(trial.schedule, found_by)
        return KernelTrial(schedule=trial.schedule, outcome=trial.outcome, source=source)


class _Search:
    def __init__(self, extracted: Extracted, machine: Machine, target: Target | None, levels: Levels) -> None:
        self._calls = calls_of(extracted)
        self._machine = machine
        self._target = target
        self._levels = levels

    def candidates(self, kernel: Kernel) -> _Candidates:
        workload = workload_of(kernel.function)
        default, *others = rules.propose(kernel.function, self._machine)
        lent, known = self._lent(kernel.function, workload)
        return _Candidates(
            kernel=kernel,
            subject=subject_of(kernel, self._calls[kernel.symbol], workload.operations),
            workload=workload,
            default=default,
            lent={schedule: source for schedule, source in lent.items() if schedule != default},
            others=tuple(others),
            known=known,
        )

    def _lent(self, function: Any, workload: Workload) -> tuple[dict[Schedule, str], frozenset[Schedule]]:
        if self._target is None:
            return {}, frozenset()
        lent: dict[Schedule, str] = {}
        for donor in donors(workload, self._target, self._levels, most=MOST_DONORS):
            try:
                schedule = rules.refit(function, donor.schedule, self._machine)
            except ScheduleRefusedError as error:
                log.info("the schedule %s does not transfer: %s", donor.id[:12], error)
                continue
            lent.setdefault(schedule, CACHE if donor.is_known else TRANSFERRED)
        return lent, tried(workload, self._target, self._levels)


def calls_of(extracted: Extracted) -> Mapping[str, Op]:
    """A call of each kernel, by its symbol."""
    return {op.kernel: op for ops in extracted.graph.functions.values() for op in reversed(ops)}


def subject_of(kernel: Kernel, call: Op, operations: int) -> Subject:
    """The kernel as it is called in a program: what it writes over is one tensor."""
    return Subject(function=kernel.function, outputs=len(call.writes), aliases=kernel.aliases, operations=operations)
