from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from edgetrain.errors import DeviceError
from edgetrain.files.atomic_file import replaced_file
from edgetrain_tuner import disk


def test_the_new_file_appears_only_once_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "made" / "file"
    with replaced_file(path) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [RuntimeError(), KeyboardInterrupt()])
def test_a_block_that_fails_leaves_the_old_file(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half() -> None:
        with replaced_file(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        write_half()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_old_file_can_be_kept_under_another_name(tmp_path: Path) -> None:
    path, kept = tmp_path / "file", tmp_path / "older"
    for text in (b"one", b"two", b"three"):
        with replaced_file(path, keep_old_as=kept) as file:
            file.write(text)
    assert (path.read_bytes(), kept.read_bytes()) == (b"three", b"two")


def test_where_the_new_file_cannot_take_its_place_the_old_one_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kept = tmp_path / "file", tmp_path / "older"
    path.write_bytes(b"old")
    rename = disk.rename

    def refuse_new(source: Path, target: Path) -> None:
        if source.name.endswith(".tmp"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    monkeypatch.setattr(disk, "rename", refuse_new)
    with pytest.raises(DeviceError, match="cannot write"), replaced_file(path, keep_old_as=kept) as file:
        file.write(b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_who_cannot_make_a_new_file_last_does_not_say_that_the_old_one_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "file").write_bytes(b"old")
    monkeypatch.setattr(disk, "sync_path", refuse)
    with pytest.raises(DeviceError) as caught, replaced_file(tmp_path / "file") as file:
        file.write(b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert "the file is written" in caught.value.why
    assert "intact" not in caught.value.why


def test_the_content_is_on_the_disk_before_the_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def noted_fsync(descriptor: int) -> None:
        events.append("sync folder" if Path(f"/proc/self/fd/{descriptor}").readlink() == tmp_path else "sync file")
        fsync(descriptor)

    def noted_replace(path: Path, target: Path) -> Path:
        events.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    with replaced_file(tmp_path / "file") as file:
        file.write(b"new")
    assert events == ["sync file", "rename", "sync folder"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_what_the_system_says_becomes_a_device_error_with_a_fix(tmp_path: Path, number: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(DeviceError) as caught, replaced_file(path):
        raise OSError(number, os.strerror(number))
    assert str(path) in caught.value.what
    assert os.strerror(number) in caught.value.why
    assert "intact" in caught.value.why
    assert "--out" in caught.value.fix
    assert path.read_bytes() == b"old"


def test_a_folder_that_is_a_file_is_a_device_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DeviceError), replaced_file(tmp_path / "file" / "below"):
        pytest.fail("there is nothing to write to")


def test_nothing_is_written_through_a_link_that_was_put_there(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    for name in ("file", "file.tmp"):
        (tmp_path / name).symlink_to(victim)
    with replaced_file(tmp_path / "file") as file:
        file.write(b"new")
    assert victim.read_bytes() == b"mine"
    assert (tmp_path / "file").read_bytes() == b"new"
    assert not (tmp_path / "file").is_symlink()
