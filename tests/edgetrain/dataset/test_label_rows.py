from __future__ import annotations

import numpy as np
import pytest

from edgetrain.dataset.label_rows import padded_rows
from edgetrain.dataset.samples import Part, normal_labels
from edgetrain.errors import DataError


def part(*rows: list[int]) -> Part:
    return Part(features=np.zeros(len(rows)), labels=np.array(rows, np.int64))


def test_rows_are_padded_to_the_width_of_the_loss() -> None:
    found = padded_rows(part([1, 2], [3, -1]), classes=4, time_steps=5, width=4, name="the test part")
    assert found.labels.tolist() == [[1, 2, -1, -1], [3, -1, -1, -1]]


def test_padding_that_no_row_needs_is_cut() -> None:
    found = padded_rows(part([1, 2, -1], [3, -1, -1]), classes=4, time_steps=5, width=2, name="the test part")
    assert found.labels.tolist() == [[1, 2], [3, -1]]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ([0, 1, 2], "0 is the blank"),
        ([1, 4, 2], "from 1 to 3"),
        ([1, -1, 2], "-1 stands before a label"),
        ([1, 2, 3], "3 labels and train.label_length is 2"),
    ],
)
def test_a_row_that_cannot_be_spelt_is_named(row: list[int], why: str) -> None:
    with pytest.raises(DataError, match="the training part has a row of labels at sample 1") as caught:
        padded_rows(part([1, 2, -1], row), classes=4, time_steps=9, width=2, name="the training part")
    assert why in caught.value.why


def test_equal_neighbours_need_a_step_for_the_blank_between_them() -> None:
    padded_rows(part([1, 1, 2]), classes=4, time_steps=4, width=3, name="")
    with pytest.raises(DataError) as caught:
        padded_rows(part([1, 1, 2]), classes=4, time_steps=3, width=3, name="")
    assert caught.value.why == "the model has 3 time steps and the row needs 4"


@pytest.mark.parametrize("labels", [np.zeros(3, np.int64), np.zeros((3, 2), np.float32)])
def test_labels_that_are_no_rows_are_refused(labels: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    with pytest.raises(DataError, match="labels of type"):
        padded_rows(Part(features=np.zeros(3), labels=labels), classes=4, time_steps=9, width=2, name="")


def test_only_rows_may_hold_minus_one() -> None:
    assert normal_labels([[1, -1]], "y").tolist() == [[1, -1]]
    for wrong in ([1, -1], [[1, -2]]):
        with pytest.raises(DataError, match="y has the label -"):
            normal_labels(wrong, "y")
