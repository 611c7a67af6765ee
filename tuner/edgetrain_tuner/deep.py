"""The deep search: TVM's MetaSchedule proposes schedules of its design spaces, and learns from their measurements.

Only its evolution is used. Building, checking and timing are ours, as for every other schedule; what it proposes
becomes data before anything is compiled. Given the same seed and measurements it proposes the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm.s_tir import meta_schedule

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.measure.outcome import Outcome
from edgetrain_tuner.rules.metaschedule.design_space import Context, DesignSpaces
from edgetrain_tuner.rules.metaschedule.rule import NAME, MetaSchedule, parameters_of
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.schedule import Schedule, ScheduleRefusedError
from edgetrain_tuner.search import LEARNED

BATCH = 8  # candidates between two lessons
_POPULATION, _GENERATIONS = 48, 2  # MetaSchedule's own 512 and 4 take longer than the trials that they spare
_LEAST_POPULATION = 8
_MOST_TRIALS = 100_000  # when to stop is for whoever asks
_MOST_EMPTY_BATCHES = 3
_FIRST_LESSON = 2 * BATCH  # measurements before the model is asked


class Evolution:
    """`next` is the next schedule to try, `tell` reports its outcome; every schedule from `next` must be reported.

    Raises `ScheduleRefusedError` for a kernel without a design space.
    """

    def __init__(self, function: Any, machine: Machine, *, cost_model: str, seed: int = 1) -> None:
        self._kernel = Kernel(function=function, contraction=None)
        self._machine = machine
        self._spaces = DesignSpaces(function, machine.cores)
        search = meta_schedule.search_strategy.EvolutionarySearch(
            population_size=_POPULATION,
            init_min_unmeasured=_LEAST_POPULATION,
            genetic_num_iters=_GENERATIONS,
        )
        self._context = Context(self._spaces.module, cores=machine.cores, search=search, seed=seed)
        self._model = _Model(cost_model, seed)
        self._database = meta_schedule.database.MemoryDatabase()
        self._workload = self._database.commit_workload(self._spaces.module)
        self._context.pre_tuning(_MOST_TRIALS, BATCH, database=self._database, cost_model=self._model)
        self._batch: list[tuple[Any, Schedule | None]] = []
        self._waiting: list[Schedule] = []
        self._seconds: dict[Schedule, float | None] = {}  # None: could not be measured
        self.refused = 0

    def next(self) -> Schedule | None:
        """The next schedule to try; None when MetaSchedule has nothing more to propose."""
        for _ in range(_MOST_EMPTY_BATCHES):
            if self._waiting:
                return self._waiting.pop(0)
            self._learn()
            candidates = self._context.generate_measure_candidates()
            if not candidates:
                return None
            self._batch = [(candidate, self._as_data(candidate)) for candidate in candidates]
            self._waiting = [schedule for _, schedule in self._batch if schedule is not None]
        return None

    def tell(self, schedule: Schedule, outcome: Outcome) -> None:
        self._seconds[schedule] = outcome.seconds if outcome.is_good else None

    def _as_data(self, candidate: Any) -> Schedule | None:
        """The candidate as a schedule; None for one that our rule refuses, which costs no trial."""
        trace = candidate.sch.trace
        space = self._spaces.number_of(trace)
        if space is None:
            return None
        try:
            schedule = Schedule(NAME, parameters_of(space, self._spaces.decisions(trace)))
            MetaSchedule().check(self._kernel, self._machine, schedule.parameters)
        except ScheduleRefusedError:
            self.refused += 1
            return None
        return schedule

    def _learn(self) -> None:
        """Tells MetaSchedule what became of its last batch, and remembers the measured ones as parents."""
        if not self._batch:
            return
        candidates, results = [], []
        for candidate, schedule in self._batch:
            seconds = None if schedule is None else self._seconds.get(schedule)
            candidates.append(candidate)
            failure = "refused or failed" if seconds is None else None
            run_seconds = None if seconds is None else [seconds]
            results.append(meta_schedule.runner.RunnerResult(run_seconds, failure))
            if run_seconds is not None:
                record = meta_schedule.database.TuningRecord(
                    candidate.sch.trace, self._workload, run_seconds, self._context.target, candidate.args_info
                )
                self._database.commit_tuning_record(record)
        self._context.notify_runner_results(candidates, results)
        self._model.update(self._context, candidates, results)
        self._batch = []


@tvm.ir.utils.derived_object
class _Model(meta_schedule.cost_model.PyCostModel):  # type: ignore[misc]
    """Scores for candidates: at random until there is something to learn from; always, without xgboost.

    TVM's own models draw from NumPy's global generator: two searches in one process would disturb each other.
    """

    def __init__(self, kind: str, seed: int) -> None:
        super().__init__()
        self._random = np.random.default_rng(seed)
        self._measured = 0
        self._learned = None
        if kind == LEARNED:
            config = meta_schedule.cost_model.xgb_model.XGBConfig(seed=seed, nthread=1)
            self._learned = meta_schedule.cost_model.XGBModel(
                config=config, num_warmup_samples=0, adaptive_training=False
            )

    def update(self, context: Any, candidates: list[Any], results: list[Any]) -> None:
        self._measured += sum(result.run_secs is not None for result in results)
        if self._learned is not None and self._measured:
            self._learned.update(context, candidates, results)

    def predict(self, context: Any, candidates: list[Any]) -> npt.NDArray[np.float64]:
        if self._learned is None or self._measured < _FIRST_LESSON:
            return self._random.uniform(size=len(candidates))
        scores: npt.NDArray[np.float64] = self._learned.predict(context, candidates)
        return scores
