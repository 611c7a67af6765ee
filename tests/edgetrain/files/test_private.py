from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetrain.files.atomic_file import replaced_file
from edgetrain.files.private import make_private_folder, make_tree_private, open_private


@pytest.fixture(params=[0, 0o022, 0o277], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """One that takes nothing away, the usual one, and one that takes even the owner's right to write."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_private_folder_is_its_owners_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    make_private_folder(tmp_path / "runs" / "a")
    assert mode_of(tmp_path / "runs") == mode_of(tmp_path / "runs" / "a") == 0o700


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_private_folder(tmp_path)
    assert mode_of(tmp_path) == 0o755


def test_a_replaced_file_is_its_owners_whatever_the_umask_and_whatever_was_there(umask: int, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.bin"
    path.touch(mode=0o666)
    with replaced_file(path) as file:
        assert all(mode_of(staged) == 0o600 for staged in tmp_path.iterdir() if staged != path)
        file.write(b"weights")
    assert mode_of(path) == 0o600


def test_a_shared_file_follows_the_umask(umask: int, tmp_path: Path) -> None:
    with replaced_file(tmp_path / "model.onnx", is_shared=True) as file:
        file.write(b"weights")
    assert mode_of(tmp_path / "model.onnx") == 0o666 & ~umask


def test_an_opened_file_is_its_owners_also_where_others_could_read_it(umask: int, tmp_path: Path) -> None:
    path = tmp_path / "epochs.csv"
    path.touch()
    path.chmod(0o644)
    os.close(open_private(path, os.O_WRONLY | os.O_APPEND))
    assert mode_of(path) == 0o600


def test_a_private_tree_leaves_what_its_links_lead_to(tmp_path: Path) -> None:
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "others").touch()
    (tmp_path / "others").chmod(0o644)
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "others")
    (tmp_path / "tree" / "inner" / "file").touch()
    make_tree_private(tmp_path / "tree")
    assert mode_of(tmp_path / "others") == 0o644
    assert mode_of(tmp_path / "tree" / "inner") == 0o700
    assert mode_of(tmp_path / "tree" / "inner" / "file") == 0o600
