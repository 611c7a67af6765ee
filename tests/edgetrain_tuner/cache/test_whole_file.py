"""A file appears whole or not at all, and what killed processes left goes with the next write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgetrain_tuner.cache.whole_file import replaced_file

_LONG_AGO = 1_000_000_000


def test_the_file_has_its_content_and_mode(tmp_path: Path) -> None:
    with replaced_file(tmp_path / "file", mode=0o640) as file:
        file.write(b"new")
        assert not (tmp_path / "file").exists()
    assert (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_block_that_fails_leaves_the_old_file_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def write_half() -> None:
        with replaced_file(tmp_path / "file", mode=0o644) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_process_left_goes_and_what_is_young_or_ours_stays(tmp_path: Path) -> None:
    names = (f".a.{'0' * 16}.tmp", f".b.{'1' * 16}.tmp", ".keep.tmp")
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    for name in (names[0], names[2]):
        os.utime(tmp_path / name, (_LONG_AGO, _LONG_AGO))
    with replaced_file(tmp_path / "file", mode=0o644) as file:
        file.write(b"new")
    assert {path.name for path in tmp_path.iterdir()} == {"file", names[1], names[2]}
