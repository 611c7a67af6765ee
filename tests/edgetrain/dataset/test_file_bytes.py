"""Claims about files as tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.dataset.file_bytes import file_tokens, read_file_bytes
from edgetrain.errors import DataError
from edgetrain.recipes import BytesSection

SECTION = BytesSection(first=4, last=3, padding=256, endings=(".a", ".b"))


def tokens_of(path: Path, content: bytes) -> list[int]:
    path.write_bytes(content)
    found: list[int] = file_tokens(path, SECTION).tolist()
    return found


def test_first_and_last_bytes_are_padded_on_their_inner_side(tmp_path: Path) -> None:
    assert tokens_of(tmp_path / "x", b"abcdefgh") == [*b"abcd", *b"fgh"]
    assert tokens_of(tmp_path / "x", b"ab") == [*b"ab", 256, 256, 256, *b"ab"]
    assert tokens_of(tmp_path / "x", b"") == [256] * 7


def test_white_space_at_the_ends_does_not_count(tmp_path: Path) -> None:
    assert tokens_of(tmp_path / "x", b"\n  abcdefgh \n\n") == [*b"abcd", *b"fgh"]


@settings(deadline=None, max_examples=50)
@given(content=st.binary(max_size=60), repeat=st.integers(1, 200))
def test_a_file_of_any_size_is_as_if_it_had_been_read_whole(
    content: bytes, repeat: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = content * repeat
    head, tail = whole[:4096].lstrip()[:4], whole[-4096:].rstrip()[-3:]
    found = tokens_of(tmp_path_factory.mktemp("f") / "x", whole)
    assert found == [*head, *[256] * (4 - len(head)), *[256] * (3 - len(tail)), *tail]


def make(folder: Path, names: dict[str, bytes]) -> Path:
    for name, content in names.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def test_the_class_is_the_ending_at_any_depth_and_small_files_are_left_out(tmp_path: Path) -> None:
    files = {f"{i}/f{i}.a": b"aaaaaaaa%d" % i for i in range(3)}
    folder = make(tmp_path, {**files, "deep/er/x.b": b"b" * 9, "small.b": b"b", "no.c": b"c" * 9, "out/x.b": b"b" * 10})
    part, names, groups = read_file_bytes(folder, SECTION, exclude=("out/*",))
    assert (names, part.labels.tolist()) == ((".a", ".b"), [0, 0, 0, 1])
    assert part.features[3].tolist() == [*b"bbbb", *b"bbb"]
    assert part.features[3].dtype == np.int32
    assert len(set(groups.tolist())) == 4


def test_copies_are_one_group(tmp_path: Path) -> None:
    folder = make(tmp_path, {"1.a": b"x" * 9, "2.a": b"x" * 9, "3.b": b"y" * 9})
    _, _, groups = read_file_bytes(folder, SECTION)
    assert groups[0] == groups[1] != groups[2]


def test_a_class_has_at_most_so_many_files_always_the_same(tmp_path: Path) -> None:
    folder = make(tmp_path, {f"{i}.{kind}": b"z%07d" % i for i in range(20) for kind in "ab"})
    section = BytesSection(first=8, last=0, endings=(".a", ".b"), most_per_class=5)
    first, again = (read_file_bytes(folder, section)[0] for _ in range(2))
    assert np.bincount(first.labels).tolist() == [5, 5]
    assert [first.features[i].tobytes() for i in range(10)] == [again.features[i].tobytes() for i in range(10)]


def test_without_endings_a_sub_folder_is_a_class(tmp_path: Path) -> None:
    folder = make(tmp_path, {"cat/1": b"meow meow", "dog/1.txt": b"woof woof"})
    part, names, _ = read_file_bytes(folder, BytesSection(first=4, last=0))
    assert (names, part.labels.tolist()) == (("cat", "dog"), [0, 1])


def test_an_ending_that_no_file_has_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ends in `\.b`"):
        read_file_bytes(make(tmp_path, {"1.a": b"x" * 9}), SECTION)
