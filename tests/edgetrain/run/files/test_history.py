from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgetrain.run.files.checkpoint import Validation
from edgetrain.run.files.history import RunHistory, ThinnedValidations, read_history
from edgetrain.run.loop.step_log import LOG, VALIDATION, StepRecord, open_log
from tests.edgetrain.run.small_run import SETTINGS, STEPS, run


def write_log(path: Path, losses: list[float], *, validate_every: int) -> None:
    log = open_log(path, after_step=0)
    for step, loss in enumerate(losses, start=1):
        log.write(StepRecord(step=step, epoch=1, loss=loss, learning_rate=0.1, seconds=0.01))
        if step % validate_every == 0:
            log.write_event(VALIDATION, step, {"epoch": step // validate_every, "loss": loss, "accuracy": 0.5})
        log.write_event("budget", step, {"cause": "asked"})
    log.close()


def test_a_short_run_is_there_with_every_step_and_validation(tmp_path: Path) -> None:
    losses = [1 / step for step in range(1, 31)]
    write_log(tmp_path / LOG, losses, validate_every=10)
    history = read_history(tmp_path / LOG)
    assert history.losses == tuple(losses)
    assert history.steps == tuple(range(1, 31))
    assert history.loss_steps == ()
    assert history.validations == tuple(
        Validation(epoch=epoch, step=10 * epoch, metrics={"loss": losses[10 * epoch - 1], "accuracy": 0.5})
        for epoch in (1, 2, 3)
    )


@pytest.mark.parametrize("count", [100, 101, 150, 777])
def test_of_a_long_run_the_ends_and_the_extremes_are_kept(tmp_path: Path, count: int) -> None:
    losses = np.random.default_rng(count).normal(size=count).tolist()
    write_log(tmp_path / LOG, losses, validate_every=2)
    history = read_history(tmp_path / LOG, most_steps=100, most_validations=8, best_step=38)
    assert len(history.losses) == len(history.steps) <= 100
    assert history.steps == tuple(sorted(set(history.steps)))
    assert all(losses[step - 1] == loss for step, loss in zip(history.steps, history.losses, strict=True))
    assert (history.steps[0], history.steps[-1]) == (1, count)
    assert {min(losses), max(losses)} <= set(history.losses)
    assert (history.loss_steps == ()) == (count == 100)
    validated = [validation.step for validation in history.validations]
    assert {2, 38, count - count % 2} <= set(validated)
    assert validated == sorted(set(validated))
    assert len(validated) <= 8 + 2


def test_a_log_that_was_removed_or_torn_tells_what_is_left(tmp_path: Path) -> None:
    assert read_history(tmp_path / LOG) == RunHistory()
    write_log(tmp_path / LOG, [3.0, 2.0, 1.0], validate_every=9)
    content = (tmp_path / LOG).read_bytes()
    (tmp_path / LOG).write_bytes(content[:-60] + b"\0\0\0")
    assert read_history(tmp_path / LOG).losses == (3.0, 2.0)


def test_a_validation_that_is_listed_again_counts_once() -> None:
    """A run of an older version lists its validations when it goes on, and once more when it was killed right after."""
    kept = ThinnedValidations()
    for step in (5, 10, 5, 10, 15):
        kept.add(Validation(epoch=step // 5, step=step, metrics={}))
    assert [validation.step for validation in kept.kept] == [5, 10, 15]


def test_a_run_that_goes_on_has_the_history_of_one_that_never_stopped(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    run(tmp_path / "parts", replace(SETTINGS, steps=5))
    run(tmp_path / "parts", replace(SETTINGS, steps=STEPS), resume=True)
    whole, parts = (read_history(tmp_path / name / LOG) for name in ("whole", "parts"))
    assert [v.step for v in parts.validations] == [3, 5, 6, 9, 12]
    assert parts.losses[:5] != whole.losses[:5]  # the schedule spans other steps
    assert parts.steps == whole.steps == tuple(range(1, STEPS + 1))
