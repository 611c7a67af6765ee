from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgetrain.errors import DataError
from edgetrain.recipes import load_recipe
from edgetrain.run.files.checkpoint import NEWEST, Progress, save_checkpoint
from edgetrain.run.files.finished import finished_report, how_to_go_on, read_report
from edgetrain.run.files.report import write_report
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.loop.early_stopping import Best
from tests.edgetrain.run.files.test_report import REPORT

RECIPE = load_recipe("digits", ["train.epochs=2", "train.patience=3"])


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run that reported after 20 steps, two epochs."""
    save(tmp_path, step=20)
    write_report(REPORT, tmp_path)
    return RunFolder(tmp_path)


def save(path: Path, *, step: int, stale_epochs: int = 0) -> None:
    best = Best(value=1.0, step=10, epoch=1, stale_epochs=stale_epochs)
    progress = Progress(step=step, position=(0, 0), steps_per_epoch=10, seed=0, best=best)
    save_checkpoint(path / NEWEST, memoryview(b"bytes"), progress, program_sha256="p")


def test_a_run_whose_steps_are_done_has_finished(folder: RunFolder) -> None:
    assert finished_report(folder, RECIPE) == REPORT


def test_more_epochs_are_something_left_to_do(folder: RunFolder) -> None:
    assert finished_report(folder, load_recipe("digits", ["train.epochs=3"])) is None


def test_a_run_that_is_no_longer_better_has_finished_until_its_patience_grows(folder: RunFolder) -> None:
    save(folder.path, step=20, stale_epochs=3)
    assert finished_report(folder, load_recipe("digits", ["train.epochs=9", "train.patience=3"])) == REPORT
    assert finished_report(folder, load_recipe("digits", ["train.epochs=9", "train.patience=4"])) is None


def test_a_report_of_an_earlier_end_does_not_stop_a_run(folder: RunFolder) -> None:
    save(folder.path, step=30)
    assert finished_report(folder, RECIPE) is None


def test_a_run_without_a_report_has_not_finished(tmp_path: Path) -> None:
    save(tmp_path, step=20)
    assert finished_report(RunFolder(tmp_path), RECIPE) is None
    with pytest.raises(DataError, match="holds no finished run"):
        read_report(RunFolder(tmp_path))


def test_a_broken_report_does_not_stop_a_run(folder: RunFolder) -> None:
    folder.report.write_text("{")
    assert finished_report(folder, RECIPE) is None


def test_the_way_on_is_more_epochs_and_no_other_limit(folder: RunFolder) -> None:
    text = how_to_go_on(folder, load_recipe("digits", ["train.steps=5", "train.patience=2"]), replace(REPORT, epochs=2))
    assert text == (f"edgetrain fit --resume --out {folder.path} train.epochs=20 train.steps=none train.patience=0")
