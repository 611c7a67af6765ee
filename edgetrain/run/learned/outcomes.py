"""One batch of outputs and labels in the words of the findings: by kind of loss, what was right and how sure it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from edgetrain.dataset.reading import Scaling
from edgetrain.recipes import CLASS_LOSSES
from edgetrain.run.engines.engine import Array
from edgetrain.run.learned.calibration import Calibration, CalibrationTally
from edgetrain.run.learned.class_outcomes import ClassOutcomes, ConfusionTally, SignTally
from edgetrain.run.learned.value_outcomes import ValueOutcomes, ValueTally
from edgetrain.run.learned.worst import Verdict
from edgetrain.run.loop.metrics import class_axis

_SIGN_LOSSES = ("bce",)
_VALUE_LOSSES = ("mse", "l1")
_MOST_OUTPUTS = 1 << 20  # looked at together: a picture with a class for each pixel has many


class Outcomes(Protocol):
    """What one kind of loss has to say. A batch is added whole; a verdict is asked for where a sample is hard."""

    def add(self, outputs: Array, labels: Array) -> None: ...

    def verdict(self, index: int, loss: float, output: Array, label: Array) -> Verdict:
        """About one row of a batch."""
        ...

    def finish(self, names: Sequence[str]) -> tuple[ClassOutcomes | None, ValueOutcomes | None, Calibration | None]: ...


def outcomes_of(loss: str, outputs: Array, labels: Array, part_labels: Array, scaling: Scaling) -> Outcomes:
    """`outputs` and `labels` are those of a batch: their shapes count. `part_labels` are all labels of the part."""
    if loss in CLASS_LOSSES:
        return ByClass(outputs.shape[class_axis(outputs, labels)])
    if loss in _SIGN_LOSSES and outputs.size == labels.size:
        is_one_of_many = np.issubdtype(part_labels.dtype, np.integer) and part_labels.ndim == 1
        return BySign(outputs[:1].size, is_one_of_many=is_one_of_many)
    if loss in _VALUE_LOSSES and outputs.size == labels.size:
        return ByValue(ValueTally(_unscaled(_like(part_labels, labels), scaling)), scaling)
    return ByLoss()


class ByClass:
    """Scores for each class, and a class number for each label."""

    def __init__(self, classes: int) -> None:
        self._confusion = ConfusionTally(classes)
        self._calibration = CalibrationTally()

    def add(self, outputs: Array, labels: Array) -> None:
        for some, of_them in _pieces(outputs, labels):
            predicted, confidences = _best(some, of_them)
            self._confusion.add(of_them, predicted)
            self._calibration.add(confidences, predicted == of_them)

    def verdict(self, index: int, loss: float, output: Array, label: Array) -> Verdict:
        predicted, confidences = _best(output[np.newaxis], label[np.newaxis])
        if label.size != 1:
            return Verdict(index=index, loss=loss, is_wrong=bool((predicted[0] != label).any()))
        return Verdict(
            index=index,
            loss=loss,
            is_wrong=bool(predicted.item() != label.item()),
            actual=int(label.item()),
            predicted=int(predicted.item()),
            confidence=float(confidences.item()),
        )

    def finish(self, names: Sequence[str]) -> tuple[ClassOutcomes, None, Calibration | None]:
        return self._confusion.finish(names), None, self._calibration.finish()


class BySign:
    """A logit for each label, which is 0 or 1. With one logit these are two classes; else every output is a class.

    `is_one_of_many`: exactly one of the outputs is right, because the data has one class number for each sample.
    """

    def __init__(self, outputs: int, *, is_one_of_many: bool) -> None:
        self._is_one_of_many = is_one_of_many and outputs > 1
        self._has_classes = self._is_one_of_many or outputs == 1
        self._confusion = ConfusionTally(max(2, outputs))
        self._signs = SignTally(outputs)
        self._calibration = CalibrationTally()

    def add(self, outputs: Array, labels: Array) -> None:
        logits, truths = _rows(outputs), _rows(labels) > 0.5
        predicted, confidences = self._predicted(logits)
        actual = self._actual(truths)
        if self._has_classes:
            self._confusion.add(actual, predicted)
        else:
            self._signs.add(truths, logits > 0)
        self._calibration.add(confidences, predicted == actual)

    def verdict(self, index: int, loss: float, output: Array, label: Array) -> Verdict:
        logits, truths = _rows(output[np.newaxis]), _rows(label[np.newaxis]) > 0.5
        predicted, confidences = self._predicted(logits)
        actual = self._actual(truths)
        is_wrong = bool((predicted != actual).any())
        if not self._has_classes:
            return Verdict(index=index, loss=loss, is_wrong=is_wrong)
        return Verdict(
            index=index,
            loss=loss,
            is_wrong=is_wrong,
            actual=int(actual.item()),
            predicted=int(predicted.item()),
            confidence=float(confidences.item()),
        )

    def finish(self, names: Sequence[str]) -> tuple[ClassOutcomes, None, Calibration | None]:
        found = self._confusion.finish(names) if self._has_classes else self._signs.finish(names)
        return found, None, self._calibration.finish()

    def _predicted(self, logits: Array) -> tuple[Array, Array]:
        """The class, or the sign, that is predicted, with its probability."""
        if self._is_one_of_many:
            best = logits.argmax(axis=1)
            return best, _sigmoid(np.take_along_axis(logits, best[:, np.newaxis], axis=1)[:, 0])
        return (logits > 0).astype(np.int64), _sigmoid(np.abs(logits))

    def _actual(self, truths: Array) -> Array:
        return truths.argmax(axis=1) if self._is_one_of_many else truths.astype(np.int64)


class ByValue:
    """Predicted values for true ones, both turned back into the units of the data."""

    def __init__(self, tally: ValueTally, scaling: Scaling) -> None:
        self._tally = tally
        self._scaling = scaling

    def add(self, outputs: Array, labels: Array) -> None:
        self._tally.add(_unscaled(labels, self._scaling), _unscaled(outputs.reshape(labels.shape), self._scaling))

    def verdict(self, index: int, loss: float, output: Array, label: Array) -> Verdict:
        if label.size != 1:
            return Verdict(index=index, loss=loss)
        actual, predicted = (float(_unscaled(value, self._scaling).item()) for value in (label, output))
        return Verdict(index=index, loss=loss, actual=actual, predicted=predicted)

    def finish(self, names: Sequence[str]) -> tuple[None, ValueOutcomes, None]:
        return None, self._tally.finish(), None


class ByLoss:
    """Losses without a notion of right: all there is to say is which samples are hard."""

    def add(self, outputs: Array, labels: Array) -> None: ...

    def verdict(self, index: int, loss: float, output: Array, label: Array) -> Verdict:
        return Verdict(index=index, loss=loss)

    def finish(self, names: Sequence[str]) -> tuple[None, None, None]:
        return None, None, None


def _best(outputs: Array, labels: Array) -> tuple[Array, Array]:
    """The class with the highest score for each label, and its softmax."""
    axis = class_axis(outputs, labels)
    logits = outputs.astype(np.float64)
    shifted = logits - logits.max(axis=axis, keepdims=True)
    return outputs.argmax(axis=axis), 1.0 / np.exp(shifted).sum(axis=axis)


def _pieces(outputs: Array, labels: Array) -> Iterator[tuple[Array, Array]]:
    rows = max(1, _MOST_OUTPUTS // max(1, outputs[:1].size))
    for start in range(0, len(labels), rows):
        yield outputs[start : start + rows], labels[start : start + rows]


def _rows(values: Array) -> Array:
    return np.asarray(values, np.float64).reshape(len(values), -1)


def _like(part_labels: Array, labels: Array) -> Array:
    """All labels as they are compared with outputs: class numbers become rows of 0 and 1, as in a batch."""
    width = labels[:1].size
    if np.issubdtype(part_labels.dtype, np.integer) and part_labels.ndim == 1 and width > 1:
        return np.asarray(part_labels[:, np.newaxis] == np.arange(width))
    return part_labels


def _unscaled(values: Array, scaling: Scaling) -> Array:
    return np.asarray(values, np.float64) * scaling.std + scaling.mean


def _sigmoid(logits: Array) -> Array:
    """Of logits that are not negative for the most part; none overflows."""
    shares = np.exp(-np.abs(logits))
    return np.asarray(np.where(logits >= 0, 1.0, shares) / (1.0 + shares))
