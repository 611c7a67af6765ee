from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgetrain.errors import DataError
from edgetrain.graph.options import LossOptions
from edgetrain.recipes import TOP
from edgetrain.run.loop.metrics import LOSSES, METRICS, loss_metric


def mean_of(name: str, outputs: object, labels: object) -> float:
    metric = {**LOSSES, **METRICS}[name]
    tally = metric.tally()
    tally.add(metric.values(np.asarray(outputs), np.asarray(labels)))
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
    outputs, labels = random.normal(size=(sum(sizes), 7)), random.integers(0, 7, sum(sizes))
    for name in ("accuracy", "cross-entropy", "f1", "top-5", "focal"):
        tally = METRICS[name].tally()
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


def test_what_counts_successes_is_better_when_higher() -> None:
    assert [n for n, metric in METRICS.items() if metric.higher_is_better] == ["accuracy", "f1", *TOP]


def f1_by_hand(predicted: list[int], actual: list[int]) -> float:
    scores = []
    for c in sorted({*predicted, *actual}):
        true_positive = sum(p == a == c for p, a in zip(predicted, actual, strict=True))
        precision = true_positive / max(1, predicted.count(c))
        recall = true_positive / max(1, actual.count(c))
        scores.append(2 * precision * recall / (precision + recall) if precision + recall else 0.0)
    return sum(scores) / len(scores)


@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
def test_f1_is_the_mean_of_each_classs_harmonic_mean(pairs: list[tuple[int, int]]) -> None:
    predicted, actual = [p for p, _ in pairs], [a for _, a in pairs]
    assert mean_of("f1", np.eye(4)[predicted], actual) == pytest.approx(f1_by_hand(predicted, actual))


def test_f1_of_single_logits_goes_by_their_sign() -> None:
    predicted, actual = [1, 0, 1, 1], [1, 0, 0, 1]
    logits = [[2.0 * p - 1.0] for p in predicted]
    assert mean_of("f1", logits, [[a] for a in actual]) == pytest.approx(f1_by_hand(predicted, actual))


@given(seed=st.integers(0, 99), count=st.sampled_from(sorted(TOP.values())))
def test_top_k_looks_for_the_label_among_the_k_highest(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    outputs, labels = random.integers(0, 4, (6, 9)), random.integers(0, 9, 6)  # with ties
    by_hand = [
        label in sorted(range(9), key=lambda c: (-row[c], c))[:count]
        for row, label in zip(outputs, labels, strict=True)
    ]
    assert mean_of(f"top-{count}", outputs, labels) == pytest.approx(sum(by_hand) / 6)


def test_top_5_of_fewer_classes_is_always_right() -> None:
    assert mean_of("top-5", np.zeros((3, 4)), [0, 3, 1]) == 1.0


def test_focal_weighs_the_cross_entropy_by_what_is_missing() -> None:
    outputs, labels = np.log([[0.9, 0.1], [0.2, 0.8]]), [0, 0]
    expected = (0.1**2 * -math.log(0.9) + 0.8**2 * -math.log(0.2)) / 2
    assert mean_of("focal", outputs, labels) == pytest.approx(expected)
    plain = loss_metric("focal", LossOptions(focal_gamma=0.0)).values(outputs, np.array(labels)).mean()
    assert plain == pytest.approx(mean_of("cross-entropy", outputs, labels))


def test_kl_is_zero_for_the_shares_themselves_and_distillation_for_the_teacher() -> None:
    logits = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert mean_of("kl", logits + 7.0, shares) == pytest.approx(0.0, abs=1e-12)
    assert mean_of("distillation", logits + 7.0, logits) == pytest.approx(0.0, abs=1e-12)
    one_hot = np.eye(3)[[2, 0]]
    assert mean_of("kl", logits, one_hot) == pytest.approx(mean_of("cross-entropy", logits, [2, 0]))


def test_cosine_is_the_distance_of_directions() -> None:
    assert mean_of("cosine", [[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[5.0, 0.0], [0.0, -3.0], [1.0, -1.0]]) == (
        pytest.approx((0 + 2 + 1) / 3)
    )


def test_nt_xent_finds_partners_among_the_others() -> None:
    found = loss_metric("nt-xent", LossOptions(temperature=0.5)).values(np.eye(3)[[0, 0, 1]], np.array([4, 4, 9]))
    pair = -math.log(math.exp(2) / (math.exp(2) + 1))
    np.testing.assert_allclose(found, [pair, pair, 0.0], atol=1e-9)


def test_nt_xent_of_one_row_is_zero() -> None:
    assert mean_of("nt-xent", [[1.0, 2.0]], [0]) == 0.0
