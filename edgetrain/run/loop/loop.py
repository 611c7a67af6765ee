"""The loop itself: one step after another, with validation, checkpoints and log lines between them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import NoReturn

from edgetrain.errors import DataError, EdgetrainError, InterruptedRunError
from edgetrain.graph import ir as names
from edgetrain.model.tensor_names import graph_name
from edgetrain.run.engines.engine import Array, BatchSource, Engine, scalar
from edgetrain.run.files.checkpoint import (
    BEST,
    NEWEST,
    Progress,
    Validation,
    epoch_start,
    load_checkpoint,
    read_header,
    save_checkpoint,
    save_run_checkpoint,
)
from edgetrain.run.files.epochs import EpochTable
from edgetrain.run.limits.governor import Governor
from edgetrain.run.loop.callbacks import Callback
from edgetrain.run.loop.divergence import diverged
from edgetrain.run.loop.early_stopping import judge
from edgetrain.run.loop.evaluation import NotFiniteError, evaluate, metrics_of
from edgetrain.run.loop.finite import first_not_finite
from edgetrain.run.loop.interruption import Interruption
from edgetrain.run.loop.learning_rate import learning_rate
from edgetrain.run.loop.running import ExactSum, StepSeconds
from edgetrain.run.loop.settings import TrainSettings
from edgetrain.run.loop.step_log import VALIDATION, StepLog, StepRecord

log = logging.getLogger(__name__)


class Ending(StrEnum):
    FINISHED = "finished"
    NO_LONGER_BETTER = "no longer better"
    BY_CALLBACK = "stopped by a callback"


class TrainingLoop:
    """One process's share of a run: the engine, and the progress. Takes no more memory for more steps."""

    def __init__(
        self,
        engine: Engine,
        source: BatchSource,
        settings: TrainSettings,
        progress: Progress,
        *,
        out: Path,
        callbacks: tuple[Callback, ...],
        step_log: StepLog,
        interruption: Interruption,
        clock: Callable[[], float],
        governor: Governor | None = None,
    ) -> None:
        self._engine = engine
        self._source = source
        self._settings = settings
        self._out = out
        self._callbacks = callbacks
        self._log = step_log
        self._interruption = interruption
        self._clock = clock
        self._governor = governor
        self._inputs, self._labels = self._views()

        self._steps_per_epoch = progress.steps_per_epoch
        whole_steps = settings.epochs * self._steps_per_epoch
        self._total_steps = whole_steps if settings.steps is None else min(whole_steps, settings.steps)
        self._step = progress.step
        self._epoch_loss = ExactSum(progress.epoch_loss)
        self._validation = progress.validation
        self._best = progress.best
        self._seconds = StepSeconds()
        # A run that was stopped during a validation still owes it.
        owes = settings.validation_split is not None and self._validated_step != self._step
        self._closed_step = -1 if owes else self._step
        self._epochs: EpochTable | None = None
        self._saved_state = self._state  # it was loaded, or it is the untrained model
        self._checked_step: int | None = None  # whose parameters are known to be numbers

    @property
    def _validated_step(self) -> int | None:
        return self._validation.step if self._validation is not None else None

    @property
    def _state(self) -> tuple[int, int | None]:
        """Changes whenever there is something new to save."""
        return (self._step, self._validated_step)

    @property
    def _epoch(self) -> int:
        """The epoch, counted from 1, of the last step done."""
        return max(1, math.ceil(self._step / self._steps_per_epoch))

    @property
    def _position(self) -> tuple[int, int]:
        epoch, step = divmod(self._step, self._steps_per_epoch)
        return (epoch, step * self._settings.accumulate)

    @property
    def seconds_per_step(self) -> float | None:
        """The median over this session's latest steps under the present plan; None if it had none left to do."""
        return self._seconds.median

    def progress(self) -> Progress:
        return Progress(
            step=self._step,
            position=self._position,
            steps_per_epoch=self._steps_per_epoch,
            seed=self._settings.seed,
            epoch_loss=self._epoch_loss.parts,
            validation=self._validation,
            best=self._best,
        )

    def run(self) -> Ending:
        """Takes every step that is left. Raises as `training.train` says."""
        if self._governor is not None:
            self._governor.begin(self._step, self._total_steps)
        begun = {"step": self._step, "steps": self._total_steps, "epochs": self._settings.epochs}
        for callback in self._callbacks:
            callback.on_train_begin(begun)
        try:
            with self._open_epochs() as self._epochs:
                return self._loop()
        finally:
            for callback in self._callbacks:
                callback.on_train_end({"step": self._step})

    def _open_epochs(self) -> EpochTable:
        """The table with the epochs that are closed: the last one may still be owed its validation."""
        is_closed = self._is_at_epoch_end() and self._closed_step == self._step
        closed_step = (
            self._step if is_closed else max(0, self._step - 1) // self._steps_per_epoch * self._steps_per_epoch
        )
        is_validated = self._settings.validation_split is not None
        names = sorted(metrics_of(self._settings)) if is_validated else ()
        return EpochTable(self._out, closed_step=closed_step, steps_per_epoch=self._steps_per_epoch, metrics=names)

    def _loop(self) -> Ending:
        self._source.seek(self._position)
        while True:
            if self._is_at_epoch_end() and self._closed_step != self._step:
                self._close_epoch()
            if (ending := self._ending()) is not None:
                self._save()
                if self._governor is not None:
                    self._governor.end(self._step)
                return ending
            if self._step % self._steps_per_epoch == 0:
                self._begin_epoch()
            self._take_step()
            if self._interruption:
                self._save_and_leave()
            if self._governor is not None and self._governor.between_steps(self._step, self._log):
                self._seconds.begin_plan()
                self._inputs, self._labels = self._views()
            every = self._settings.checkpoint_steps
            if every is not None and self._step % every == 0 and not self._is_at_epoch_end():
                self._save()

    def _views(self) -> tuple[Mapping[str, Array], Array]:
        inputs = {name: self._engine.tensor(graph_name(name)) for name in self._settings.inputs}
        return inputs, self._engine.tensor(names.LABELS)

    def _is_at_epoch_end(self) -> bool:
        """Where the run validates: after each epoch, and at the end of a run that ends within one."""
        return self._step > 0 and (self._step % self._steps_per_epoch == 0 or self._step >= self._total_steps)

    def _ending(self) -> Ending | None:
        if self._step >= self._total_steps:
            return Ending.FINISHED
        patience = self._settings.patience_epochs
        if patience is not None and self._best is not None and self._best.stale_epochs >= patience:
            return Ending.NO_LONGER_BETTER
        if any(callback.stop_training for callback in self._callbacks):
            return Ending.BY_CALLBACK
        return None

    def _begin_epoch(self) -> None:
        # Batches that did not fill a step, and whatever validation did to the source, are behind us.
        self._source.seek(self._position)
        epoch = self._step // self._steps_per_epoch + 1
        for callback in self._callbacks:
            callback.on_epoch_begin(epoch, {"step": self._step, "steps_per_epoch": self._steps_per_epoch})

    def _take_step(self) -> None:
        """One optimizer step: `accumulate` batches, then the update. Nothing counts as done before its end."""
        started = self._clock()
        rate = learning_rate(self._settings.learning_rate, self._step, total_steps=self._total_steps)
        self._engine.tensor(names.LEARNING_RATE)[...] = rate
        if self._settings.adam_betas is not None:
            first, second = self._settings.adam_betas
            self._engine.tensor(names.FIRST_CORRECTION)[...] = 1.0 - first ** (self._step + 1)
            self._engine.tensor(names.SECOND_CORRECTION)[...] = 1.0 - second ** (self._step + 1)
        loss = fmean(self._take_batch() for _ in range(self._settings.accumulate))
        if self._settings.accumulate > 1:
            self._engine.call(names.APPLY)
        seconds = self._clock() - started
        if self._step % self._steps_per_epoch == 0:
            self._epoch_loss = ExactSum()
        self._step += 1
        self._epoch_loss.add(loss)
        self._seconds.add(seconds)
        record = StepRecord(step=self._step, epoch=self._epoch, loss=loss, learning_rate=rate, seconds=seconds)
        self._log.write(record)
        logs = {"loss": loss, "learning_rate": rate, "seconds": seconds, "epoch": float(self._epoch)}
        for callback in self._callbacks:
            callback.on_step_end(self._step, logs)

    def _take_batch(self) -> float:
        self._source.fill(self._inputs, self._labels)
        self._engine.call(names.STEP)
        loss = scalar(self._engine.tensor(names.LOSS))
        if not math.isfinite(loss):
            raise self._diverged(f"the loss of step {self._step + 1} is {loss}", self._step + 1)
        return loss

    def _diverged(self, what: str, step: int) -> EdgetrainError:
        return diverged(what, step=step, settings=self._settings, out=self._out, inputs=self._inputs)

    def _close_epoch(self) -> None:
        """Validates, remembers the best, saves, and tells the callbacks."""
        steps = self._step - epoch_start(self._step, self._steps_per_epoch)
        logs = {"loss": self._epoch_loss.value / steps}
        metrics: Mapping[str, float] = {}
        if self._settings.validation_split is not None:
            metrics = self._validate(self._settings.validation_split)
            logs |= {f"validation_{name}": value for name, value in metrics.items()}
        self._closed_step = self._step
        if self._epochs is not None:
            self._epochs.write(self._epoch, self._step, logs["loss"], metrics)
        self._save()
        for callback in self._callbacks:
            callback.on_epoch_end(self._epoch, logs)

    def _validate(self, split: str) -> Mapping[str, float]:
        try:
            metrics = evaluate(
                self._engine, self._source, self._settings, split, is_interrupted=lambda: bool(self._interruption)
            )
        except NotFiniteError as error:
            what = f"after step {self._step} the model's output on the {split} split is no number"
            raise self._diverged(what, self._step + 1) from error
        if metrics is None:
            self._save_and_leave()
        self._require_numbers()
        self._validation = Validation(epoch=self._epoch, step=self._step, metrics=metrics)
        self._log.write_event(VALIDATION, self._step, {"epoch": self._epoch, **metrics})
        self._best = judge(
            self._best,
            value=metrics[self._settings.monitor],
            step=self._step,
            epoch=self._epoch,
            higher_is_better=self._settings.monitor_rises,
            least_gain=self._settings.least_gain,
            loss=metrics["loss"],
        )
        if self._best.step == self._step:
            self._log.sync()
            save_checkpoint(
                self._out / BEST,
                self._engine.saved,
                self.progress(),
                program_sha256=self._settings.program_sha256,
                key=self._settings.key,
                release=self._engine.release,
            )
        return metrics

    def _require_numbers(self) -> None:
        """Before anything is saved: the last update is seen by no loss."""
        if self._checked_step == self._step:
            return
        broken = first_not_finite(self._engine, self._settings.finite_tensors)
        if broken is not None:
            what = f"after the update of step {self._step} `{broken}` holds NaN or infinity"
            raise self._diverged(what, self._step + 1)
        self._checked_step = self._step

    def _save(self) -> None:
        self._require_numbers()
        if self._saved_state == self._state:
            return
        self._log.sync()
        save_run_checkpoint(
            self._out,
            self._engine.saved,
            self.progress(),
            program_sha256=self._settings.program_sha256,
            key=self._settings.key,
            release=self._engine.release,
        )
        self._saved_state = self._state

    def _save_and_leave(self) -> NoReturn:
        self._save()
        raise InterruptedRunError(
            f"stopped by {self._interruption.name} after step {self._step} of {self._total_steps}",
            why=f"the run is saved in `{self._out / NEWEST}`",
            fix=f"go on with `{self._settings.resume_command}`",
        )

    def restore_best(self) -> bool:
        """Puts the best parameters into the engine's memory; says whether it holds them now."""
        if self._best is None:
            return False
        if self._best.step == self._step:
            return True
        path = self._out / BEST
        try:
            if read_header(path, key=self._settings.key).progress.step == self._best.step:
                load_checkpoint(
                    path,
                    self._engine.saved,
                    program_sha256=self._settings.program_sha256,
                    key=self._settings.key,
                    release=self._engine.release,
                )
                return True
            why = "it was saved at another step, before the run went back to an older checkpoint"
        except DataError as error:
            why = error.why
        log.warning("keeping the last parameters instead of the best, of step %d: %s", self._best.step, why)
        return False
