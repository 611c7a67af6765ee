from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.errors import DataError
from edgetrain.run.loop.ctc_metrics import ctc_loss, edit_distance, edits
from edgetrain.run.loop.metrics import METRICS

WORDS = st.lists(st.integers(0, 2), max_size=6)


@given(WORDS, WORDS)
def test_the_edit_distance_is_the_shortest_of_all_ways(one: list[int], other: list[int]) -> None:
    @cache
    def shortest(i: int, j: int) -> int:
        if i == len(one) or j == len(other):
            return len(one) - i + len(other) - j
        if one[i] == other[j]:
            return shortest(i + 1, j + 1)
        return 1 + min(shortest(i + 1, j), shortest(i, j + 1), shortest(i + 1, j + 1))

    assert edit_distance(one, other) == shortest(0, 0)


def scores(*path: int, classes: int = 4) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Outputs of one row whose likeliest classes are those of the path."""
    return np.eye(classes, dtype=np.float32)[list(path)][None]


@pytest.mark.parametrize(
    ("path", "label", "changes"),
    [
        ((1, 1, 0, 1, 2), [1, 1, 2], 0),
        ((0, 0, 0, 0, 0), [1, 1, 2], 3),
        ((1, 1, 1, 1, 2), [1, 1, 2], 1),
        ((1, 2, 3, 0, 0), [], 3),
    ],
)
def test_repeats_are_merged_and_blanks_dropped(path: tuple[int, ...], label: list[int], changes: int) -> None:
    row = np.array([label + [-1] * (4 - len(label))])
    assert edits(scores(*path), row).tolist() == [[changes, len(label)]]


def test_the_error_rate_counts_labels_not_rows() -> None:
    tally = METRICS["error-rate"].tally()
    tally.add(edits(scores(1, 0, 2, 0, 3), np.array([[1, 2, 3, -1]])))
    tally.add(edits(scores(0, 0, 0, 0, 0), np.array([[2, -1, -1, -1]])))
    assert (tally.mean, tally.count) == (0.25, 2)


def test_extreme_logits_give_finite_losses() -> None:
    found = ctc_loss(1000 * scores(1, 0, 2, 0, 3), np.array([[3, 2, 1, -1]]))
    assert np.isfinite(found).all()


def test_outputs_that_are_no_sequence_are_refused() -> None:
    with pytest.raises(DataError, match="do not go with outputs"):
        ctc_loss(np.zeros((2, 3)), np.zeros((2, 3), np.int64))
