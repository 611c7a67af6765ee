"""The CTC loss and the error rate of what a model spells, in float64 NumPy.

Outputs are (batch, time, classes) with class 0 the blank, labels rows of class numbers padded at their end with −1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgetrain.errors import DataError
from edgetrain.run.engines.engine import Array

Values = NDArray[np.float64]
BLANK = 0


def ctc_loss(outputs: Array, labels: Array) -> Values:
    """−log of the summed probability of all paths that spell the row, over its length; one value for each row."""
    _require_rows(outputs, labels)
    logits = outputs.astype(np.float64)
    shifted = logits - logits.max(axis=2, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=2, keepdims=True))
    return np.array([_row_loss(p, row[row >= 0]) for p, row in zip(log_p, labels, strict=True)])


def _row_loss(log_p: Values, row: Array) -> float:
    """All paths at once, time step by time step: states are the row's labels with blanks round each."""
    states = np.full(2 * len(row) + 1, BLANK, np.int64)
    states[1::2] = row
    skips = np.zeros(len(states), bool)  # whether a path may come over the blank before
    skips[3::2] = row[1:] != row[:-1]
    reached = np.where(np.arange(len(states)) <= 1, log_p[0, states], -np.inf)
    for step in log_p[1:]:
        once, twice = (np.concatenate([np.full(k, -np.inf), reached])[: len(states)] for k in (1, 2))
        ways = np.logaddexp(np.logaddexp(reached, once), np.where(skips, twice, -np.inf))
        reached = ways + step[states]
    return float(-np.logaddexp.reduce(reached[-2:]) / max(len(row), 1))


def edits(outputs: Array, labels: Array) -> Values:
    """For each row: the changes that turn what the model spells into the label, and the label's length.

    The model spells the likeliest class of each time step, repeats and blanks left out.
    """
    _require_rows(outputs, labels)
    rows = []
    for output, row in zip(outputs, labels, strict=True):
        label = row[row >= 0]
        rows.append((edit_distance(spelt(output).tolist(), label.tolist()), len(label)))
    return np.array(rows, np.float64).reshape(-1, 2)


def spelt(output: Array) -> Array:
    """What one sample's (time, classes) spells: the likeliest class of each time step, without repeats and blanks."""
    path = output.argmax(axis=1)
    classes: Array = path[np.concatenate([[True], path[1:] != path[:-1]]) & (path != BLANK)]
    return classes


def edit_distance(one: list[int], other: list[int]) -> int:
    """The fewest insertions, deletions and replacements that turn one into the other (Levenshtein, 1966)."""
    before = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        row = [i]
        for j, b in enumerate(other, start=1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (a != b)))
        before = row
    return before[-1]


@dataclass(slots=True)
class EditRate:
    """Changes for each label, over a whole split: long rows count for more than short ones."""

    changes: float = 0.0
    labels: float = 0.0
    count: int = 0

    def add(self, values: Values) -> None:
        changes, labels = values.sum(axis=0)
        self.changes += float(changes)
        self.labels += float(labels)
        self.count += len(values)

    @property
    def mean(self) -> float:
        return self.changes / max(self.labels, 1.0)


def _require_rows(outputs: Array, labels: Array) -> None:
    if outputs.ndim != 3 or labels.ndim != 2 or len(outputs) != len(labels):
        raise DataError(
            f"labels of shape {labels.shape} do not go with outputs of shape {outputs.shape}",
            why="`ctc` takes (batch, time, classes) and a row of class numbers for each sample",
            fix="transpose the model's output, or pad the rows of labels with -1 to one length",
        )
