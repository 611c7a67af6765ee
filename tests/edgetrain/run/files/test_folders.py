from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgetrain.errors import DataError, UsageError
from edgetrain.run.files.folders import JOB, JobKeeper, JobRecord, newest_resumable, next_folder, require_free

RECORD = JobRecord(target="jetson", solver="greedy", memory_bytes=1000, deadline_s=0.5, energy_j=None, threads=2)


def make_run(folder: Path, *files: str, saved_at_s: int = 0) -> Path:
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (saved_at_s, saved_at_s))
    return folder


def test_a_new_run_takes_the_first_free_folder(tmp_path: Path) -> None:
    assert next_folder("a", tmp_path) == tmp_path / "a"
    make_run(tmp_path / "a", "report.json")
    make_run(tmp_path / "a-2", "checkpoint.bin")
    make_run(tmp_path / "a-4", "report.json")
    assert next_folder("a", tmp_path) == tmp_path / "a-3"


def test_a_folder_of_a_run_that_never_saved_is_free(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "recipe.json", "log.jsonl")
    assert next_folder("a", tmp_path) == tmp_path / "a"


@pytest.mark.parametrize(
    ("file", "told"),
    [("report.json", "has finished"), ("checkpoint.bin", "can be resumed"), ("checkpoint.previous.bin", "be resumed")],
)
def test_a_folder_that_holds_work_is_refused(file: str, told: str, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a b", file)
    with pytest.raises(UsageError, match=told):
        require_free(folder, "digits")


def test_the_newest_run_of_a_name_is_resumed(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "checkpoint.bin", saved_at_s=20)
    make_run(tmp_path / "a-2", "checkpoint.previous.bin", saved_at_s=30)
    make_run(tmp_path / "a-3", "report.json", saved_at_s=90)
    make_run(tmp_path / "a-tuned", "checkpoint.bin", saved_at_s=50)
    assert newest_resumable("a", tmp_path) == tmp_path / "a-2"
    assert newest_resumable("a-tuned", tmp_path) == tmp_path / "a-tuned"
    assert newest_resumable(None, tmp_path) == tmp_path / "a-tuned"


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "report.json")
    with pytest.raises(UsageError, match="no run of `a` to resume"):
        newest_resumable("a", tmp_path)


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    assert JobRecord.read(tmp_path) is None
    JobKeeper(RECORD, tmp_path).on_train_begin({})
    assert JobRecord.read(tmp_path) == RECORD


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "edgetrain.job/0"}', '{"format": "edgetrain.job/1"}'])
def test_a_broken_record_is_a_data_error(text: str, tmp_path: Path) -> None:
    (tmp_path / JOB).write_text(text)
    with pytest.raises(DataError, match=JOB):
        JobRecord.read(tmp_path)
