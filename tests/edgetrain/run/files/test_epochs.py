from __future__ import annotations

import contextlib
import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from edgetrain.run.files.epochs import EPOCHS, EpochTable
from edgetrain.run.files.history import read_history
from edgetrain.run.loop.learning_rate import LearningRate
from edgetrain.run.loop.step_log import LOG, VALIDATION, StepRecord, open_log
from edgetrain_tuner import disk
from tests.edgetrain.run.small_run import SETTINGS, STEPS, STEPS_PER_EPOCH, run


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_run_leaves_a_line_for_each_epoch_with_its_metrics(tmp_path: Path) -> None:
    run(tmp_path)
    history = read_history(tmp_path / LOG)
    found = rows((tmp_path / EPOCHS).read_text())
    assert [(int(row["epoch"]), int(row["step"])) for row in found] == [(v.epoch, v.step) for v in history.validations]
    for row, validation in zip(found, history.validations, strict=True):
        assert float(row["validation_accuracy"]) == validation.metrics["accuracy"]
        first = validation.step - STEPS_PER_EPOCH
        expected = sum(history.losses[first : validation.step]) / STEPS_PER_EPOCH
        assert float(row["loss"]) == pytest.approx(expected)


def test_the_whole_table_is_on_the_disk_when_it_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    sync = disk.sync

    def noted(descriptor: int) -> None:
        sync(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").read_bytes())

    monkeypatch.setattr(disk, "sync", noted)
    with EpochTable(tmp_path, closed_step=0, steps_per_epoch=3, metrics=()) as table:
        table.write(1, 3, 0.5, {})
    assert synced[-1] == (tmp_path / EPOCHS).read_bytes()


def test_an_epoch_that_was_cut_short_or_not_validated_has_its_line_too(tmp_path: Path) -> None:
    with contextlib.closing(open_log(tmp_path / LOG, after_step=0, validated_step=0)) as log:
        for step, loss in enumerate((3.0, 2.0, 1.0, 0.5, 0.25), start=1):
            log.write(StepRecord(step=step, epoch=1 + (step > 3), loss=loss, learning_rate=0.1, seconds=0.1))
            if step == 3:
                log.write_event(VALIDATION, 3, {"epoch": 1, "mse": 4.0})
    with EpochTable(tmp_path, closed_step=5, steps_per_epoch=3, metrics=("mse",)) as table:
        table.write(3, 8, 0.125, {"mse": 0.5})
        written = (tmp_path / EPOCHS).read_text()  # while the table is open
    assert written == "epoch,step,loss,validation_mse\n1,3,2.0,4.0\n2,5,0.375,\n3,8,0.125,0.5\n"


@pytest.mark.parametrize("stop_step", range(1, STEPS))
def test_a_run_that_was_stopped_anywhere_has_the_table_of_one_that_was_not(tmp_path: Path, stop_step: int) -> None:
    for validation_split in (None, "validation"):
        settings = replace(SETTINGS, validation_split=validation_split)
        whole, parts = tmp_path / f"whole-{validation_split}", tmp_path / f"parts-{validation_split}"
        run(whole, settings)
        run(parts, replace(settings, steps=stop_step, learning_rate=LearningRate(peak=0.05)))
        assert rows((parts / EPOCHS).read_text())[-1]["step"] == str(stop_step)  # cut short, and told
        run(parts, settings, resume=True)
        kept = [row["step"] for row in rows((parts / EPOCHS).read_text())]
        assert kept == [row["step"] for row in rows((whole / EPOCHS).read_text())]
