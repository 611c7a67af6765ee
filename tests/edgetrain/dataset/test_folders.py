"""Claims about folders with a sub-folder for each class."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgetrain.dataset.folders import class_files, content_groups, first_kind, is_excluded
from edgetrain.dataset.load import detect_format
from edgetrain.errors import DataError


def make(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def test_files_come_in_the_order_of_class_and_path(tmp_path: Path) -> None:
    folder = make(tmp_path, "b/2.TXT", "b/1.txt", "a/z/9.txt", "a/1.txt", "top.txt", "b/no.md")
    found = class_files(folder, (".txt",))
    assert found.class_names == ("a", "b")
    assert [path.relative_to(folder).as_posix() for path in found.paths] == [
        "a/1.txt",
        "a/z/9.txt",
        "b/1.txt",
        "b/2.TXT",
    ]
    assert found.labels == (0, 0, 1, 1)


def test_no_files_at_all_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such files"):
        class_files(make(tmp_path, "a/1.md"), (".txt",))


@pytest.mark.parametrize(
    ("pattern", "is_out"),
    [("*/silence/*", True), ("en/*", True), ("silence/*", False), ("*.wav", True), ("fr/*", False)],
)
def test_a_glob_reads_the_path_below_the_folder(pattern: str, is_out: bool) -> None:
    assert is_excluded(Path("/data/en/silence/1.wav"), Path("/data"), (pattern,)) == is_out


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("a/1.wav",), "wav"),
        (("a/1.txt",), "text"),
        (("a/1.png", "a/notes.txt"), "images"),
        (("a/1.wav", "a/words.txt"), "wav"),
        (("a/deep/1.wav",), "wav"),
        (("a/1.xyz",), "images"),
    ],
)
def test_the_format_of_a_folder_follows_from_its_files(names: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    assert detect_format(make(tmp_path, *names)) == expected


def test_a_file_at_the_top_is_no_kind(tmp_path: Path) -> None:
    assert first_kind(make(tmp_path, "1.wav"), (("wav", {".wav"}),)) is None


def test_equal_contents_are_one_group() -> None:
    groups = content_groups([b"a", b"b", b"a"])
    assert groups[0] == groups[2] != groups[1]
