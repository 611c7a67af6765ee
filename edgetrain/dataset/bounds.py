"""Whole numbers that must be in bounds before a program reads them: labels, and ids that are places in a table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgetrain.dataset.samples import Array, Part, place_in_source
from edgetrain.errors import DataError

Bounds = Mapping[str, tuple[int, int]]  # the lowest and the highest value, by the name of an input


def first_outside(values: Array, bounds: tuple[int, int]) -> tuple[int, ...] | None:
    """Where the first value is that is out of bounds; None where all are inside, or are no whole numbers."""
    lowest, highest = bounds
    if not values.size or values.dtype.kind not in "iu" or (values.min() >= lowest and values.max() <= highest):
        return None
    return tuple(int(i) for i in np.argwhere((values < lowest) | (values > highest))[0])


def outside(where: str, what: str, value: int, bounds: tuple[int, int]) -> DataError:
    """The error for a value that `first_outside` found: `where` is the sample, `what` the input or the label."""
    lowest, highest = bounds
    return DataError(
        f"{where}: {what} holds {value}, outside {lowest} to {highest}",
        why="the model looks it up in a table, or among its outputs, which ends there",
        fix="correct that sample, or use the vocabulary and the classes that the model was made for",
    )


def check_rows(part: Part, rows: Array, what: str, array: Array, bounds: tuple[int, int]) -> None:
    """Raises `DataError` naming the sample where the batch of these rows of the part is out of bounds."""
    found = first_outside(array, bounds)
    if found is None:
        return
    row = int(rows[found[0]])
    source_row = place_in_source(part, row)
    where = f"sample {row}" + (f" (row {source_row} of the data)" if source_row != row else "")
    raise outside(where, what, int(array[found]), bounds)


def check_one(sample: Mapping[str, Array], bounds: Bounds) -> None:
    """Raises `DataError` where a sample, as the model's inputs take it, is out of bounds."""
    for name, pair in bounds.items():
        found = first_outside(sample[name], pair) if name in sample else None
        if found is not None:
            raise outside("the sample", f"`{name}`", int(sample[name][found]), pair)
