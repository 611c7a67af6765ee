"""The training loop: steps, validation, checkpoints, log. Stopped at any point, it goes on to the same last bit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from edgetrain.errors import DataError, UsageError
from edgetrain.run.engines.engine import BatchSource, Engine
from edgetrain.run.files.checkpoint import (
    NEWEST,
    Progress,
    load_run_checkpoint,
    read_run_header,
    remove_run_checkpoints,
)
from edgetrain.run.limits.governor import Governor
from edgetrain.run.loop.callbacks import Callback
from edgetrain.run.loop.interruption import catch_interruptions
from edgetrain.run.loop.loop import Ending, TrainingLoop
from edgetrain.run.loop.settings import TrainSettings
from edgetrain.run.loop.step_log import LOG, VALIDATION, StepLog, open_log

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOutcome:
    """How the run went. The engine's memory holds the best parameters if `holds_best`, else the last."""

    progress: Progress
    ending: Ending
    epochs: float  # done, with the part of the last one
    seconds_per_step: float | None  # median over this session's steps; None when it had none left to do
    steps_taken: int  # by this session
    checkpoint: Path
    holds_best: bool


def train(
    engine: Engine,
    source: BatchSource,
    settings: TrainSettings,
    *,
    out: Path,
    callbacks: Iterable[Callback] = (),
    resume: bool = False,
    clock: Callable[[], float] = time.perf_counter,
    governor: Governor | None = None,
) -> TrainOutcome:
    """Trains until the epochs or steps are done, patience ends, or a callback asks to stop.

    Writes `log.jsonl`, `epochs.csv`, `checkpoint.bin`, `checkpoint.previous.bin` and `best.bin` to `out`. With `resume`
    it goes on from the checkpoint there, to the same bits as a run that never stopped; without, files of an older run
    in `out` are replaced. A `governor` may change the engine's plan between steps.

    Raises `DivergedError` when the loss or a parameter is no number, `InterruptedRunError` after SIGINT or SIGTERM (a
    checkpoint is saved first), `DataError` for a checkpoint or data that does not fit, `DeviceError` when the disk
    refuses.
    """
    steps_per_epoch = _steps_per_epoch(source, settings)
    if resume:
        progress = load_run_checkpoint(
            out, engine.saved, program_sha256=settings.program_sha256, key=settings.key, release=engine.release
        )
        _check_resumable(progress, settings, steps_per_epoch)
        log.info("resumed after step %d", progress.step)
    else:
        remove_run_checkpoints(out)
        progress = Progress(step=0, position=(0, 0), steps_per_epoch=steps_per_epoch, seed=settings.seed)
    validated_step = progress.validation.step if progress.validation is not None else 0
    step_log = open_log(out / LOG, after_step=progress.step, validated_step=validated_step)
    try:
        progress = _with_history_in_log(progress, step_log, settings)
        with catch_interruptions() as interruption:
            loop = TrainingLoop(
                engine,
                source,
                settings,
                progress,
                out=out,
                callbacks=tuple(callbacks),
                step_log=step_log,
                interruption=interruption,
                clock=clock,
                governor=governor,
            )
            ending = loop.run()
    finally:
        step_log.close()
    final = loop.progress()
    return TrainOutcome(
        progress=final,
        ending=ending,
        epochs=final.step / steps_per_epoch,
        seconds_per_step=loop.seconds_per_step,
        steps_taken=final.step - progress.step,
        checkpoint=out / NEWEST,
        holds_best=loop.restore_best(),
    )


def _with_history_in_log(progress: Progress, step_log: StepLog, settings: TrainSettings) -> Progress:
    """The progress without what an older format listed in it: from here on that is in the log."""
    for earlier in progress.earlier:
        step_log.write_event(VALIDATION, earlier.step, {"epoch": earlier.epoch, **earlier.metrics})
    best = progress.best
    if best is not None and progress.earlier:
        ties = sum(earlier.metrics.get(settings.monitor) == best.value for earlier in progress.earlier)
        best = replace(best, ties=max(1, ties))
    return replace(progress, best=best, earlier=())


def require_resumable(source: BatchSource, settings: TrainSettings, *, out: Path, saved_bytes: int) -> None:
    """Raises what `train` with `resume` would raise for a checkpoint that does not fit, before anything is changed."""
    header = read_run_header(out, program_sha256=settings.program_sha256, saved_bytes=saved_bytes, key=settings.key)
    _check_resumable(header.progress, settings, _steps_per_epoch(source, settings))


def _steps_per_epoch(source: BatchSource, settings: TrainSettings) -> int:
    steps = source.steps_per_epoch // settings.accumulate
    if steps < 1:
        raise UsageError(
            f"an epoch has {source.steps_per_epoch} batches and one step needs {settings.accumulate}",
            why="gradients accumulate over that many batches before the parameters change",
            fix=f"set `train.accumulate={max(1, source.steps_per_epoch)}` or less, or lower train.batch",
        )
    return steps


def _check_resumable(progress: Progress, settings: TrainSettings, steps_per_epoch: int) -> None:
    if progress.seed != settings.seed:
        raise UsageError(
            f"the run began with seed {progress.seed}, and this is seed {settings.seed}",
            why="the order of the batches depends on it, so the runs would mix",
            fix=f"resume with seed {progress.seed}, or start again without --resume",
        )
    if progress.steps_per_epoch != steps_per_epoch:
        raise DataError(
            f"the run began with {progress.steps_per_epoch} steps in an epoch, and now there are {steps_per_epoch}",
            why="the dataset or its split has changed since",
            fix="resume with the data of the first run, or start again without --resume",
        )
