"""Exporting onto a folder that is in use: what is not ours stays, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgetrain.errors import UsageError
from edgetrain.program.artifact import Artifact, load_artifact
from tests.edgetrain.program.test_artifact import bytes_below, write
from tests.edgetrain.program.tiny_program import STEP_PLANS, tiny_plan


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A program that was exported, with a user's own files beside it."""
    write(tmp_path / "device")
    (tmp_path / "device" / "train.c").write_text("int main(void) { return 0; }")
    (tmp_path / "device" / "data").mkdir()
    (tmp_path / "device" / "data" / "day-1.bin").write_bytes(b"a day of work")
    return tmp_path / "device"


@pytest.fixture
def newer(tmp_path: Path) -> Artifact:
    return write(tmp_path / "program", plan=tiny_plan(STEP_PLANS["page"]), plan_json=None)


@pytest.mark.parametrize("keeps_changed", [True, False])
def test_files_that_are_not_of_the_manifest_stay(older: Path, newer: Artifact, keeps_changed: bool) -> None:
    newer.copy_to(older, keeps_changed=keeps_changed)
    assert load_artifact(older).identity == newer.identity
    assert not (older / "plan.json").exists()  # ours, and the new program has none
    assert (older / "train.c").read_text().startswith("int main")
    assert (older / "data" / "day-1.bin").read_bytes() == b"a day of work"


def test_a_file_of_somebody_else_under_a_new_name_of_ours_stops_it(older: Path, newer: Artifact) -> None:
    (older / "reading.json").write_text("mine")
    before = {path: path.read_bytes() for path in older.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"reading\.json` is not a file that edgetrain wrote"):
        newer.copy_to(older, beside={"reading.json": "{}"})
    assert {path: path.read_bytes() for path in older.rglob("*") if path.is_file()} == before


def test_a_file_of_ours_that_was_changed_is_kept_where_asked(older: Path, newer: Artifact) -> None:
    (older / "driver.c").write_text("int x; /* my probe */")
    with pytest.raises(UsageError, match=r"driver\.c` .* was changed since"):
        newer.copy_to(older, keeps_changed=True)
    assert (older / "driver.c").read_text().endswith("/* my probe */")
    newer.copy_to(older)  # a run's own folder is repaired
    assert load_artifact(older).identity == newer.identity


def test_an_exchange_that_died_half_way_is_completed(older: Path, newer: Artifact) -> None:
    (older / "parameters.bin").write_bytes(newer.parameters.read_bytes())
    (older / "edgetrain_model.h").write_bytes((newer.directory / "edgetrain_model.h").read_bytes())
    newer.copy_to(older, keeps_changed=True)
    assert load_artifact(older).identity == newer.identity


def test_a_link_to_a_folder_stays_a_link(older: Path, newer: Artifact, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(older)
    newer.copy_to(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert load_artifact(older).identity == newer.identity


def test_files_beside_are_vouched_for(newer: Artifact, tmp_path: Path) -> None:
    newer.copy_to(tmp_path / "copy", beside={"reading.json": "{}\n"})
    assert bytes_below(tmp_path / "copy")["reading.json"] == b"{}\n"
    assert "reading.json" in load_artifact(tmp_path / "copy").manifest.files
