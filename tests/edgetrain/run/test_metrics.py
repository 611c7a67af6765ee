from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.errors import DataError
from edgetrain.run.metrics import LOSSES, METRICS, Tally


def mean_of(name: str, outputs: object, labels: object) -> float:
    tally = Tally()
    tally.add({**LOSSES, **METRICS}[name].values(np.asarray(outputs), np.asarray(labels)))
    return tally.mean


@given(
    scores=st.lists(st.lists(st.floats(-20, 20, width=32), min_size=3, max_size=3), min_size=1, max_size=6),
    seed=st.integers(0, 9),
)
def test_cross_entropy_is_the_negative_log_of_the_labels_share(scores: list[list[float]], seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, 3, len(scores))
    by_hand = [
        -math.log(math.exp(row[label]) / sum(math.exp(s) for s in row))
        for row, label in zip(scores, labels, strict=True)
    ]
    found = mean_of("cross-entropy", np.array(scores, np.float32), labels)
    assert found == pytest.approx(sum(by_hand) / len(by_hand), rel=1e-9, abs=1e-9)


@given(logit=st.floats(-20, 20, width=32), label=st.sampled_from([0.0, 0.3, 1.0]))
def test_bce_is_the_cross_entropy_of_the_sigmoid(logit: float, label: float) -> None:
    share = 1 / (1 + math.exp(-logit))
    by_hand = -(label * math.log(share) + (1 - label) * math.log(1 / (1 + math.exp(logit))))
    assert mean_of("bce", [[logit]], [[label]]) == pytest.approx(by_hand, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ["cross-entropy", "bce"])
def test_extreme_logits_give_finite_losses(name: str) -> None:
    labels = [1] if name == "cross-entropy" else [[0.0, 1.0]]
    assert mean_of(name, np.array([[1e30, -1e30]], np.float32), labels) > 1e29


def test_errors_are_taken_element_by_element() -> None:
    outputs, labels = np.array([[1.0], [4.0]], np.float32), np.array([2.0, 2.0], np.float32)
    assert mean_of("mse", outputs, labels) == 2.5
    assert mean_of("mae", outputs, labels) == 1.5
    assert mean_of("l1", outputs, labels) == 1.5


def test_errors_are_computed_in_double_precision() -> None:
    outputs, labels = np.full((1, 1), 1.0, np.float32), np.full((1, 1), 1.0 + 1e-12)
    assert mean_of("mae", outputs, labels) == pytest.approx(1e-12, rel=1e-3)


@pytest.mark.parametrize(
    ("outputs", "labels", "expected"),
    [
        ([[1, 2, 0], [5, 1, 1]], [1, 2], 0.5),  # class numbers
        ([[2.0], [-1.0], [3.0]], [1, 0, 0], 2 / 3),  # one logit
        ([[2.0], [-1.0]], [[1.0], [1.0]], 0.5),
        ([[-3, -1, -2], [4, 5, 1]], [[0, 1, 0], [1, 0, 0]], 0.5),  # one-hot: the highest wins, whatever its sign
        ([[3, 1, -2], [3, -1, -2]], [[1, 1, 0], [1, 1, 0]], 0.5),  # several at once: every sign counts
        (np.eye(3)[None].repeat(2, 0) * [[1, 1, 1]], [[0, 1, 2], [0, 0, 0]], 4 / 6),  # pixels: classes on axis 1
        ([[[1, 0], [0, 1], [1, 0]]], [[0, 1, 1]], 2 / 3),  # tokens: classes last
    ],
)
def test_accuracy_counts_what_is_right(outputs: object, labels: object, expected: float) -> None:
    assert mean_of("accuracy", outputs, labels) == pytest.approx(expected)


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_batches_of_any_size_add_up_to_one_mean(sizes: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    outputs, labels = random.normal(size=(sum(sizes), 4)), random.integers(0, 4, sum(sizes))
    for name in ("accuracy", "cross-entropy"):
        tally = Tally()
        ends = np.cumsum(sizes)
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            tally.add(METRICS[name].values(outputs[start:end], labels[start:end]))
        assert tally.mean == pytest.approx(mean_of(name, outputs, labels), rel=1e-12)


@pytest.mark.parametrize("name", sorted(METRICS))
def test_labels_that_do_not_go_with_the_outputs_are_refused_not_broadcast(name: str) -> None:
    with pytest.raises(DataError, match=r"\(3,\)"):
        mean_of(name, np.zeros((2, 5)), np.zeros(3, np.int64))


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_without_a_class_is_refused(label: int) -> None:
    with pytest.raises(DataError, match="3 classes"):
        mean_of("cross-entropy", np.zeros((1, 3)), [label])


def test_only_accuracy_is_better_when_higher() -> None:
    assert [name for name, metric in METRICS.items() if metric.higher_is_better] == ["accuracy"]
