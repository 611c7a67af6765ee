from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.dataset.class_weights import balanced_class_weights
from edgetrain.dataset.samples import Array, Part
from edgetrain.errors import DataError


def part_of(labels: Array) -> Part:
    return Part(features=np.zeros((len(labels), 1)), labels=labels)


@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=50))
def test_every_class_that_is_there_counts_the_same_and_all_as_much_as_before(labels: list[int]) -> None:
    weights = np.array(balanced_class_weights(part_of(np.array(labels)), 5))
    counts = np.bincount(labels, minlength=5)
    together = (weights * counts)[counts > 0]
    np.testing.assert_allclose(together, len(labels) / (counts > 0).sum())
    assert (weights[counts == 0] == 1).all()


def test_they_are_those_of_scikit_learn() -> None:
    labels = np.array([0] * 6 + [1] * 3 + [2])
    sklearn = pytest.importorskip("sklearn.utils.class_weight", reason="pip install scikit-learn")
    expected = sklearn.compute_class_weight("balanced", classes=np.arange(3), y=labels)
    np.testing.assert_allclose(balanced_class_weights(part_of(labels), 3), expected)


def test_every_label_of_a_map_counts() -> None:
    labels = np.array([[[0, 0], [0, 1]]])
    np.testing.assert_allclose(balanced_class_weights(part_of(labels), 2), [4 / (2 * 3), 4 / (2 * 1)])


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (np.array([0.5, 1.0]), "needs classes"),
        (np.array([0, 3]), "run from 0 to 3, and there are 3 classes"),
        (np.array([-1, 0]), "run from -1"),
    ],
)
def test_labels_that_are_no_classes_are_refused(labels: Array, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        balanced_class_weights(part_of(labels), 3)
