"""Claims about opening CSV files as people have them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from edgetrain.dataset.csv import csv_table, find_separator, number_labels
from edgetrain.dataset.table import TableSettings, read_rows
from edgetrain.errors import DataError

TEXT = "u{0}label{0}v\n1{0}0{0}2.5\n\n3{0}1{0}-4e-1\n"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_every_separator_and_mark_gives_the_same_table(
    separator: str, encoding: str, line_end: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(TEXT.format(separator).replace("\n", line_end).encode(encoding))
    table = csv_table(path)
    assert table.header == ("u", "label", "v")
    assert table.has_decimal_comma == (separator != ",")
    found = read_rows(table, TableSettings())
    assert found.features.tolist() == [[1, 2.5], [3, pytest.approx(-0.4)]]
    assert found.labels == ["0", "1"]


def test_a_decimal_comma_is_one_where_the_separator_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a;b;label\n1,5;1.234,5;2,5\n-0,25;3.5;1e3\n")
    found = read_rows(csv_table(tmp_path / "a.csv"), TableSettings())
    assert found.features.tolist() == [[1.5, 1234.5], [-0.25, 3.5]]
    assert found.labels == ["2.5", "1e3"]


@pytest.mark.parametrize(
    ("beginning", "expected"),
    [
        ("label\n1\n2\n", ","),
        ("", ","),
        ('a,"b;c;d;e",f\n1,2,3\n', ","),
        ("name;text\n1;a, b, and c, d\n2;e, f, g, h\n", ";"),
        ("time;value\n10:30:00;1,5\n10:31:00;2,5\n", ";"),
    ],
)
def test_the_separator_is_one_that_the_first_line_has(beginning: str, expected: str) -> None:
    assert find_separator(beginning) == expected


def test_quoted_cells_may_hold_the_separator_and_blanks_around_cells_go(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a , "label"\n 1 , "big, red ""dog"""\n2, cat\n')
    assert read_rows(csv_table(tmp_path / "a.csv"), TableSettings()).labels == ['big, red "dog"', "cat"]


def test_a_line_in_an_error_counts_quoted_line_breaks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,label\n1,"big\ndog"\nx,cat\n')
    with pytest.raises(DataError, match=r"a\.csv:4"):
        read_rows(csv_table(tmp_path / "a.csv"), TableSettings())


def test_bytes_that_are_no_text_are_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,label\n\xff\xfe\x80,1\n")
    with pytest.raises(DataError, match="cannot be read as CSV"):
        csv_table(tmp_path / "a.csv")


def test_words_as_labels_are_classes_in_sorted_order() -> None:
    values, names = number_labels("a", ["dog", "cat", "dog"])
    assert (values.tolist(), names) == ([1, 0, 1], ("cat", "dog"))
    assert number_labels("a", ["0.5", "1"])[0].dtype == "float32"
    assert number_labels("a", ["99999999999999999999", "1"])[0].dtype == "float32"


def test_a_line_or_a_cell_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "line.csv").write_text("a,label\n" + "1," * (1 << 23) + "1\n")
    (tmp_path / "cell.csv").write_text('a,label\n"' + "1\n" * (1 << 17) + '",1\n')
    for name, expected in {"line.csv": r"line\.csv:2 is longer than 16 million", "cell.csv": "field larger"}.items():
        with pytest.raises(DataError, match=expected):
            list(csv_table(tmp_path / name).rows())


def test_one_long_label_does_not_set_the_size_of_all(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        labels, names = number_labels("a", ["b", "c" * 100_000] * 5_000)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert labels.tolist() == [0, 1] * 5_000
    assert len(names) == 2
