"""What grows batch by batch is what NumPy says of everything at once."""

from __future__ import annotations

import numpy as np
import pytest

from edgetrain.run.learned.calibration import BINS, CalibrationTally
from edgetrain.run.learned.class_outcomes import Cell, ConfusionTally, SignTally
from edgetrain.run.learned.value_outcomes import QUANTILES, ValueTally
from edgetrain.run.learned.worst import Verdict, WorstTally


@pytest.mark.parametrize("seed", range(4))
def test_the_confusion_matrix_and_its_table_count_every_label_once(seed: int) -> None:
    random = np.random.default_rng(seed)
    actual, predicted = random.integers(0, 6, (2, 500))
    tally = ConfusionTally(8)
    for start in range(0, 500, 33):
        tally.add(actual[start : start + 33], predicted[start : start + 33])
    found = tally.finish(("a", "b"))
    matrix = np.zeros((8, 8), int)
    np.add.at(matrix, (actual, predicted), 1)
    assert {(c.actual, c.predicted): c.count for c in found.cells} == {
        (i, j): n for (i, j), n in np.ndenumerate(matrix) if n
    }
    for row in found.rows:
        hits, of_it, as_it = matrix[row.number, row.number], matrix[row.number].sum(), matrix[:, row.number].sum()
        assert (row.count, row.predicted) == (of_it, as_it)
        assert row.precision == pytest.approx(hits / as_it)
        assert row.recall == pytest.approx(hits / of_it)
        assert row.f1 == pytest.approx(2 * hits / (of_it + as_it))
    assert [row.name for row in found.rows] == ["a", "b", "2", "3", "4", "5"]


def test_a_class_that_is_named_but_never_seen_has_a_row_without_shares() -> None:
    tally = ConfusionTally(3)
    tally.add(np.array([0, 0]), np.array([0, 1]))
    rows = tally.finish(("cat", "dog", "emu")).rows
    assert [(row.name, row.count, row.precision, row.recall) for row in rows] == [
        ("cat", 2, 1.0, 0.5),
        ("dog", 0, 0.0, None),
        ("emu", 0, None, None),
    ]
    assert rows[2].f1 is None


def test_several_labels_at_once_are_counted_output_by_output() -> None:
    random = np.random.default_rng(1)
    actual, predicted = random.random((2, 200, 3)) > 0.6
    tally = SignTally(3)
    tally.add(actual[:150], predicted[:150])
    tally.add(actual[150:], predicted[150:])
    for row in tally.finish(()).rows:
        truth, guess = actual[:, row.number], predicted[:, row.number]
        assert row.precision == pytest.approx(truth[guess].mean())
        assert row.recall == pytest.approx(guess[truth].mean())


@pytest.mark.parametrize("seed", range(4))
def test_the_expected_calibration_error_is_the_weighted_distance_of_its_bins(seed: int) -> None:
    random = np.random.default_rng(seed)
    confidences = np.concatenate([random.random(700), [0.0, 0.1, 0.5, 1.0]])
    is_right = random.random(len(confidences)) < confidences**2
    tally = CalibrationTally()
    for start in range(0, len(confidences), 50):
        tally.add(confidences[start : start + 50], is_right[start : start + 50])
    found = tally.finish()
    assert found is not None
    error = 0.0
    for number, each in enumerate(found.bins):
        low, high = number / BINS, (number + 1) / BINS
        inside = (confidences > low) & (confidences <= high) | (confidences == 0) & (number == 0)
        assert each.count == inside.sum()
        assert each.confidence == pytest.approx(confidences[inside].mean())
        assert each.accuracy == pytest.approx(is_right[inside].mean())
        error += inside.mean() * abs(confidences[inside].mean() - is_right[inside].mean())
    assert found.expected_error == pytest.approx(error)


def test_nothing_counted_is_no_calibration() -> None:
    assert CalibrationTally().finish() is None


@pytest.mark.parametrize("seed", range(4))
def test_errors_of_values_are_those_of_all_at_once_and_of_each_quantile(seed: int) -> None:
    random = np.random.default_rng(seed)
    true = random.normal(50, 20, 903)
    guess = true + random.normal(1, 5, 903)
    tally = ValueTally(true)
    for start in range(0, 903, 64):
        tally.add(true[start : start + 64], guess[start : start + 64])
    found = tally.finish()
    error = guess - true
    assert found.count == 903
    assert found.mean_absolute_error == pytest.approx(np.abs(error).mean())
    assert found.root_mean_squared_error == pytest.approx(np.sqrt((error**2).mean()))
    assert found.bias == pytest.approx(error.mean())
    assert found.explained == pytest.approx(1 - (error**2).sum() / ((true - true.mean()) ** 2).sum())
    edges = np.quantile(true, np.linspace(0, 1, QUANTILES + 1))
    for number, each in enumerate(found.quantiles):
        is_last = number == QUANTILES - 1
        inside = (true >= edges[number]) & ((true <= edges[number + 1]) if is_last else (true < edges[number + 1]))
        assert each.count == inside.sum()
        assert each.mean_absolute_error == pytest.approx(np.abs(error[inside]).mean())
        assert each.bias == pytest.approx(error[inside].mean())
    every = -(-903 // 400)
    assert found.points == tuple(zip(true[::every].tolist(), guess[::every].tolist(), strict=True))


def test_values_that_are_all_equal_have_one_quantile_and_nothing_to_explain() -> None:
    tally = ValueTally(np.full(5, 3.0))
    tally.add(np.full(5, 3.0), np.full(5, 4.0))
    found = tally.finish()
    assert [(q.low, q.high, q.count) for q in found.quantiles] == [(3.0, 3.0, 5)]
    assert found.explained is None


@pytest.mark.parametrize("seed", range(4))
def test_the_worst_are_those_that_sorting_everything_finds(seed: int) -> None:
    losses = np.random.default_rng(seed).integers(0, 20, 200).tolist()
    tally = WorstTally(7)
    for index, loss in enumerate(losses):
        if tally.is_kept(loss):
            tally.add(Verdict(index=index, loss=loss))
    expected = sorted(range(200), key=lambda index: (-losses[index], index))[:7]
    assert [verdict.index for verdict in tally.finish()] == expected


def test_cells_are_sorted_so_that_equal_findings_are_equal_bytes() -> None:
    one, other = ConfusionTally(3), ConfusionTally(3)
    one.add(np.array([2, 0]), np.array([1, 0]))
    other.add(np.array([0]), np.array([0]))
    other.add(np.array([2]), np.array([1]))
    expected = (Cell(actual=0, predicted=0, count=1), Cell(actual=2, predicted=1, count=1))
    assert one.finish(()).cells == other.finish(()).cells == expected
