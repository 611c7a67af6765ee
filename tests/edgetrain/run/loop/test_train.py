"""The loop: what a step does, how a run ends, and who hears of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgetrain.errors import UsageError
from edgetrain.run.engines.engine import Array
from edgetrain.run.files.checkpoint import BEST, NEWEST, PREVIOUS, read_header
from edgetrain.run.files.history import read_history
from edgetrain.run.loop.callbacks import Callback, History, Logs
from edgetrain.run.loop.learning_rate import LearningRate, learning_rate
from edgetrain.run.loop.loop import Ending
from edgetrain.run.loop.step_log import LOG
from edgetrain.run.loop.train import train
from tests.edgetrain.run.small_run import SETTINGS, STEPS, ShuffledRows, SoftmaxEngine, logged_steps, run


def test_training_lowers_the_loss_and_raises_the_accuracy(tmp_path: Path) -> None:
    _, outcome = run(tmp_path, replace(SETTINGS, epochs=60))
    validations = read_history(tmp_path / LOG).validations
    first, last = validations[0].metrics, validations[-1].metrics
    assert last["loss"] < 0.5 * first["loss"]
    assert last["accuracy"] > first["accuracy"]
    assert outcome.ending is Ending.FINISHED
    assert outcome.epochs == 60
    assert outcome.seconds_per_step is not None


def test_accumulated_gradients_update_like_one_large_batch(tmp_path: Path) -> None:
    """Four batches of the same rows, accumulated, are the same rows once."""

    class SameBatch(ShuffledRows):
        def fill(self, inputs: Mapping[str, Array], labels: Array) -> None:
            self.position = (0, 0)
            super().fill(inputs, labels)

    finals = []
    for accumulate in (1, 4):
        engine = SoftmaxEngine(accumulate=accumulate)
        chosen = replace(SETTINGS, accumulate=accumulate, steps=3, epochs=20)
        source = SameBatch(rows=16)
        train(engine, source, chosen, out=tmp_path / str(accumulate))
        losses = read_history(tmp_path / str(accumulate) / LOG).losses
        finals.append((np.frombuffer(engine.saved, np.float32).copy(), losses))
    np.testing.assert_allclose(finals[0][0], finals[1][0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(finals[0][1], finals[1][1], rtol=1e-6)


def test_the_engine_gets_each_steps_rate_and_corrections(tmp_path: Path) -> None:
    seen: list[tuple[float, float, float]] = []
    names = ("train.learning_rate", "train.first_correction", "train.second_correction")

    def note(function: str) -> None:
        if function == "step":
            rate, first, second = (float(engine.tensor(name)) for name in names)
            seen.append((rate, first, second))

    engine = SoftmaxEngine(before_call=note)
    train(engine, ShuffledRows(), SETTINGS, out=tmp_path)
    expected = [
        (learning_rate(SETTINGS.learning_rate, t, total_steps=STEPS), 1 - 0.9 ** (t + 1), 1 - 0.999 ** (t + 1))
        for t in range(STEPS)
    ]
    np.testing.assert_allclose(seen, expected, rtol=1e-6)


def test_patience_ends_the_run_and_the_best_parameters_remain(tmp_path: Path) -> None:
    """A rate this high overshoots, so that an early epoch is the best."""
    chosen = replace(SETTINGS, learning_rate=LearningRate(peak=2.0), epochs=50, patience_epochs=2)
    bits, outcome = run(tmp_path, chosen)
    values = [v.metrics["loss"] for v in read_history(tmp_path / LOG).validations]
    best = min(range(len(values)), key=values.__getitem__)
    assert outcome.ending is Ending.NO_LONGER_BETTER
    assert len(values) == best + 1 + 2
    assert outcome.progress.best is not None
    assert (outcome.progress.best.epoch, outcome.progress.best.value) == (best + 1, values[best])
    assert outcome.holds_best
    bits_of_best, _ = run(tmp_path / "short", replace(chosen, epochs=best + 1, patience_epochs=None))
    assert bits == bits_of_best
    assert run(tmp_path, chosen, resume=True) == (bits, replace(outcome, seconds_per_step=None, steps_taken=0))


def test_a_damaged_best_checkpoint_leaves_the_last_parameters(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chosen = replace(SETTINGS, learning_rate=LearningRate(peak=2.0), epochs=50, patience_epochs=2)
    run(tmp_path, chosen)
    (tmp_path / BEST).write_bytes(b"")
    _, outcome = run(tmp_path, chosen, resume=True)
    assert not outcome.holds_best
    assert "keeping the last parameters" in caplog.text


def test_a_run_of_few_steps_still_validates_at_its_end(tmp_path: Path) -> None:
    _, outcome = run(tmp_path, replace(SETTINGS, steps=2))
    assert outcome.progress.step == 2
    assert [v.step for v in read_history(tmp_path / LOG).validations] == [2]
    assert outcome.epochs == pytest.approx(2 / 3)


def test_callbacks_hear_everything_in_order(tmp_path: Path) -> None:
    heard: list[str] = []

    class Listener(Callback):
        def on_train_begin(self, logs: Logs) -> None:
            heard.append(f"begin {logs['step']}/{logs['steps']}")

        def on_epoch_begin(self, epoch: int, logs: Logs) -> None:
            heard.append(f"epoch {epoch}")

        def on_step_end(self, step: int, logs: Logs) -> None:
            heard.append(f"step {step} of epoch {logs['epoch']:g}")

        def on_epoch_end(self, epoch: int, logs: Logs) -> None:
            heard.append(f"end of {epoch}: {', '.join(logs)}")

        def on_train_end(self, logs: Logs) -> None:
            heard.append(f"end {logs['step']}")

    history = History()
    run(tmp_path, replace(SETTINGS, steps=4), callbacks=(Listener(), history))
    assert heard == [
        "begin 0/4",
        "epoch 1",
        *(f"step {n} of epoch 1" for n in (1, 2, 3)),
        "end of 1: loss, validation_loss, validation_accuracy",
        "epoch 2",
        "step 4 of epoch 2",
        "end of 2: loss, validation_loss, validation_accuracy",
        "end 4",
    ]
    assert history.history["loss"][0] == pytest.approx(np.mean(read_history(tmp_path / LOG).losses[:3]))


def test_callbacks_hear_the_end_of_a_run_that_fails(tmp_path: Path) -> None:
    ends: list[float] = []

    class Failing(Callback):
        def on_step_end(self, step: int, logs: Logs) -> None:
            raise RuntimeError

        def on_train_end(self, logs: Logs) -> None:
            ends.append(logs["step"])

    with pytest.raises(RuntimeError):
        run(tmp_path, callbacks=(Failing(),))
    assert ends == [1]


def test_more_batches_a_step_than_an_epoch_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="3 batches and one step needs 4"):
        train(SoftmaxEngine(accumulate=4), ShuffledRows(), replace(SETTINGS, accumulate=4), out=tmp_path)


def test_a_new_run_forgets_the_files_of_an_older_one(tmp_path: Path) -> None:
    run(tmp_path)
    run(tmp_path, replace(SETTINGS, steps=1, checkpoint_steps=None, validation_split=None))
    assert logged_steps(tmp_path) == [1]
    assert read_header(tmp_path / NEWEST).progress.step == 1
    assert not (tmp_path / PREVIOUS).exists()
    assert not (tmp_path / BEST).exists()
