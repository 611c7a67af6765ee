"""Blockings of a contraction that are worth a trial, one parameter after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules.blocking import FLOAT_BYTES, MOST_SCRATCH_BYTES, boxes, most_rows, panel_bytes
from edgetrain_tuner.rules.contraction import Contraction, extent_of
from edgetrain_tuner.rules.rule import on_log_grid
from edgetrain_tuner.schedule import Parameters, Values

_DEEPER = 4  # times the panel that the rule allows itself: the memory is planned, but it should not grow much


def choices(contraction: Contraction, features: Features, name: str, before: Parameters) -> Sequence[Values]:
    """Values of the parameter, growing, after those before it: shape, rows, depth, block_tiles."""
    return _CHOICES[name](contraction, features, before)


def _shapes(contraction: Contraction, features: Features, _before: Parameters) -> list[Values]:
    """For each number of registers the widest box, and every box that leaves nothing over."""
    extents = [axis.extent for axis in contraction.j]
    widest: dict[int, Values] = {}
    even: set[Values] = set()
    for box in boxes(extents, (features.vector_registers - 1) // 2 * features.lanes):
        width = math.prod(box)
        widest[-(-width // features.lanes)] = box
        if width % features.lanes == 0 and all(e % b == 0 for e, b in zip(extents, box, strict=True)):
            even.add(box)
    return sorted({*widest.values(), *even}, key=lambda box: (math.prod(box), box))


def _rows(contraction: Contraction, features: Features, before: Parameters) -> list[Values]:
    most = most_rows(_vectors(features, before), features)
    return [(rows,) for rows in range(1, min(extent_of(contraction.i), most) + 1)]


def _depths(contraction: Contraction, features: Features, before: Parameters) -> list[Values]:
    """Boxes on a grid in the logarithm, as deep as scratch allows."""
    width = _vectors(features, before) * features.lanes
    extents = [axis.extent for axis in contraction.k]
    most_bytes = min(_DEEPER * panel_bytes(contraction), MOST_SCRATCH_BYTES // 2)
    most = max(1, min(math.prod(extents), most_bytes // FLOAT_BYTES // width))
    grid = set(on_log_grid(most, steps_a_doubling=1))
    found: dict[int, Values] = {}
    for box in boxes(extents, most):
        depth = math.prod(box)
        for size in grid:
            if depth <= size:
                found[size] = box
    return sorted(set(found.values()), key=lambda box: (math.prod(box), box))


def _block_tiles(contraction: Contraction, features: Features, before: Parameters) -> list[Values]:
    """How many tiles of rows share a panel; sums are kept for all of them while k comes in parts."""
    (rows,), width = before["rows"], _vectors(features, before) * features.lanes
    row_tiles = -(-extent_of(contraction.i) // rows)
    has_parts = math.prod(before["depth"]) < extent_of(contraction.k)
    left = MOST_SCRATCH_BYTES // FLOAT_BYTES // width - math.prod(before["depth"])
    most = min(row_tiles, max(1, left // rows)) if has_parts else row_tiles
    # Blocks of about the same size: those that cut the rows into so many parts.
    tiles = {-(-row_tiles // parts) for parts in on_log_grid(row_tiles)}
    return [(count,) for count in sorted({min(count, most) for count in tiles})]


def _vectors(features: Features, before: Parameters) -> int:
    return -(-math.prod(before["shape"]) // features.lanes)


_CHOICES: Mapping[str, Callable[[Contraction, Features, Parameters], list[Values]]] = {
    "shape": _shapes,
    "rows": _rows,
    "depth": _depths,
    "block_tiles": _block_tiles,
}
