"""Losses and metrics from a model's outputs, in float64 NumPy: the numbers people compare, free of kernel rounding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgetrain.errors import DataError
from edgetrain.run.engine import Array

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """`values` gives one number for every label, so that batches of any size add up to one exact mean."""

    values: Callable[[Array, Array], Values]
    higher_is_better: bool


@dataclass(slots=True)
class Tally:
    """A mean that grows batch by batch."""

    total: float = 0.0
    count: int = 0

    def add(self, values: Values) -> None:
        self.total += float(values.sum())
        self.count += values.size

    @property
    def mean(self) -> float:
        return self.total / self.count


def accuracy(outputs: Array, labels: Array) -> Values:
    """1 for each label that the model gets right, from class scores or logits.

    Class numbers: the label's class scores highest. A single logit: its sign is the label's. A row of zeros and ones:
    with one 1, that class scores highest; with any other number of them, every sign is right.
    """
    if outputs.size == labels.size:
        scores, targets = _paired(outputs, labels)
        is_right = (scores > 0) == (targets > 0.5)
        if labels.ndim == 2 and labels.shape[1] > 1:
            is_one_hot = (targets > 0.5).sum(axis=1) == 1
            has_hit = scores.argmax(axis=1) == targets.argmax(axis=1)
            is_right = np.where(is_one_hot, has_hit, is_right.all(axis=1))
        return np.asarray(is_right, dtype=np.float64)
    return np.asarray(outputs.argmax(axis=_class_axis(outputs, labels)) == labels, dtype=np.float64)


def cross_entropy(outputs: Array, labels: Array) -> Values:
    """−log softmax(outputs)[label], from logits and class numbers."""
    axis = _class_axis(outputs, labels)
    logits = outputs.astype(np.float64)
    shifted = logits - logits.max(axis=axis, keepdims=True)
    classes = np.expand_dims(labels.astype(np.int64), axis)
    if classes.size and not (classes.min() >= 0 and classes.max() < outputs.shape[axis]):
        raise DataError(
            f"labels run from {classes.min()} to {classes.max()}, the model has {outputs.shape[axis]} classes",
            why="a label is the number of a class, counted from 0",
            fix="renumber the labels, or give the model a head with enough classes",
        )
    chosen = np.take_along_axis(shifted, classes, axis=axis).squeeze(axis)
    return np.asarray(np.log(np.exp(shifted).sum(axis=axis)) - chosen, dtype=np.float64)


def binary_cross_entropy(outputs: Array, labels: Array) -> Values:
    """From logits, in the form that overflows for no logit: max(x, 0) − x·y + log(1 + exp(−|x|))."""
    logits, targets = _paired(outputs, labels)
    return np.maximum(logits, 0.0) - logits * targets + np.log1p(np.exp(-np.abs(logits)))


def squared_error(outputs: Array, labels: Array) -> Values:
    predictions, targets = _paired(outputs, labels)
    return np.asarray(np.square(predictions - targets), dtype=np.float64)


def absolute_error(outputs: Array, labels: Array) -> Values:
    predictions, targets = _paired(outputs, labels)
    return np.asarray(np.abs(predictions - targets), dtype=np.float64)


METRICS: Mapping[str, Metric] = {
    "accuracy": Metric(values=accuracy, higher_is_better=True),
    "mse": Metric(values=squared_error, higher_is_better=False),
    "mae": Metric(values=absolute_error, higher_is_better=False),
    "cross-entropy": Metric(values=cross_entropy, higher_is_better=False),
    "bce": Metric(values=binary_cross_entropy, higher_is_better=False),
}

# The losses a recipe can name, each as the metric that computes it.
LOSSES: Mapping[str, Metric] = {
    "cross-entropy": METRICS["cross-entropy"],
    "bce": METRICS["bce"],
    "mse": METRICS["mse"],
    "l1": METRICS["mae"],
}


def _paired(outputs: Array, labels: Array) -> tuple[Values, Values]:
    """Both as float64 of one shape. Never broadcasts: (n, 1) against (n,) would quietly compare all with all."""
    if outputs.size != labels.size or outputs.shape[:1] != labels.shape[:1]:
        raise _mismatch(outputs, labels)
    return outputs.astype(np.float64).reshape(labels.shape), labels.astype(np.float64)


def _class_axis(outputs: Array, labels: Array) -> int:
    """Which axis of the outputs counts classes: the second, as in the training loss, or else the last (tokens)."""
    if outputs.ndim > 1 and (outputs.shape[0], *outputs.shape[2:]) == labels.shape:
        return 1
    if outputs.ndim > 1 and outputs.shape[:-1] == labels.shape:
        return outputs.ndim - 1
    raise _mismatch(outputs, labels)


def _mismatch(outputs: Array, labels: Array) -> DataError:
    return DataError(
        f"labels of shape {labels.shape} do not go with outputs of shape {outputs.shape}",
        why="every label needs its own output (or its own row of class scores)",
        fix="check the dataset's label column, or name the right output of the model",
    )
