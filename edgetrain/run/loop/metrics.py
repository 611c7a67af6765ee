"""Losses and metrics from a model's outputs, in float64 NumPy: the numbers people compare, free of kernel rounding."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgetrain.errors import DataError
from edgetrain.graph.options import LossOptions
from edgetrain.recipes import TOP
from edgetrain.run.engines.engine import Array
from edgetrain.run.loop.ctc_metrics import EditRate, ctc_loss, edits

Values = NDArray[np.float64]
_SMALLEST = 1e-12  # as in the losses' kernels


class Tallying(Protocol):
    """One number over a whole split, from what `Metric.values` says batch by batch."""

    def add(self, values: Values) -> None: ...

    @property
    def count(self) -> int:
        """How many labels were counted."""
        ...

    @property
    def mean(self) -> float: ...


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


@dataclass(slots=True)
class MacroF1:
    """The mean over classes of 2·TP / (2·TP + FP + FN), from rows of (predicted, actual) class.

    Classes that are neither predicted nor there do not count, as in scikit-learn.
    """

    hits: Counter[int] = field(default_factory=Counter)
    seen: Counter[int] = field(default_factory=Counter)  # predicted and actual together: 2·TP + FP + FN
    count: int = 0

    def add(self, values: Values) -> None:
        predicted, actual = values[:, 0].astype(np.int64), values[:, 1].astype(np.int64)
        self.hits.update(actual[predicted == actual].tolist())
        self.seen.update(predicted.tolist())
        self.seen.update(actual.tolist())
        self.count += len(values)

    @property
    def mean(self) -> float:
        return sum(2 * self.hits[c] / self.seen[c] for c in self.seen) / len(self.seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """`values` gives one value for every label, so that batches of any size add up to one exact mean."""

    values: Callable[[Array, Array], Values]
    higher_is_better: bool
    tally: Callable[[], Tallying] = Tally


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
    return np.asarray(outputs.argmax(axis=class_axis(outputs, labels)) == labels, dtype=np.float64)


def cross_entropy(outputs: Array, labels: Array) -> Values:
    """−log softmax(outputs)[label], from logits and class numbers."""
    axis = class_axis(outputs, labels)
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


def classes(outputs: Array, labels: Array) -> Values:
    """Rows of (predicted, actual) class. Where labels are zeros and ones for each output, a sign predicts a one."""
    if outputs.size == labels.size:
        scores, targets = _paired(outputs, labels)
        pairs = (scores > 0).reshape(-1), (targets > 0.5).reshape(-1)
    else:
        pairs = outputs.argmax(axis=class_axis(outputs, labels)).reshape(-1), labels.reshape(-1)
    return np.stack(pairs, axis=1).astype(np.float64)


def among_the_best(count: int) -> Callable[[Array, Array], Values]:
    """1 for each label whose class is among the `count` that score highest; of equal scores the first class wins."""

    def values(outputs: Array, labels: Array) -> Values:
        scores = np.moveaxis(outputs, class_axis(outputs, labels), -1)
        best = np.argsort(-scores, axis=-1, kind="stable")[..., :count]
        return np.asarray((best == labels[..., None]).any(axis=-1), dtype=np.float64)

    return values


def focal(options: LossOptions) -> Callable[[Array, Array], Values]:
    def values(outputs: Array, labels: Array) -> Values:
        missed = cross_entropy(outputs, labels)
        return np.asarray((-np.expm1(-missed)) ** options.focal_gamma * missed, dtype=np.float64)

    return values


def kl(options: LossOptions) -> Callable[[Array, Array], Values]:
    """From logits and the shares of each class."""

    def values(outputs: Array, labels: Array) -> Values:
        logits, shares = _paired(outputs, labels)
        known = np.log(np.maximum(shares, _SMALLEST))
        return _divergence(logits, shares, known, options.temperature)

    return values


def distillation(options: LossOptions) -> Callable[[Array, Array], Values]:
    """From logits and the teacher's logits."""

    def values(outputs: Array, labels: Array) -> Values:
        logits, teacher = _paired(outputs, labels)
        log_shares = _log_softmax(teacher / options.temperature)
        return _divergence(logits, np.exp(log_shares), log_shares, options.temperature)

    return values


def _divergence(logits: Values, shares: Values, log_shares: Values, temperature: float) -> Values:
    apart = shares * (log_shares - _log_softmax(logits / temperature))
    return np.asarray(temperature**2 * apart.sum(axis=1), dtype=np.float64)


def _log_softmax(logits: Values) -> Values:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)), dtype=np.float64)


def cosine_distance(outputs: Array, labels: Array) -> Values:
    """1 − cos along axis 1."""
    x, y = _paired(outputs, labels)
    lengths = (np.square(x).sum(axis=1) + _SMALLEST) * (np.square(y).sum(axis=1) + _SMALLEST)
    return np.asarray(1.0 - (x * y).sum(axis=1) / np.sqrt(lengths), dtype=np.float64)


def nt_xent(options: LossOptions) -> Callable[[Array, Array], Values]:
    """One value for each row, which depends on the rows of its batch: another batch size gives another loss."""

    def values(outputs: Array, labels: Array) -> Values:
        if outputs.ndim != 2 or labels.shape != outputs.shape[:1]:
            raise _mismatch(outputs, labels)
        x = outputs.astype(np.float64)
        unit = x / np.sqrt(np.square(x).sum(axis=1, keepdims=True) + _SMALLEST)
        similar = unit @ unit.T / options.temperature
        np.fill_diagonal(similar, -np.inf)
        is_partner = (labels[:, None] == labels[None, :]) & ~np.eye(len(labels), dtype=bool)
        if len(labels) < 2:
            return np.zeros(len(labels))
        log_shares = np.where(is_partner, _log_softmax(similar), 0.0)
        return np.asarray(-log_shares.sum(axis=1) / np.maximum(is_partner.sum(axis=1), 1), dtype=np.float64)

    return values


def onnx_loss(options: LossOptions) -> Callable[[Array, Array], Values]:
    """The loss's own ONNX graph, run by ONNX's reference evaluator; every row of a batch has the batch's loss."""

    def values(outputs: Array, labels: Array) -> Values:
        import onnx  # here: the training loop itself runs without it
        from onnx.reference import ReferenceEvaluator

        proto = onnx.ModelProto.FromString(base64.b64decode(options.graph))
        stored = {t.name for t in proto.graph.initializer}
        names = [i.name for i in proto.graph.input if i.name not in stored]
        (loss,) = ReferenceEvaluator(proto).run(None, dict(zip(names, (outputs, labels), strict=True)))
        return np.full(len(outputs), float(np.asarray(loss).reshape(())))

    return values


def _plain(values: Callable[[Array, Array], Values]) -> Callable[[LossOptions], Callable[[Array, Array], Values]]:
    return lambda _options: values


_LOSS_VALUES: Mapping[str, Callable[[LossOptions], Callable[[Array, Array], Values]]] = {
    "cross-entropy": _plain(cross_entropy),  # without label smoothing, so that runs with and without it compare
    "bce": _plain(binary_cross_entropy),
    "mse": _plain(squared_error),
    "l1": _plain(absolute_error),
    "focal": focal,
    "kl": kl,
    "distillation": distillation,
    "cosine": _plain(cosine_distance),
    "nt-xent": nt_xent,
    "ctc": _plain(ctc_loss),
    "onnx": onnx_loss,
}


def loss_metric(loss: str, options: LossOptions) -> Metric:
    """The metric that computes a training loss."""
    return Metric(values=_LOSS_VALUES[loss](options), higher_is_better=False)


# The losses a recipe can name, each as the metric that computes it, with the default options.
LOSSES: Mapping[str, Metric] = {name: loss_metric(name, LossOptions()) for name in _LOSS_VALUES}

METRICS: Mapping[str, Metric] = {
    "accuracy": Metric(values=accuracy, higher_is_better=True),
    "f1": Metric(values=classes, higher_is_better=True, tally=MacroF1),
    **{name: Metric(values=among_the_best(count), higher_is_better=True) for name, count in TOP.items()},
    "mae": Metric(values=absolute_error, higher_is_better=False),
    "error-rate": Metric(values=edits, higher_is_better=False, tally=EditRate),
    **{name: metric for name, metric in LOSSES.items() if name not in ("l1", "onnx")},
}


def _paired(outputs: Array, labels: Array) -> tuple[Values, Values]:
    """Both as float64 of one shape. Never broadcasts: (n, 1) against (n,) would quietly compare all with all."""
    if outputs.size != labels.size or outputs.shape[:1] != labels.shape[:1]:
        raise _mismatch(outputs, labels)
    return outputs.astype(np.float64).reshape(labels.shape), labels.astype(np.float64)


def class_axis(outputs: Array, labels: Array) -> int:
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
