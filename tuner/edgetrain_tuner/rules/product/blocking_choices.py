"""Which values of a blocking's parameters a search may try, one parameter after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import extent_of
from edgetrain_tuner.rules.product.blocking import FLOAT_BYTES, extents_of, on_grid, panel_bytes
from edgetrain_tuner.rules.product.tiles import boxes, most_rows, parts, row_boxes
from edgetrain_tuner.rules.product.vector_side import VectorSide
from edgetrain_tuner.schedule import Parameters, Values


def choices(side: VectorSide, machine: Machine, name: str, before: Parameters) -> Sequence[Values]:
    """Values of the parameter, growing, after those before it: shape, rows, depth, block."""
    return _CHOICES[name](side, machine, before)


def _shapes(side: VectorSide, machine: Machine, _before: Parameters) -> list[Values]:
    """For each number of registers the widest box, and every box that leaves nothing over."""
    extents = extents_of(side.contraction.j)
    widest: dict[int, Values] = {}
    even: set[Values] = set()
    for box in boxes(extents, (machine.vector_registers - 1) // 2 * machine.lanes):
        width = math.prod(box)
        widest[-(-width // machine.lanes)] = box
        if width % machine.lanes == 0 and all(e % b == 0 for e, b in zip(extents, box, strict=True)):
            even.add(box)
    return sorted({*widest.values(), *even}, key=_size)


def _rows(side: VectorSide, machine: Machine, before: Parameters) -> list[Values]:
    most = most_rows(_width(machine, before) // machine.lanes, machine)
    return sorted(row_boxes(extents_of(side.contraction.i), most), key=_size)


def _depths(side: VectorSide, machine: Machine, before: Parameters) -> list[Values]:
    """Boxes on a grid in the logarithm, as deep as scratch allows: for the panel, and for what a tile has copied."""
    limits = machine.limits
    most_bytes = min(limits.panel_growth * panel_bytes(side.contraction, machine), limits.task_scratch_bytes // 2)
    most = max(1, most_bytes // FLOAT_BYTES // _width(machine, before))
    found = on_grid(extents_of(side.contraction.k), most)
    smallest = found[:1]
    return sorted(
        [box for box in found if _scratch(side, machine, before["rows"], box, before) >= 0] or smallest, key=_size
    )


def _blocks(side: VectorSide, machine: Machine, before: Parameters) -> list[Values]:
    """How many tiles of rows share a panel, as far as there is room for their sums and for what they read."""
    rows, depth = before["rows"], before["depth"]
    tiles = parts(extents_of(side.contraction.i), rows)
    found: list[Values] = []
    for block in on_grid(tiles, math.prod(tiles)):
        sizes = zip(extents_of(side.contraction.i), rows, block, strict=True)
        block_rows = tuple(min(extent, size * count) for extent, size, count in sizes)
        if not found or _scratch(side, machine, block_rows, depth, before) >= 0:
            found.append(block)
    return sorted(found, key=_size)


def _scratch(side: VectorSide, machine: Machine, rows: Values, depth: Values, before: Parameters) -> int:
    """Elements of a task's scratch that are left over with a block of these rows and a panel of this depth."""
    has_parts = math.prod(depth) < extent_of(side.contraction.k)
    row_size = [-(-size // tile) * tile for size, tile in zip(rows, before["rows"], strict=True)]
    kept = math.prod(row_size) if has_parts else 0
    staged = side.reach.elements((*rows, *depth)) if side.reach else 0
    panel = _width(machine, before) * (math.prod(depth) + kept)
    return machine.limits.task_scratch_bytes // FLOAT_BYTES - panel - staged


def _width(machine: Machine, before: Parameters) -> int:
    return -(-math.prod(before["shape"]) // machine.lanes) * machine.lanes


def _size(box: Values) -> tuple[int, Values]:
    return math.prod(box), box[::-1]


_CHOICES: Mapping[str, Callable[[VectorSide, Machine, Parameters], list[Values]]] = {
    "shape": _shapes,
    "rows": _rows,
    "depth": _depths,
    "block": _blocks,
}
