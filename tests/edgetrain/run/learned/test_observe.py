from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.augment.examples import AugmentedExample
from edgetrain.dataset.convert import Conversion
from edgetrain.dataset.reading import Reading, Scaling
from edgetrain.dataset.samples import Dataset, Part
from edgetrain.errors import DataError
from edgetrain.graph.options import LossOptions
from edgetrain.run.engines.engine import Array
from edgetrain.run.learned.keep import keep_learned
from edgetrain.run.learned.learned import LEARNED, Learned, read_learned, write_learned
from edgetrain.run.learned.observe import observe
from edgetrain.run.learned.worst import WORST
from edgetrain.run.loop.evaluation import evaluate
from edgetrain.run.loop.feed import TEST, DatasetFeed
from edgetrain.run.loop.learning_rate import LearningRate
from edgetrain.run.loop.settings import TrainSettings

BATCH, ROWS = 8, 61  # the last batch is padded


class Echo:
    """An engine whose output is its input."""

    def __init__(self, outputs: tuple[int, ...], labels: tuple[int, ...], kind: Any) -> None:
        self._tensors: dict[str, Array] = {
            "x": np.zeros((BATCH, *outputs), np.float32),
            "train.labels": np.zeros((BATCH, *labels), kind),
            "evaluate.y": np.zeros((BATCH, *outputs), np.float32),
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


def settings(loss: str, metric: str = "loss") -> TrainSettings:
    return TrainSettings(
        program_sha256="",
        inputs=("x",),
        output="y",
        loss=loss,
        epochs=1,
        learning_rate=LearningRate(peak=1.0),
        metrics=() if metric == "loss" else (metric,),
    )


def dataset(outputs: Array, labels: Array, *, names: Sequence[str] = (), target: Scaling | None = None) -> Dataset:
    part = Part(features=outputs, labels=labels)
    reading = Reading(class_names=tuple(names), target=target or Scaling())
    return Dataset(name="made up", train=part, test=part, reading=reading)


def observed(data: Dataset, loss: str, engine: Echo) -> Learned:
    feed = DatasetFeed(data, batch=BATCH, seed=0, conversion=Conversion())
    found = observe(engine, feed, settings(loss), data)
    assert found is not None
    assert Learned.from_json(found.to_json(), where="here") == found
    return found


@pytest.mark.parametrize("seed", range(3))
def test_classes_are_those_that_score_highest_and_padding_counts_for_nothing(seed: int) -> None:
    random = np.random.default_rng(seed)
    logits, labels = random.normal(0, 2, (ROWS, 4)).astype(np.float32), random.integers(0, 4, ROWS)
    found = observed(dataset(logits, labels, names="abcd"), "cross-entropy", Echo((4,), (), np.int64))
    assert (found.part, found.samples) == ("test", ROWS)
    assert found.classes is not None
    assert sum(cell.count for cell in found.classes.cells) == ROWS
    shares = np.exp(logits.astype(np.float64))
    shares /= shares.sum(axis=1, keepdims=True)
    losses = -np.log(shares[np.arange(ROWS), labels])
    hardest = sorted(range(ROWS), key=lambda row: -losses[row])[:WORST]
    assert [sample.index for sample in found.hardest] == hardest
    for sample in found.hardest:
        row = shares[sample.index]
        assert sample.loss == pytest.approx(losses[sample.index])
        assert (sample.actual, sample.predicted) == (labels[sample.index], row.argmax())
        assert sample.confidence == pytest.approx(row.max())
        assert sample.is_wrong == (sample.actual != sample.predicted)
    assert found.calibration is not None
    assert sum(each.count for each in found.calibration.bins) == ROWS


def test_a_program_that_takes_shares_of_classes_is_judged_by_class() -> None:
    random = np.random.default_rng(0)
    logits, labels = random.normal(0, 2, (ROWS, 4)).astype(np.float32), random.integers(0, 4, ROWS)
    data = dataset(logits, labels)
    mixing = replace(settings("cross-entropy"), loss_options=LossOptions(has_label_rows=True))
    feed = DatasetFeed(data, batch=BATCH, seed=0, conversion=Conversion())
    plain = observed(data, "cross-entropy", Echo((4,), (), np.int64))
    assert observe(Echo((4,), (4,), np.float32), feed, mixing, data) == plain


def test_pictures_of_augmentation_are_kept_with_the_findings(tmp_path: Path) -> None:
    data = dataset(np.zeros((ROWS, 3), np.float32), np.zeros(ROWS, np.int64))
    feed = DatasetFeed(data, batch=BATCH, seed=0, conversion=Conversion())
    pixels = np.zeros((2, 2), np.uint8)
    keep_learned(
        Echo((3,), (), np.int64),
        feed,
        settings("cross-entropy"),
        data,
        tmp_path,
        augmented=lambda: [AugmentedExample(row=0, original=pixels, variants=(pixels, pixels))],
    )
    found = read_learned(tmp_path)
    assert found is not None
    assert [len(row) for row in found.augmented] == [3]
    assert found.augmented[0][0].startswith("data:image/png;base64,")


def test_the_matrix_agrees_with_the_accuracy_that_the_report_says() -> None:
    random = np.random.default_rng(5)
    logits, labels = random.normal(size=(ROWS, 3)).astype(np.float32), random.integers(0, 3, ROWS)
    data = dataset(logits, labels)
    found = observed(data, "cross-entropy", Echo((3,), (), np.int64))
    feed = DatasetFeed(data, batch=BATCH, seed=0, conversion=Conversion())
    metrics = evaluate(Echo((3,), (), np.int64), feed, settings("cross-entropy", "accuracy"), TEST)
    assert metrics is not None
    assert found.classes is not None
    hits = sum(cell.count for cell in found.classes.cells if cell.actual == cell.predicted)
    assert hits / ROWS == pytest.approx(metrics["accuracy"])


def test_a_class_for_each_pixel_is_counted_pixel_by_pixel() -> None:
    random = np.random.default_rng(2)
    logits, labels = random.normal(size=(ROWS, 3, 5)).astype(np.float32), random.integers(0, 3, (ROWS, 5))
    found = observed(dataset(logits, labels), "cross-entropy", Echo((3, 5), (5,), np.int64))
    matrix = np.zeros((3, 3), int)
    np.add.at(matrix, (labels, logits.argmax(axis=1)), 1)
    assert found.classes is not None
    assert {(c.actual, c.predicted): c.count for c in found.classes.cells} == dict(np.ndenumerate(matrix))
    assert {sample.actual for sample in found.hardest} == {None}


def test_one_logit_tells_two_classes_apart() -> None:
    random = np.random.default_rng(3)
    logits, labels = random.normal(size=(ROWS, 1)).astype(np.float32), random.integers(0, 2, ROWS).astype(np.int64)
    found = observed(dataset(logits, labels, names=("ham", "spam")), "bce", Echo((1,), (1,), np.float32))
    assert found.classes is not None
    assert [row.name for row in found.classes.rows] == ["ham", "spam"]
    hits = sum(cell.count for cell in found.classes.cells if cell.actual == cell.predicted)
    assert hits == ((logits[:, 0] > 0) == (labels == 1)).sum()
    worst = found.hardest[0]
    assert worst.confidence == pytest.approx(1 / (1 + np.exp(-abs(float(logits[worst.index, 0])))))


def test_several_labels_at_once_have_a_row_for_each_output_and_no_matrix() -> None:
    random = np.random.default_rng(4)
    logits = random.normal(size=(ROWS, 3)).astype(np.float32)
    labels = (random.random((ROWS, 3)) > 0.5).astype(np.float32)
    found = observed(dataset(logits, labels), "bce", Echo((3,), (3,), np.float32))
    assert found.classes is not None
    assert found.classes.cells == ()
    assert [row.count for row in found.classes.rows] == labels.sum(axis=0).tolist()


def test_one_of_many_logits_is_right_where_the_data_numbers_classes() -> None:
    random = np.random.default_rng(6)
    logits, labels = random.normal(size=(ROWS, 3)).astype(np.float32), random.integers(0, 3, ROWS)
    found = observed(dataset(logits, labels), "bce", Echo((3,), (3,), np.float32))
    assert found.classes is not None
    hits = sum(cell.count for cell in found.classes.cells if cell.actual == cell.predicted)
    assert hits == (logits.argmax(axis=1) == labels).sum()


def test_values_are_told_in_the_units_of_the_data() -> None:
    random = np.random.default_rng(7)
    outputs = random.normal(size=(ROWS, 1)).astype(np.float32)
    labels = (outputs[:, 0] + random.normal(0, 0.1, ROWS)).astype(np.float32)
    target = Scaling(mean=1000.0, std=50.0)
    found = observed(dataset(outputs, labels, target=target), "mse", Echo((1,), (1,), np.float32))
    assert found.values is not None
    assert found.values.mean_absolute_error == pytest.approx(50 * np.abs(outputs[:, 0] - labels).mean(), rel=1e-5)
    worst = found.hardest[0]
    assert worst.index == np.abs(outputs[:, 0] - labels).argmax()
    assert worst.actual == pytest.approx(1000 + 50 * float(labels[worst.index]), rel=1e-6)
    assert worst.predicted == pytest.approx(1000 + 50 * float(outputs[worst.index, 0]), rel=1e-6)


def test_a_loss_without_right_and_wrong_still_names_the_hardest_samples() -> None:
    random = np.random.default_rng(8)
    outputs, labels = random.normal(size=(2, ROWS, 4)).astype(np.float32)
    found = observed(dataset(outputs, labels), "cosine", Echo((4,), (4,), np.float32))
    assert found.classes is None
    assert found.values is None
    cosine = (outputs * labels).sum(axis=1) / np.linalg.norm(outputs, axis=1) / np.linalg.norm(labels, axis=1)
    assert found.hardest[0].index == cosine.argmin()


def test_without_a_part_to_evaluate_there_is_nothing_to_say() -> None:
    data = dataset(np.zeros((BATCH, 2), np.float32), np.zeros(BATCH, np.int64))
    data = replace(data, test=None)
    feed = DatasetFeed(data, batch=BATCH, seed=0, conversion=Conversion())
    assert observe(Echo((2,), (), np.int64), feed, settings("cross-entropy"), data) is None


def test_findings_are_read_back_and_a_broken_file_is_named(tmp_path: Path) -> None:
    found = Learned(part="test", samples=3)
    assert read_learned(tmp_path) is None
    write_learned(found, tmp_path)
    assert read_learned(tmp_path) == found
    for text in ("", "[]", '{"format": "other/1"}', '{"format": "edgetrain.learned/1", "part": "test"}'):
        (tmp_path / LEARNED).write_text(text)
        with pytest.raises(DataError, match=r"learned\.json"):
            read_learned(tmp_path)


def test_data_that_has_gone_meanwhile_costs_the_findings_and_not_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    labels = np.zeros(BATCH, np.int64)
    whole, gone = dataset(np.zeros((BATCH, 2), np.float32), labels), dataset(np.full((BATCH, 2), np.nan), labels)
    for data, is_written in ((gone, False), (whole, True)):
        feed = DatasetFeed(data, batch=BATCH, seed=0, conversion=Conversion())
        keep_learned(Echo((2,), (), np.int64), feed, settings("cross-entropy"), data, tmp_path)
        assert (tmp_path / LEARNED).exists() is is_written
    assert caplog.text.count("was not written down: DataError") == 1
