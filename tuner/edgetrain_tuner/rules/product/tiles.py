"""Register tiles: the part of a contraction's result that stays in registers while products are added along k."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edgetrain_tuner.machine import Costs, Machine

RowShape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A box of rows, `row_shape` along i, times `vectors` registers, which hold the box `shape` along j."""

    row_shape: tuple[int, ...]
    vectors: int
    lanes: int
    shape: tuple[int, ...]

    @property
    def rows(self) -> int:
        return math.prod(self.row_shape)

    @property
    def width(self) -> int:
        """Elements of a row, with those that only fill the last register."""
        return self.vectors * self.lanes

    @property
    def used_width(self) -> int:
        return math.prod(self.shape)


def choose_tile(
    i_extents: Sequence[int],
    j_extents: Sequence[int],
    machine: Machine,
    lines_of: Callable[[RowShape], int] = lambda _rows: 0,
) -> Tile:
    """The tile that takes the least time by a model of registers, loads and waste.

    `lines_of` says how many lines of the cache a step of k reads a single element of. Among equals the largest, and
    of those the one whose rows lie closest together.
    """
    widest: dict[int, tuple[int, ...]] = {}  # the largest box for each number of registers
    for shape in boxes(j_extents, (machine.vector_registers - 1) // 2 * machine.lanes):
        widest[-(-math.prod(shape) // machine.lanes)] = shape
    candidates = (
        Tile(row_shape=row_shape, vectors=vectors, lanes=machine.lanes, shape=shape)
        for vectors, shape in widest.items()
        for row_shape in row_boxes(i_extents, most_rows(vectors, machine))
    )

    def merit(tile: Tile) -> tuple[float, int, RowShape]:
        cost = tile_cost(i_extents, j_extents, tile, machine.costs, lines_of(tile.row_shape))
        return -cost, tile.rows * tile.vectors, tile.row_shape[::-1]

    return max(candidates, key=merit)


def most_rows(vectors: int, machine: Machine) -> int:
    """Registers for the sums, for a row of the panel, and for one element of A."""
    return (machine.vector_registers - 1 - vectors) // vectors


def tile_cost(i_extents: Sequence[int], j_extents: Sequence[int], tile: Tile, costs: Costs, lines: int = 0) -> float:
    """Time for one useful multiply-add, in vector operations."""
    rows = math.prod(parts(i_extents, tile.row_shape)) * tile.rows
    computed = math.prod(parts(j_extents, tile.shape)) * tile.width * rows
    waste = computed / (math.prod(j_extents) * math.prod(i_extents))
    sums = tile.rows * tile.vectors
    loads = (tile.rows + tile.vectors + costs.loads_of_a_line * lines) / sums
    return waste * max(1.0, costs.sums_in_flight / sums) * (1.0 + costs.load * loads)


def parts(extents: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """Into how many boxes of that shape each axis is cut."""
    return tuple(-(-extent // size) for extent, size in zip(extents, shape, strict=True))


def even_bands(count: int, size: int) -> int:
    """The size of bands that are about the same, as many as with `size`."""
    return -(-count // -(-count // size))


def boxes(extents: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Boxes of up to `most` elements, growing: all of the last axes, a part of one, a single index of the first."""
    inner = 1
    for position in reversed(range(len(extents))):
        for part in range(1, extents[position] + 1):
            if part * inner > most:
                return
            yield (1,) * position + (part, *extents[position + 1 :])
        inner *= extents[position]


def row_boxes(extents: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Boxes of up to `most` rows, any part of every axis, none larger than its number of parts asks for."""
    if not extents:
        yield ()
        return
    for size in range(1, min(extents[-1], most) + 1):
        if size == -(-extents[-1] // -(-extents[-1] // size)):
            yield from ((*lead, size) for lead in row_boxes(extents[:-1], most // size))
