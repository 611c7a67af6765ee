from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgetrain.errors import DataError, UsageError
from edgetrain.recipes import load_recipe
from edgetrain.run.files.folders import JOB, JobKeeper, JobRecord, is_free, newest_resumable, require_free

RECORD = JobRecord(target="jetson", solver="greedy", memory_bytes=1000, deadline_s=0.5, energy_j=None, threads=2)


WRITTEN = {
    *("adapters.json", "best.bin", "data.json", "epochs.csv", "job.json", "learned.json", "live.json", "log.jsonl"),
    *("model.onnx", "plot.svg", "reading.json", "recipe.json", "report.html", "request.json", "schedules.json"),
    "sessions.json",
}


def make_run(folder: Path, *files: str, saved_at_s: int = 0) -> Path:
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (saved_at_s, saved_at_s))
    return folder


def test_a_folder_of_a_run_that_never_saved_is_free(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", "log.jsonl", "model.onnx")
    (folder / "recipe.json").write_text(load_recipe("digits").to_json())
    assert is_free(folder)
    require_free(folder, "digits")


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_a_folder_with_a_file_of_the_users_is_never_written_over(name: str, tmp_path: Path) -> None:
    make_run(tmp_path / "a", name, "notes.txt")
    assert not is_free(tmp_path / "a")
    with pytest.raises(UsageError, match=f"holds `{name}`, which no run of edgetrain wrote"):
        require_free(tmp_path / "a", "digits")


def test_other_files_do_not_stop_a_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", "notes.txt")
    require_free(folder, "digits")


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
