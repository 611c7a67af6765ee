"""A run whose loss is no number any more: what it says, and which checkpoint it leaves."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgetrain.errors import DataError, DivergedError
from edgetrain.run.files.checkpoint import BEST, NEWEST, load_checkpoint, read_header
from edgetrain.run.loop.callbacks import Callback, Logs
from edgetrain.run.loop.train import train
from tests.edgetrain.run.small_run import (
    SETTINGS,
    STEPS,
    STEPS_PER_EPOCH,
    WEIGHTS,
    ShuffledRows,
    SoftmaxEngine,
    logged_steps,
    run,
)


class Poison:
    """Makes the weights useless from the update of one step on, as an update that overflows does."""

    def __init__(self, step: int, value: float) -> None:
        self._steps_left = step
        self._value = value
        self.engine = SoftmaxEngine(before_call=self._before_call)

    def _before_call(self, function: str) -> None:
        if function != "step":
            return
        if self._steps_left == 0:
            np.frombuffer(self.engine.saved, np.float32)[:WEIGHTS] = self._value
        self._steps_left -= 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(("poisoned_step", "good_step"), [(1, None), (3, None), (4, 2), (5, 3), (6, 4), (8, 6)])
def test_a_loss_that_is_no_number_stops_the_run_and_names_the_last_good_checkpoint(
    tmp_path: Path, poisoned_step: int, good_step: int | None, value: float
) -> None:
    """Checkpoints are at steps 2, 3, 4, 6, 8. One right before the failing step holds what made it fail."""
    poison = Poison(poisoned_step - 1, value)
    with pytest.raises(DivergedError) as caught:
        train(poison.engine, ShuffledRows(), SETTINGS, out=tmp_path)
    assert caught.value.exit_code == 7
    assert f"step {poisoned_step} is nan" in caught.value.what
    assert "train.learning_rate=0.005" in caught.value.fix  # a tenth of the rate
    assert ("go on with `edgetrain fit --resume" in caught.value.fix) == (good_step is not None)
    assert logged_steps(tmp_path) == list(range(1, poisoned_step))
    if good_step is None:
        assert "no good checkpoint" in caught.value.what
    else:
        assert f"step {good_step}" in caught.value.what
        header = read_header(tmp_path / NEWEST)
        assert header.progress.step == good_step
        bits, _ = run(tmp_path, resume=True)
        assert np.isfinite(np.frombuffer(bits, np.float32)).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_validation_outputs_that_are_no_number_stop_the_run(tmp_path: Path) -> None:
    engine = SoftmaxEngine()

    class Break(Callback):
        def on_step_end(self, step: int, logs: Logs) -> None:
            if step == STEPS_PER_EPOCH:
                np.frombuffer(engine.saved, np.float32)[:WEIGHTS] = np.nan

    with pytest.raises(DivergedError, match="validation split"):
        train(engine, ShuffledRows(), SETTINGS, out=tmp_path, callbacks=(Break(),))
    assert read_header(tmp_path / NEWEST).progress.step == 2


class Ruin(Callback):
    """What the update of one step does to a tensor; no loss and no validation shows it before the next step."""

    def __init__(self, engine: SoftmaxEngine, tensor: str, step: int, value: float) -> None:
        self._values = engine.tensor(tensor)
        self._step = step
        self._value = value

    def on_step_end(self, step: int, logs: Logs) -> None:
        if step == self._step:
            self._values[-1, -1] = self._value


@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize("tensor", ["weights", "second_moment"])
@pytest.mark.parametrize(("steps", "good_step"), [(1, None), (4, 3), (STEPS_PER_EPOCH, 2), (STEPS, 10)])
def test_no_update_is_saved_that_left_no_number(
    tmp_path: Path, steps: int, good_step: int | None, tensor: str, value: float
) -> None:
    engine = SoftmaxEngine()
    chosen = replace(SETTINGS, validation_split=None, steps=steps)
    with pytest.raises(DivergedError, match=f"after the update of step {steps} `{tensor}` holds NaN") as caught:
        train(engine, ShuffledRows(), chosen, out=tmp_path, callbacks=(Ruin(engine, tensor, steps, value),))
    assert caught.value.exit_code == 7
    assert (tmp_path / NEWEST).exists() == (good_step is not None)
    if good_step is not None:
        assert f"step {good_step}" in caught.value.what
        again = SoftmaxEngine()
        progress = load_checkpoint(tmp_path / NEWEST, again.saved, program_sha256=SETTINGS.program_sha256)
        assert progress.step == good_step
        assert np.isfinite(np.frombuffer(again.saved, np.float32)).all()


def test_the_best_epoch_is_never_one_that_left_no_number(tmp_path: Path) -> None:
    """Its outputs are numbers, since a moment is not read by the model."""
    engine = SoftmaxEngine()
    ruin = Ruin(engine, "second_moment", 2 * STEPS_PER_EPOCH, math.nan)
    with pytest.raises(DivergedError, match="second_moment"):
        train(engine, ShuffledRows(), SETTINGS, out=tmp_path, callbacks=(ruin,))
    assert read_header(tmp_path / BEST).progress.step == STEPS_PER_EPOCH


def test_what_is_infinite_on_purpose_may_stay_so(tmp_path: Path) -> None:
    engine = SoftmaxEngine()
    ruin = Ruin(engine, "second_moment", STEPS, math.inf)
    train(engine, ShuffledRows(), replace(SETTINGS, finite_tensors=("weights",)), out=tmp_path, callbacks=(ruin,))
    assert read_header(tmp_path / NEWEST).progress.step == STEPS


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_batch_that_holds_nan_is_the_datas_fault(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        train(SoftmaxEngine(), ShuffledRows(poisoned_batch=(1, 1)), SETTINGS, out=tmp_path)
    assert "`pixels`" in caught.value.why
    assert read_header(tmp_path / NEWEST).progress.step == 4  # the parameters are sound: nothing was dropped
