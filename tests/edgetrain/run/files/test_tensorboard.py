"""Our event files, read by TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgetrain.errors import DeviceError
from edgetrain.run.files.history import read_history
from edgetrain.run.files.tensorboard import TensorBoard
from edgetrain.run.loop.callbacks import Callback, Logs
from edgetrain.run.loop.step_log import LOG
from tests.edgetrain.run.small_run import STEPS, STEPS_PER_EPOCH, run


class _StopAfter(Callback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, step: int, logs: Logs) -> None:
        self.stop_training = step >= self._step


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard"
    )
    found = accumulators.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return [(event.step, event.value) for event in found.Scalars(tag)]


def test_tensorboard_reads_every_step_and_every_epoch(tmp_path: Path) -> None:
    run(tmp_path, callbacks=(TensorBoard(tmp_path / "events"),))
    losses = scalars(tmp_path / "events", "step/loss")
    assert [step for step, _ in losses] == list(range(1, STEPS + 1))
    assert [value for _, value in losses] == pytest.approx(read_history(tmp_path / LOG).losses)
    accuracy = scalars(tmp_path / "events", "epoch/validation_accuracy")
    validations = read_history(tmp_path / LOG).validations
    assert dict(accuracy) == pytest.approx({v.step: v.metrics["accuracy"] for v in validations})


def test_a_resumed_run_lists_no_step_twice(tmp_path: Path) -> None:
    events = tmp_path / "events"
    for resume in (False, True):
        run(tmp_path, resume=resume, callbacks=(TensorBoard(events), _StopAfter(5 if not resume else STEPS)))
    assert [step for step, _ in scalars(events, "step/loss")] == list(range(1, STEPS + 1))


def test_steps_that_a_killed_run_lost_are_taken_back(tmp_path: Path) -> None:
    killed = TensorBoard(tmp_path)
    killed.on_train_begin({"step": 0})
    for step in range(1, 6):
        killed.on_step_end(step, {"loss": 100.0})
    killed.on_train_end({})
    (torn,) = tmp_path.iterdir()
    torn.write_bytes(torn.read_bytes()[:-7])  # the last record is cut
    resumed = TensorBoard(tmp_path)
    resumed.on_train_begin({"step": 3})
    resumed.on_step_end(4, {"loss": 1.0})
    resumed.on_train_end({})
    assert scalars(tmp_path, "step/loss") == [(1, 100.0), (2, 100.0), (3, 100.0), (4, 1.0)]


def test_a_number_beyond_what_the_format_holds_is_its_largest(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path)
    board.on_train_begin({"step": 0})
    board.on_step_end(1, {"loss": 1e300})
    board.on_epoch_end(1, {"validation_mse": -1e300})
    board.on_train_end({})
    assert dict(scalars(tmp_path, "step/loss")) == pytest.approx({1: 3.4e38}, rel=0.01)
    assert dict(scalars(tmp_path, "epoch/validation_mse")) == pytest.approx({1: -3.4e38}, rel=0.01)


def test_a_folder_that_cannot_be_made_is_a_device_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeviceError, match="cannot write"):
        TensorBoard(tmp_path / "file" / "events").on_train_begin({"step": 0})


def test_steps_can_be_read_at_the_end_of_each_epoch_while_the_run_goes_on(tmp_path: Path) -> None:
    seen: list[int] = []

    class Reader(Callback):
        def on_epoch_end(self, epoch: int, logs: Logs) -> None:
            seen.append(len(scalars(tmp_path / "events", "step/loss")))

    run(tmp_path, callbacks=(TensorBoard(tmp_path / "events"), Reader()))
    assert seen == list(range(STEPS_PER_EPOCH, STEPS + 1, STEPS_PER_EPOCH))
