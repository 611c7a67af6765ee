"""How often each class was taken for each other one, and what that means for every class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgetrain.run.engines.engine import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of the confusion matrix that is not 0."""

    actual: int
    predicted: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRow:
    """One class. `None` where the value is not defined: nothing was predicted as it, or nothing is of it."""

    number: int
    name: str
    count: int  # labels of this class
    predicted: int  # predictions of this class
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassOutcomes:
    """`cells` is empty where a sample can have several labels at once: then a row is an output of the model."""

    rows: tuple[ClassRow, ...]
    cells: tuple[Cell, ...] = ()


class ConfusionTally:
    """Counts pairs of actual and predicted class: at most one number for each label, however many classes there are."""

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self._counts: Counter[int] = Counter()

    def add(self, actual: Array, predicted: Array) -> None:
        pairs, counts = np.unique(
            actual.astype(np.int64).reshape(-1) * self._classes + predicted.astype(np.int64).reshape(-1),
            return_counts=True,
        )
        self._counts.update(dict(zip(pairs.tolist(), counts.tolist(), strict=True)))

    def finish(self, names: Sequence[str]) -> ClassOutcomes:
        """A row for each class that is there or was predicted, and for each that has a name."""
        cells = tuple(
            Cell(actual=pair // self._classes, predicted=pair % self._classes, count=count)
            for pair, count in sorted(self._counts.items())
        )
        actual, predicted, hits = Counter[int](), Counter[int](), Counter[int]()
        for cell in cells:
            actual[cell.actual] += cell.count
            predicted[cell.predicted] += cell.count
            hits[cell.actual] += cell.count if cell.actual == cell.predicted else 0
        numbers = sorted({*actual, *predicted, *range(min(len(names), self._classes))})
        rows = (class_row(n, name_of(n, names), hits[n], actual[n], predicted[n]) for n in numbers)
        return ClassOutcomes(rows=tuple(rows), cells=cells)


class SignTally:
    """Counts for each output of a model whose samples may have several labels at once."""

    def __init__(self, outputs: int) -> None:
        self._hits = np.zeros(outputs, np.int64)
        self._actual = np.zeros(outputs, np.int64)
        self._predicted = np.zeros(outputs, np.int64)

    def add(self, actual: Array, predicted: Array) -> None:
        """Rows of booleans, a column for each output."""
        self._hits += (actual & predicted).sum(axis=0)
        self._actual += actual.sum(axis=0)
        self._predicted += predicted.sum(axis=0)

    def finish(self, names: Sequence[str]) -> ClassOutcomes:
        counts = zip(self._hits.tolist(), self._actual.tolist(), self._predicted.tolist(), strict=True)
        rows = (class_row(number, name_of(number, names), *found) for number, found in enumerate(counts))
        return ClassOutcomes(rows=tuple(rows))


def class_row(number: int, name: str, hits: int, actual: int, predicted: int) -> ClassRow:
    return ClassRow(
        number=number,
        name=name,
        count=actual,
        predicted=predicted,
        precision=hits / predicted if predicted else None,
        recall=hits / actual if actual else None,
        f1=2 * hits / (actual + predicted) if actual + predicted else None,
    )


def name_of(number: int, names: Sequence[str]) -> str:
    return names[number] if number < len(names) else str(number)
