"""Labels as the program takes them: checked against the model's output, rows of labels padded to one length."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from edgetrain.dataset.batches import check_labels
from edgetrain.dataset.label_rows import padded_rows
from edgetrain.dataset.samples import Array, Dataset, Part
from edgetrain.errors import DataError
from edgetrain.graph.ir import LABELS, TrainGraph, evaluated
from edgetrain.recipes import CLASS_LOSSES, VALUE_LOSSES

CTC = "ctc"
_MOST_CLASSES = 1000  # with a larger number among fewer samples, labels are values, or ids


def with_fitting_labels(dataset: Dataset, loss: str, graph: TrainGraph, output: str) -> Dataset:
    """The dataset with labels that fit the program's, in every part. Raises `DataError` for labels that do not."""
    parts = {"train": ("training", dataset.train), "validation": ("validation", dataset.validation)}
    parts["test"] = ("test", dataset.test)
    fitting = {
        field: fitting_part(part, loss, graph, output, name=f"the {name} part")
        for field, (name, part) in parts.items()
        if part is not None
    }
    return dataclasses.replace(dataset, **fitting)  # type: ignore[arg-type]  # its fields are named after its parts


def check_label_kind(dataset: Dataset, loss: str) -> None:
    """Raises `DataError` for labels that no model can be trained on with this loss, before one is compiled."""
    labels = dataset.train.labels
    if loss not in CLASS_LOSSES or not labels.size:
        return
    largest = float(labels.max())
    is_class = np.array_equal(labels, np.rint(labels)) and largest < max(_MOST_CLASSES, len(labels))
    if not is_class:
        example = next((label for label in labels.flat if label != np.rint(label)), labels.max())
        raise DataError(
            f"the labels of {dataset.name} look like values, such as {example:g}, not like classes",
            why=f"the loss `{loss}` tells classes apart, which are numbered from 0",
            fix="if they are values to predict, add train.loss=mse metric=mse",
        )


def fitting_part(part: Part, loss: str, graph: TrainGraph, output: str, *, name: str) -> Part:
    """As `with_fitting_labels`, for one part."""
    shape = graph.tensors[evaluated(output)].shape
    if loss in CLASS_LOSSES:
        part = _with_whole_labels(part)
        check_labels(part, shape[1], name=name)
    if loss in VALUE_LOSSES and len(part) and math.prod(part.labels.shape[1:]) == math.prod(shape[1:]):
        return Part(features=part.features, labels=part.labels.astype(np.float32))  # whole numbers are values here
    if loss == CTC:
        return padded_rows(part, classes=shape[2], time_steps=shape[1], width=graph.tensors[LABELS].shape[1], name=name)
    _require_row_shape(part, graph.tensors[LABELS].shape[1:], name=name)
    return part


def _require_row_shape(part: Part, wanted: tuple[int, ...], *, name: str) -> None:
    """A sample's label has as many numbers as the program takes; a class may stand for its one-hot row."""
    found = part.labels.shape[1:]
    is_class = not found and len(wanted) == 1 and np.issubdtype(part.labels.dtype, np.integer)
    if is_class or math.prod(found) == math.prod(wanted):
        return
    if not wanted and _are_one_hot(part.labels):
        raise DataError(
            f"the labels in {name} are rows with a one at the class, and the loss takes the class itself",
            why=f"labels have the shape {part.labels.shape}",
            fix="give each sample's class as one number, in NumPy `labels.argmax(axis=1)`",
        )
    raise DataError(
        f"each label in {name} has {_numbers(found)}, and the model puts out {_numbers(wanted)} for a sample",
        why=f"labels have the shape {part.labels.shape}",
        fix=f"give labels of {_numbers(wanted)} each, or a model with {_numbers(found)} in its output",
    )


def _are_one_hot(labels: Array) -> bool:
    rows = labels.ndim == 2 and labels.shape[1] > 1
    return bool(rows and ((labels == 0) | (labels == 1)).all() and (labels.sum(axis=1) == 1).all())


def _numbers(shape: tuple[int, ...]) -> str:
    count = math.prod(shape)
    return f"{count} number{'' if count == 1 else 's'}"


def _with_whole_labels(part: Part) -> Part:
    """Classes that were stored as 0.0, 1.0, … as whole numbers; other labels stay what they are."""
    labels = part.labels
    if not np.issubdtype(labels.dtype, np.floating) or not np.array_equal(labels, np.rint(labels)):
        return part
    return Part(features=part.features, labels=labels.astype(np.int64))
