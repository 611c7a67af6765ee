"""Values that must be in bounds before a program reads them: labels, and what becomes a place in a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgetrain.dataset.samples import Array, Part, place_in_source
from edgetrain.errors import DataError
from edgetrain.value_bounds import InputBounds, PartBounds, Region

Bounds = Mapping[str, InputBounds]  # by the name of an input


def first_outside(values: Array, bounds: InputBounds) -> tuple[int, ...] | None:
    """Where the first value is that is out of bounds; None where all are inside.

    `values` is a batch. Numbers that are not whole have no bounds but those of parts.
    """
    if isinstance(bounds, PartBounds):
        return _first_in_parts(values, bounds)
    lowest, highest = bounds
    if not values.size or values.dtype.kind not in "iu" or (values.min() >= lowest and values.max() <= highest):
        return None
    return tuple(int(i) for i in np.argwhere((values < lowest) | (values > highest))[0])


def outside(where: str, what: str, values: Array, found: tuple[int, ...], bounds: InputBounds) -> DataError:
    """The error for what `first_outside` found: `where` is the sample, `what` the input or the label."""
    lowest, highest = (_shown(limit) for limit in _limits_at(_element(values.shape, found), bounds))
    place = f" at {list(found[1:])}" if isinstance(bounds, PartBounds) and len(found) > 1 else ""
    return DataError(
        f"{where}: {what} holds {_shown(values[found])}{place}, outside {lowest} to {highest}",
        why="the model looks it up in a table, or among its outputs, which ends there",
        fix="correct that sample, or use the vocabulary and the classes that the model was made for",
    )


def within(values: Array, bounds: InputBounds) -> Array:
    """A batch with each value that is out of bounds at the nearest one that is not."""
    if not isinstance(bounds, PartBounds):
        return np.clip(values, *bounds)
    rows = _rows(values).copy()
    for region in bounds.regions:
        places = _places(region)
        rows[:, places] = np.clip(rows[:, places], region.lowest, region.highest)
    return rows.reshape(values.shape)


def check_rows(part: Part, rows: Array, what: str, array: Array, bounds: InputBounds) -> None:
    """Raises `DataError` naming the sample where the batch of these rows of the part is out of bounds."""
    found = first_outside(array, bounds)
    if found is None:
        return
    row = int(rows[found[0]])
    source_row = place_in_source(part, row)
    where = f"sample {row}" + (f" (row {source_row} of the data)" if source_row != row else "")
    raise outside(where, what, array, found, bounds)


def check_one(sample: Mapping[str, Array], bounds: Bounds) -> None:
    """Raises `DataError` where a sample, as the model's inputs take it, is out of bounds."""
    for name, limits in bounds.items():
        batch = sample[name][np.newaxis] if name in sample else np.zeros(0)
        found = first_outside(batch, limits) if name in sample else None
        if found is not None:
            raise outside("the sample", f"`{name}`", batch, found, limits)


def _limits_at(element: int, bounds: InputBounds) -> tuple[float, float]:
    if not isinstance(bounds, PartBounds):
        return bounds
    region = next(region for region in bounds.regions if region.covers(element))
    return region.lowest, region.highest


def _first_in_parts(values: Array, bounds: PartBounds) -> tuple[int, ...] | None:
    rows, found = _rows(values), []
    for region in bounds.regions:
        places = _places(region)
        part = rows[:, places]
        is_inside = (part >= region.lowest) & (part <= region.highest)  # NaN is not
        if not is_inside.all():
            row, column = np.argwhere(~is_inside)[0]
            found.append(row * rows.shape[1] + places[column])
    return tuple(int(i) for i in np.unravel_index(min(found), values.shape)) if found else None


def _rows(values: Array) -> Array:
    return values.reshape(values.shape[0] if values.ndim else 1, -1)


def _places(region: Region) -> Array:
    starts = region.start + region.step * np.arange(region.count)
    return np.asarray((starts[:, np.newaxis] + np.arange(region.length)).reshape(-1))


def _element(shape: tuple[int, ...], found: tuple[int, ...]) -> int:
    """The place in a flattened sample."""
    return int(np.ravel_multi_index(found[1:], shape[1:])) if len(shape) > 1 else 0


def _shown(number: Any) -> str:
    """A float with as many digits as tell it from its neighbours in 32 bits."""
    is_float = isinstance(number, (float, np.floating))
    return str(np.float32(number)).removesuffix(".0") if is_float else str(int(number))
