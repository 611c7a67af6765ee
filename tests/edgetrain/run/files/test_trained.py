from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgetrain.errors import DataError, UsageError
from edgetrain.recipes import load_recipe
from edgetrain.run.files.checkpoint import BEST, NEWEST, PREVIOUS, Progress, save_checkpoint
from edgetrain.run.files.folders import has_our_recipe
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.trained import open_run, read_reading, read_recipe, trained_checkpoint
from edgetrain.run.files.trained_onnx import trained_onnx
from edgetrain.run.loop.early_stopping import Best


def save(path: Path, step: int, *, best_step: int | None = None) -> None:
    best = None if best_step is None else Best(value=1.0, step=best_step, epoch=1, stale_epochs=0)
    progress = Progress(step=step, position=(0, 0), steps_per_epoch=1, seed=0, best=best)
    save_checkpoint(path, memoryview(b"bytes"), progress, program_sha256="p")


def test_the_best_parameters_are_the_trained_ones(tmp_path: Path) -> None:
    save(tmp_path / NEWEST, 9, best_step=6)
    save(tmp_path / BEST, 6, best_step=6)
    assert trained_checkpoint(tmp_path) == (tmp_path / BEST, 6)


def test_a_best_of_another_step_is_left_alone(tmp_path: Path) -> None:
    save(tmp_path / NEWEST, 9, best_step=6)
    save(tmp_path / BEST, 12, best_step=12)  # the run went back behind it
    assert trained_checkpoint(tmp_path) == (tmp_path / NEWEST, 9)


@pytest.mark.parametrize("best_step", [None, 9], ids=["no validation", "the last is the best"])
def test_without_an_earlier_best_the_newest_counts(best_step: int | None, tmp_path: Path) -> None:
    save(tmp_path / NEWEST, 9, best_step=best_step)
    assert trained_checkpoint(tmp_path) == (tmp_path / NEWEST, 9)


def test_a_run_cut_between_two_renames_still_has_its_previous(tmp_path: Path) -> None:
    save(tmp_path / PREVIOUS, 3)
    assert trained_checkpoint(tmp_path) == (tmp_path / PREVIOUS, 3)


def test_a_folder_without_a_recipe_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a run folder"):
        open_run(tmp_path)


def test_a_run_that_saved_nothing_cannot_be_opened(tmp_path: Path) -> None:
    RunFolder(tmp_path).recipe.write_text(load_recipe("digits").to_json())
    with pytest.raises(DataError, match="cannot be used"):
        open_run(tmp_path)


def test_overrides_apply_to_the_stored_recipe(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.recipe.write_text(load_recipe("digits", ["train.batch=4"]).to_json())
    recipe = read_recipe(folder, ("train.epochs=2",))
    assert (recipe.train.batch, recipe.train.epochs) == (4, 2)
    with pytest.raises(UsageError, match=r"train\.bach"):
        read_recipe(folder, ("train.bach=2",))


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_in_the_place_of_one_is_named(kind: str, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.recipe.write_text(load_recipe("digits").to_json())
    for path in (folder.reading, folder.model):
        path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(DataError, match=f"reading.json` is a {kind}"):
        read_reading(folder, None)
    folder.reading.rmdir() if kind == "folder" else folder.reading.unlink()
    with pytest.raises(DataError, match=f"model.onnx` is a {kind}"):
        trained_onnx(folder)


def test_a_pipe_in_the_place_of_the_recipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(RunFolder(tmp_path).recipe)
    assert not has_our_recipe(tmp_path)
    with pytest.raises(DataError, match="is a pipe"):
        read_recipe(RunFolder(tmp_path))
