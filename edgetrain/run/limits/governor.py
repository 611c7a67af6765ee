"""Keeps a run inside limits that change while it runs: between steps, it switches to another plan of the ladder.

A limit is a number of bytes, from the user's budget, from the system's shortage of memory, or from this job's share
among several. The quickest plan within the least of them runs. Plans change no result, so nothing else depends on
when a limit moved.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edgetrain.errors import DeviceError, EdgetrainError, UsageError
from edgetrain.program.artifact import Artifact, load_artifact
from edgetrain.run.files.folders import JobRecord
from edgetrain.run.limits.exchange import LiveState, Mailbox, Request, write_state
from edgetrain.run.limits.ladder import Ladder, Rung
from edgetrain.run.limits.period import Period
from edgetrain.run.loop.step_log import StepLog
from edgetrain.units import show_bytes

log = logging.getLogger(__name__)

ASKED = "asked"


class Switchable(Protocol):
    """An engine that can go on with another plan of the same graph."""

    def switch(self, artifact: Artifact) -> None: ...

    def measured_peak_bytes(self) -> int: ...


class Limit(Protocol):
    """Somebody besides the user who bounds the run's memory."""

    @property
    def cause(self) -> str:
        """One word for the log."""
        ...

    @property
    def is_budget(self) -> bool:
        """Whether the run promises to stay inside it, and the report checks that."""
        ...

    def allowance(self, ladder: Ladder, rung: Rung) -> int | None:
        """The most the next steps may use, with `rung` running now; None: no limit. Cheap: asked after every step."""
        ...

    def reserve(self, nbytes: int) -> bool:
        """Before the run grows to `nbytes`: whether it still may. A true answer holds until the next `settle`."""
        ...

    def settle(self, nbytes: int) -> None:
        """The run uses a plan of `nbytes` now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What a governor is told of the run: where it lives, what it was compiled from, and the plans it has."""

    folder: Path
    compiled_directory: Path
    compiled_key: str
    rung: Rung  # the plan that runs at first
    ladder: Ladder
    budget_bytes: int | None


class Governor:
    """One run's. The session calls `begin` once, and `between_steps` after every step."""

    def __init__(self, engine: Switchable, beginning: Beginning, limits: Sequence[Limit] = ()) -> None:
        self._engine = engine
        self._beginning = beginning
        self._limits = tuple(limits)
        self._mailbox = Mailbox(beginning.folder)
        self._ladder = beginning.ladder.with_rung(beginning.rung)
        self._rung = beginning.rung
        self._budget_bytes = beginning.budget_bytes
        self._promised_bytes = beginning.budget_bytes
        self._since_step, self._steps = 0, 0
        self._cause = ""
        self._ended: list[Period] = []
        self._unanswered, self._answered, self._refusal = "", "", ""

    def begin(self, step: int, steps: int) -> None:
        """The run goes on after `step` of `steps`. From here on it can be asked."""
        self._since_step, self._steps = step, steps
        self._settle()
        self._promised_bytes = self._least(self._budget_bytes, budgets_only=True)[0]
        self._publish(step)

    def between_steps(self, step: int, step_log: StepLog) -> bool:
        """Answers a waiting request, and switches to the plan that the limits ask for.

        Says whether another plan runs now.
        """
        before = self._rung
        if self._unanswered:
            self._answer(step)
        request = self._mailbox.take()
        if request is not None:
            self._meet(request, step, step_log)
        elif self._limits:
            self._follow_limits(step, step_log)
        return self._rung != before

    def periods(self) -> tuple[Period, ...]:
        """The run so far, plan by plan; the last one is still going on."""
        return (*self._ended, self._period())

    def end(self, step: int) -> None:
        """The last step is done. Whoever still waits for an answer gets it."""
        if self._unanswered:
            self._answer(step)
        elif (request := self._mailbox.take()) is not None:
            self._unanswered = request.id
            self._refusal = "the run has taken its last step" if request.rung is not None else ""
            self._answer(step)

    def _meet(self, request: Request, step: int, step_log: StepLog) -> None:
        self._refusal, self._unanswered = "", request.id
        if request.rung is not None:
            try:
                self._change_budget(request, request.rung, step, step_log)
            except EdgetrainError as error:
                self._refusal = f"{error.what}: {error.why}" if error.why else error.what
                log.warning("the budget stays as it was: %s", self._refusal)
            else:
                return  # answered after a step under the new plan, so that there is something to measure
        self._answer(step)

    def _answer(self, step: int) -> None:
        self._answered, self._unanswered = self._unanswered, ""
        self._publish(step)

    def _change_budget(self, request: Request, rung: Rung, step: int, step_log: StepLog) -> None:
        """Raises `EdgetrainError` when the plan cannot be used; then budget and plan are as before."""
        if request.compiled_key != self._beginning.compiled_key:
            raise UsageError("the plan was made for other kernels", fix="ask again")
        ladder = self._ladder.with_rung(rung)
        chosen, cause = self._choose(ladder, request.budget_bytes)
        self._enter(chosen, cause if chosen != self._rung else ASKED, request.budget_bytes, step, step_log)
        self._ladder = ladder
        record = JobRecord.read(self._beginning.folder)
        if record is not None:  # `--resume` goes on inside the new budget
            dataclasses.replace(record, memory_bytes=request.budget_bytes).write(self._beginning.folder)

    def _follow_limits(self, step: int, step_log: StepLog) -> None:
        chosen, cause = self._choose(self._ladder, self._budget_bytes)
        if chosen == self._rung:
            return
        try:
            self._enter(chosen, cause, self._budget_bytes, step, step_log)
        except EdgetrainError as error:
            log.warning("cannot switch to the plan with %s: %s", show_bytes(chosen.planned_peak_bytes), error.what)
            self._ladder = self._ladder.without(chosen)  # or it would be tried after every step
            return
        self._publish(step)

    def _choose(self, ladder: Ladder, budget_bytes: int | None) -> tuple[Rung, str]:
        """The quickest plan within every limit, and whose limit it was; the lowest where none is that small."""
        limit_bytes, cause = self._least(budget_bytes, budgets_only=False)
        chosen = ladder.best_within(limit_bytes) or ladder.lowest
        now = self._rung
        if (chosen.needed_bytes, chosen.planned_seconds) == (now.needed_bytes, now.planned_seconds):
            return now, cause  # the same plan as another program, of a budget that comes to the same
        if chosen.needed_bytes > self._rung.needed_bytes:
            refused = [limit for limit in self._limits if not limit.reserve(chosen.needed_bytes)]
            if refused:
                self._settle()
                return self._rung, refused[0].cause
        return chosen, cause

    def _least(self, budget_bytes: int | None, *, budgets_only: bool) -> tuple[int | None, str]:
        asked = [(limit.allowance(self._ladder, self._rung), limit.cause, limit.is_budget) for limit in self._limits]
        bounds = [(n, cause) for n, cause, is_budget in asked if n is not None and (is_budget or not budgets_only)]
        if budget_bytes is not None:
            bounds.append((budget_bytes, ASKED))
        return min(bounds, default=(None, self._limits[0].cause if self._limits else ASKED))

    def _enter(self, rung: Rung, cause: str, budget_bytes: int | None, step: int, step_log: StepLog) -> None:
        """Ends the period and begins one with the engine on `rung`. Raises `EdgetrainError` and changes nothing."""
        ended, before = self._period(), self._rung
        if rung != before:
            try:
                self._engine.switch(load_artifact(rung.program))
            except EdgetrainError:
                self._settle()
                raise
        self._rung, self._cause, self._since_step = rung, cause, step
        self._budget_bytes = budget_bytes
        self._ended.append(ended)
        self._settle()
        self._promised_bytes = self._least(budget_bytes, budgets_only=True)[0]
        event = {
            "cause": cause,
            "from": {"budget_bytes": ended.budget_bytes, "planned_peak_bytes": before.planned_peak_bytes},
            "to": {"budget_bytes": self._promised_bytes, "planned_peak_bytes": rung.planned_peak_bytes},
            "measured_peak_bytes": ended.measured_peak_bytes,
            "planned_seconds": rung.planned_seconds,
        }
        step_log.write_event("budget", step, event)
        log.info("after step %d: switched to the plan with %s (%s)", step, show_bytes(rung.planned_peak_bytes), cause)

    def _settle(self) -> None:
        for limit in self._limits:
            limit.settle(self._rung.needed_bytes)

    def _period(self) -> Period:
        return Period(
            after_step=self._since_step,
            cause=self._cause,
            budget_bytes=self._promised_bytes,
            planned_peak_bytes=self._rung.planned_peak_bytes,
            beside_bytes=self._rung.beside_bytes,
            measured_peak_bytes=self._engine.measured_peak_bytes(),
        )

    def _publish(self, step: int) -> None:
        beginning = self._beginning
        state = LiveState(
            step=step,
            steps=self._steps,
            budget_bytes=self._budget_bytes,
            limit_bytes=self._promised_bytes,
            rung=self._rung,
            measured_peak_bytes=self._engine.measured_peak_bytes(),
            since_step=self._since_step,
            rungs=self._ladder.rungs,
            compiled_directory=str(beginning.compiled_directory),
            compiled_key=beginning.compiled_key,
            answered=self._answered,
            refusal=self._refusal,
        )
        try:
            write_state(beginning.folder, state)
        except DeviceError as error:  # a run does not end because nobody can be told how it is
            log.warning("%s: %s", error.what, error.why)
