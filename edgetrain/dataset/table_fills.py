"""What stands for the empty cells of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from edgetrain.dataset.override_hint import override_hint
from edgetrain.dataset.reading import Reading
from edgetrain.dataset.samples import Array
from edgetrain.errors import DataError

FILLS: Mapping[str, Callable[[Array], float]] = {
    "mean": lambda values: float(np.mean(values, dtype=np.float64)),
    "median": lambda values: float(np.median(values)),
    "zero": lambda values: 0.0,
}


def fill_missing(features: Array, rows: Array, reading: Reading, policy: str) -> tuple[float, ...]:
    """Fills the empty cells in place and returns what stands for one in each of the reading's columns.

    That is computed on `rows` (the training part) unless the reading knows it. Raises `DataError` for a column that
    holds nothing there.
    """
    if not reading.fills and policy not in FILLS:
        return ()
    fills, at = [], 0
    for index, column in enumerate(reading.columns):
        words = reading.categories.get(column)
        if words is not None:  # no word is all zeros already
            fills.append(0.0)
            at += len(words)
            continue
        fill = reading.fills[index] if reading.fills else _fill_of(features[rows, at], column, policy)
        values = features[:, at]
        values[np.isnan(values)] = fill
        fills.append(fill)
        at += 1
    return tuple(fills)


def _fill_of(values: Array, column: str, policy: str) -> float:
    present = values[~np.isnan(values)]
    if not len(present) and policy != "zero":
        raise DataError(
            f"the column `{column}` holds no number in the training part",
            why=f"its {policy} is what would stand for an empty cell",
            fix=f"leave the column out with {override_hint('data.ignore', [column])}",
        )
    return FILLS[policy](present)
