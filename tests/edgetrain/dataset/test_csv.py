"""Claims about reading CSV files: what was written comes back, and what is broken is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgetrain.dataset.csv import read_csv
from edgetrain.errors import DataError


def test_a_csv_comes_back_with_its_label_column_wherever_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("u,label,v\n1,0,2.5\n\n3,1,-4e-1\n")
    part, names = read_csv(tmp_path / "a.csv")
    assert np.array_equal(np.asarray(part.features), np.array([[1, 2.5], [3, -0.4]], np.float32))
    assert part.labels.tolist() == [0, 1]
    assert part.labels.dtype == np.int64
    assert names == ()


def test_words_as_labels_are_classes_in_sorted_order(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,kind\n1,dog\n2,cat\n3,dog\n")
    part, names = read_csv(tmp_path / "a.csv", "kind")
    assert (part.labels.tolist(), names) == ([1, 0, 1], ("cat", "dog"))


def test_labels_with_a_point_are_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,label\n1,0.5\n2,1\n")
    assert read_csv(tmp_path / "a.csv")[0].labels.dtype == np.float32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,2\n", "no column `label`"),
        ("", "no column `label`"),
        ("a,label\n", "is empty"),
        ("a,label\n1,0\nx,1\n", r"a\.csv:3: column `a` holds `x`"),
        ("a,label\nnan,0\n", r"a\.csv:2: column `a` holds `nan`"),
        ("a,label\n1\n", r"a\.csv:2 has 1 cells where the header has 2"),
        ("a,label\n1,dog\n2,\n", "empty label"),
        ("a,label\n1,-1\n", "label -1"),
    ],
)
def test_a_broken_csv_is_named_by_line_and_column(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=expected):
        read_csv(tmp_path / "a.csv")


def test_a_line_in_a_csv_error_counts_quoted_line_breaks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,label\n1,"big\ndog"\nx,cat\n')
    with pytest.raises(DataError, match=r"a\.csv:4"):
        read_csv(tmp_path / "a.csv")
