"""A model's outputs in the words of its data: classes with probabilities, or values in their own units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgetrain.dataset.reading import Reading
from edgetrain.run.engines.engine import Array
from edgetrain.run.loop.ctc_metrics import spelt

_ROUNDING = 1e-4  # of shares in float32 that are added up


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction:
    """What the model says about one sample. Where `error` is set, the sample could not be read, and nothing else is.

    `label` is the likeliest class by its name, or by its number where classes have none; `probabilities` are those of
    all classes, in the order of the model's outputs. A model that gives values has them in `value`: a number, or an
    array of the output's shape.
    """

    name: str  # the file, row or index
    label: str | None = None
    probability: float | None = None
    probabilities: Mapping[str, float] = field(default_factory=dict)
    value: float | Array | None = None
    error: str = ""

    @property
    def numbers(self) -> tuple[float, ...]:
        """Those of `value`, one after another."""
        return () if self.value is None else tuple(np.ravel(self.value).tolist())

    def best(self, count: int) -> tuple[tuple[str, float], ...]:
        """The likeliest classes with their probabilities; of equal ones the first."""
        return tuple(sorted(self.probabilities.items(), key=lambda pair: -pair[1])[:count])

    def to_json(self, *, top: int) -> dict[str, Any]:
        """Plain data: `top` classes, or the value, or the error."""
        if self.error:
            return {"name": self.name, "error": self.error}
        data: dict[str, Any] = {"name": self.name}
        if self.label is not None:
            data["label"] = self.label
        if self.probability is not None:
            data["probability"] = self.probability
        if self.probabilities:
            data["classes"] = [{"label": label, "probability": p} for label, p in self.best(top)]
        if self.value is not None:
            data["value"] = self.value.tolist() if isinstance(self.value, np.ndarray) else self.value
        return data


def prediction_of(name: str, output: Array, *, kind: str, reading: Reading, is_activated: bool = False) -> Prediction:
    """What one row of the model's output says.

    `is_activated`: the model itself ends in the softmax or sigmoid, or gives values in the units of the data.
    """
    if not np.isfinite(output).all():
        return Prediction(name=name, error="the model's output is no number")
    return _KINDS[kind](name, output.astype(np.float64), reading, is_activated)


def _classes(name: str, output: Array, reading: Reading, is_activated: bool) -> Prediction:
    if output.ndim > 1:  # a class for each place, as in segmentation
        return Prediction(name=name, value=output.argmax(axis=0))
    return _ranked(name, output if is_activated else _softmax(output), reading.class_names)


def _scores(name: str, output: Array, reading: Reading, is_activated: bool) -> Prediction:
    """Of a loss that the user wrote: nobody says whether it takes logits or shares, but shares add up to one."""
    is_shares = output.ndim == 1 and bool((output >= 0).all()) and abs(float(output.sum()) - 1.0) < _ROUNDING
    return _classes(name, output, reading, is_shares)


def _yes_no(name: str, output: Array, reading: Reading, is_activated: bool) -> Prediction:
    """Each output is a question of its own; a single one tells two classes apart."""
    shares = (output if is_activated else _sigmoid(output)).reshape(-1)
    if len(shares) == 1:
        shares = np.array([1.0 - shares[0], shares[0]])
    return _ranked(name, shares, reading.class_names)


def _sequence(name: str, output: Array, reading: Reading, is_activated: bool) -> Prediction:
    return Prediction(name=name, label=" ".join(_label(int(i), reading.class_names) for i in spelt(output)))


def _values(name: str, output: Array, reading: Reading, is_activated: bool) -> Prediction:
    values = output if is_activated else output * reading.target.std + reading.target.mean
    return Prediction(name=name, value=float(values.reshape(())) if values.size == 1 else values)


def _ranked(name: str, shares: Array, class_names: Sequence[str]) -> Prediction:
    labels = [_label(i, class_names) for i in range(len(shares))]
    best = int(shares.argmax())
    return Prediction(
        name=name,
        label=labels[best],
        probability=float(shares[best]),
        probabilities={label: float(share) for label, share in zip(labels, shares, strict=True)},
    )


def _label(index: int, class_names: Sequence[str]) -> str:
    return class_names[index] if index < len(class_names) else str(index)


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max())
    shares: Array = powers / powers.sum()
    return shares


def _sigmoid(logits: Array) -> Array:
    small = np.exp(-np.abs(logits))  # in the form that overflows for no logit
    shares: Array = np.where(logits >= 0, 1.0, small) / (1.0 + small)
    return shares


_KINDS: Mapping[str, Callable[[str, Array, Reading, bool], Prediction]] = {
    "classes": _classes,
    "scores": _scores,
    "yes-no": _yes_no,
    "sequence": _sequence,
    "values": _values,
}
