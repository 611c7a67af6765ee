"""Claims about what a single cell of a table is."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.table_cells import finite_number, label_of, number_of, word_of
from edgetrain.errors import DataError


@pytest.mark.parametrize(
    ("cell", "decimal_comma", "expected"),
    [
        ("1.5", False, 1.5),
        (" -4e-1 ", False, -0.4),
        ("1,5", True, 1.5),
        ("1.234,5", True, 1234.5),
        ("1.5", True, 1.5),
        ("1,5", False, None),
        ("1,234,567", True, None),
        ("1_000", False, None),
        ("x", False, None),
        (True, False, 1.0),
        (np.int32(7), False, 7.0),
        (Decimal("2.5"), False, 2.5),
        (datetime.date(2024, 1, 1), False, None),
    ],
)
def test_a_cell_is_a_number_or_none(cell: Any, decimal_comma: bool, expected: float | None) -> None:
    assert number_of(cell, decimal_comma=decimal_comma) == expected


@pytest.mark.parametrize("cell", [None, float("nan"), np.float32("nan"), "", "  "])
def test_what_is_missing_is_no_word(cell: Any) -> None:
    assert word_of(cell) == ""


@pytest.mark.parametrize("cell", ["inf", "1e39", float("-inf"), "x"])
def test_a_number_that_float32_cannot_hold_is_named(cell: Any) -> None:
    with pytest.raises(DataError, match=r"t:2: column `a` holds `.*`, not a finite number") as caught:
        finite_number("t:2", "a", cell)
    assert """'data.ignore=["a"]'""" in caught.value.fix


def test_labels_are_words_as_they_stand() -> None:
    labels = [label_of(cell, decimal_comma=True) for cell in ("cat, big", "2,5", True, 3, None)]
    assert labels == ["cat, big", "2.5", "1", "3", ""]
