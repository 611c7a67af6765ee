"""Claims about text files: a bounded part of them is read."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from edgetrain.dataset.text_files import MOST_LINE_BYTES, MOST_TEXT_BYTES, json_record, jsonl_lines, read_text
from edgetrain.errors import DataError


def test_a_line_beyond_the_most_is_refused_by_number_and_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' + json.dumps({"text": "x" * (20 << 20)}) + "\n")
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"a\.jsonl:2 is longer than 1 MiB"):
            list(jsonl_lines(tmp_path / "a.jsonl"))
        assert tracemalloc.get_traced_memory()[1] < 8 * MOST_LINE_BYTES
    finally:
        tracemalloc.stop()


def test_blank_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf1\r\n\n  \n2")
    assert list(jsonl_lines(tmp_path / "a.jsonl")) == [(1, "1\r\n"), (4, "2")]


def test_bytes_that_are_no_text_are_named_by_their_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"1\n\xff\n")
    with pytest.raises(DataError, match="cannot be read as JSONL") as caught:
        list(jsonl_lines(tmp_path / "a.jsonl"))
    assert caught.value.why.startswith("line 2")


def test_of_a_long_text_the_beginning_is_read_also_where_it_cuts_a_character(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" + "é" * MOST_TEXT_BYTES, encoding="utf-8")
    assert read_text(tmp_path / "a.txt") == "x" + "é" * ((MOST_TEXT_BYTES - 1) // 2)


def test_a_text_that_ends_within_a_character_is_latin_1(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("né".encode()[:-1])
    assert read_text(tmp_path / "a.txt") == "n\xc3"


def test_json_that_is_no_object_is_an_empty_record() -> None:
    assert json_record("a:1", "[1]", example="") == {}
    with pytest.raises(DataError, match="a:1 is not JSON"):
        json_record("a:1", "[" * 100_000, example="")
