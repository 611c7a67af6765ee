from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from edgetrain.errors import DataError
from edgetrain.graph.options import LossOptions
from edgetrain.run.engines.engine import Array
from edgetrain.run.loop.evaluation import NotFiniteError, evaluate
from edgetrain.run.loop.learning_rate import LearningRate
from edgetrain.run.loop.settings import TrainSettings

SETTINGS = TrainSettings(
    program_sha256="",
    inputs=("x",),
    output="y",
    loss="cross-entropy",
    epochs=1,
    learning_rate=LearningRate(peak=1.0),
    metrics=("accuracy",),
)
BATCH, CLASSES = 4, 3


class Echo:
    """An engine whose scores are its input."""

    def __init__(self) -> None:
        self._tensors: dict[str, Array] = {
            "x": np.zeros((BATCH, CLASSES), np.float32),
            "train.labels": np.zeros(BATCH, np.int64),
            "evaluate.y": np.zeros((BATCH, CLASSES), np.float32),
        }

    def tensor(self, name: str) -> Array:
        return self._tensors[name]

    def call(self, function: str) -> None:
        assert function == "evaluate"
        self._tensors["evaluate.y"][...] = self._tensors["x"]

    def release(self) -> None:
        """There are no copies."""

    @property
    def saved(self) -> memoryview:
        return memoryview(b"")

    def measured_peak_bytes(self) -> int:
        return 0

    def close(self) -> None: ...


class Table:
    """A source of one split; rows that pad the last batch are NaN, so that any use of them shows."""

    steps_per_epoch = 1

    def __init__(self, scores: Array, labels: Array) -> None:
        self._scores = scores
        self._labels = labels

    def seek(self, position: tuple[int, int]) -> None: ...

    def fill(self, inputs: Mapping[str, Array], labels: Array) -> None: ...

    def evaluation(self, split: str, inputs: Mapping[str, Array], labels: Array) -> Iterator[int]:
        for start in range(0, len(self._scores), BATCH):
            rows = self._scores[start : start + BATCH]
            inputs["x"][...] = np.nan
            inputs["x"][: len(rows)] = rows
            labels[: len(rows)] = self._labels[start : start + BATCH]
            yield len(rows)


@pytest.mark.parametrize("rows", [1, BATCH - 1, BATCH, BATCH + 1, 3 * BATCH + 2])
def test_metrics_are_those_of_all_rows_at_once_without_the_padding(rows: int) -> None:
    random = np.random.default_rng(rows)
    scores, labels = random.normal(size=(rows, CLASSES)).astype(np.float32), random.integers(0, CLASSES, rows)
    found = evaluate(Echo(), Table(scores, labels), SETTINGS, "test")
    shares = np.exp(scores.astype(np.float64))
    shares /= shares.sum(axis=1, keepdims=True)
    by_hand = {
        "loss": -np.log(shares[np.arange(rows), labels]).mean(),
        "accuracy": (scores.argmax(axis=1) == labels).mean(),
    }
    assert found == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_output_that_is_no_number_is_reported(value: float) -> None:
    scores = np.zeros((BATCH, CLASSES), np.float32)
    scores[1, 1] = value
    with pytest.raises(NotFiniteError):
        evaluate(Echo(), Table(scores, np.zeros(BATCH, np.int64)), SETTINGS, "test")


def test_a_split_without_rows_is_refused() -> None:
    with pytest.raises(DataError, match="the test split holds no rows"):
        evaluate(Echo(), Table(np.zeros((0, CLASSES)), np.zeros(0, np.int64)), SETTINGS, "test")


def test_an_interruption_gives_no_half_result() -> None:
    table = Table(np.zeros((9, CLASSES)), np.zeros(9, np.int64))
    assert evaluate(Echo(), table, SETTINGS, "test", is_interrupted=lambda: True) is None


def test_labels_that_are_rows_count_as_the_classes_they_are() -> None:
    """A program that trains on mixed labels is evaluated as one that takes class numbers."""
    scores, classes = np.random.default_rng(0).normal(size=(7, CLASSES)).astype(np.float32), np.arange(7) % CLASSES
    plain = dataclasses.replace(SETTINGS, metrics=("accuracy", "f1", "top-2"))
    expected = evaluate(Echo(), Table(scores, classes), plain, "test")
    engine = Echo()
    engine._tensors["train.labels"] = np.zeros((BATCH, CLASSES), np.float32)
    rows = dataclasses.replace(plain, loss_options=LossOptions(has_label_rows=True))
    assert evaluate(engine, Table(scores, np.eye(CLASSES)[classes]), rows, "test") == expected
