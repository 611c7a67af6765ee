"""Claims about labels that cannot be what the loss takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgetrain.dataset.samples import Dataset, Part
from edgetrain.errors import DataError
from edgetrain.graph.ir import LABELS, Role, Tensor, TrainGraph, evaluated
from edgetrain.recipes import recipe_for_model
from edgetrain.run.loop.labels import check_label_kind, fitting_part
from edgetrain.run.loop.targets import scaling_of


def dataset(labels: Any) -> Dataset:
    return Dataset(name="d", train=Part(features=np.zeros((len(labels), 1)), labels=np.asarray(labels)))


@pytest.mark.parametrize(
    ("labels", "example"),
    [([0, 250_000, 199_000], "250000"), (np.array([1.0, 2.5], np.float32), "2.5"), ([1, 1000], "1000")],
)
def test_values_are_no_classes_and_the_hint_says_what_they_need(labels: Any, example: str) -> None:
    with pytest.raises(DataError, match=f"look like values, such as {example}") as caught:
        check_label_kind(dataset(labels), "cross-entropy")
    assert "train.loss=mse metric=mse" in caught.value.fix
    check_label_kind(dataset(labels), "mse")


@pytest.mark.parametrize("labels", [[0, 1], np.array([0.0, 2.0]), [999, 0], list(range(2000))])
def test_whole_numbers_are_classes_however_they_are_stored(labels: Any) -> None:
    check_label_kind(dataset(labels), "cross-entropy")


def graph(outputs: int) -> TrainGraph:
    names = (LABELS, evaluated("y"))
    tensors = {n: Tensor(name=n, shape=(4, outputs), dtype="float32", role=Role.INPUT) for n in names}
    return TrainGraph(name="g", tensors=tensors, functions={})


def fitted(labels: Any, outputs: int) -> Part:
    part = dataset(labels).train
    return fitting_part(part, "mse", graph(outputs), "y", name="the training part")


@pytest.mark.parametrize(
    ("labels", "outputs", "told"),
    [
        (np.zeros(6, np.float32), 3, "has 1 number, and the model puts out 3 numbers"),
        (np.zeros((6, 2), np.float32), 1, "has 2 numbers, and the model puts out 1 number "),
        (np.zeros((6, 2), np.int64), 3, "has 2 numbers, and the model puts out 3 numbers"),
    ],
)
def test_labels_of_another_size_than_the_output_are_refused(labels: Any, outputs: int, told: str) -> None:
    with pytest.raises(DataError, match=told):
        fitted(labels, outputs)


@pytest.mark.parametrize(
    ("labels", "outputs"),
    [(np.zeros((6, 3), np.float32), 3), (np.zeros((6, 1), np.float32), 1), (np.arange(3), 3), (np.arange(3), 1)],
)
def test_labels_of_the_outputs_size_and_classes_for_one_hot_rows_fit(labels: Any, outputs: int) -> None:
    assert len(fitted(labels, outputs)) == len(labels)


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
def test_whole_numbers_to_predict_are_values_whatever_shape_they_come_in(shape: tuple[int, ...]) -> None:
    prices = np.arange(100_000, 700_000, 100_000).reshape(shape)
    part = fitted(prices, 1)
    assert part.labels.dtype == np.float32
    recipe = recipe_for_model("model.onnx", ["train.loss=mse", "data.source=prices.npz"])
    assert scaling_of(Dataset(name="prices", train=part), recipe).mean == 350_000


def test_rows_of_whole_numbers_to_predict_are_values() -> None:
    assert fitted(np.arange(18).reshape(6, 3), 3).labels.dtype == np.float32


def test_rows_with_a_one_at_the_class_are_answered_with_the_way_to_classes() -> None:
    part = dataset(np.eye(3, dtype=np.float32)[[0, 2, 1, 1]]).train
    tensors = {**graph(3).tensors, LABELS: Tensor(name=LABELS, shape=(4,), dtype="int64", role=Role.INPUT)}
    classes = TrainGraph(name="g", tensors=tensors, functions={})
    with pytest.raises(DataError, match="rows with a one at the class") as raised:
        fitting_part(part, "cross-entropy", classes, "y", name="the training part")
    assert "labels.argmax(axis=1)" in raised.value.fix
