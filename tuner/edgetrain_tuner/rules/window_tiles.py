"""How a sliding window's positions are cut up: tiles for the registers, bands for the cache, jobs for threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules.blocking import (
    FLOAT_BYTES,
    LEAST_PANEL_BYTES,
    MINIMUM_PARALLEL_MULTIPLY_ADDS,
    PANEL_SHARE,
)
from edgetrain_tuner.rules.contraction import bytes_read, extent_of
from edgetrain_tuner.rules.windows import Coordinate, Windowed

PLANE_BYTES = 32 * 1024  # stays in the first-level cache, or nearly
MOST_UNROLLED = 448  # multiply-adds written out; more would not stay in the cache of decoded instructions
_SUMS_IN_FLIGHT = 8  # as in `blocking`
_LOAD_SHARE = 0.5  # of a multiply-add: most loads here are not aligned
_LEAST_LANES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTile:
    """`rows` of positions times `vectors` of `lanes` columns; `tap_rows` rows of the window at a time."""

    rows: int
    vectors: int
    lanes: int
    tap_rows: int

    @property
    def width(self) -> int:
        return self.vectors * self.lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowTiling:
    tile: WindowTile
    row_tiles: int
    column_tiles: int
    band_tiles: int  # tiles of rows in a band
    jobs: int
    tasks: int

    @property
    def bands(self) -> int:
        return -(-self.row_tiles // self.band_tiles)

    @property
    def width(self) -> int:
        """Columns of all tiles."""
        return self.column_tiles * self.tile.width


def choose_tiling(window: Windowed, features: Features) -> WindowTiling | None:
    """None where no tile fits the registers."""
    candidates = list(_tiles(window, features))
    if not candidates:
        return None
    tile = min(candidates, key=lambda tile: (_cost(window, tile), -tile.rows * tile.vectors))
    rows, columns = window.rows.position.extent, window.columns.position.extent
    row_tiles, column_tiles = -(-rows // tile.rows), -(-columns // tile.width)
    # As with panels: a task's plane is small beside what it is copied from.
    most_bytes = min(PLANE_BYTES, max(LEAST_PANEL_BYTES, bytes_read(window.b) // PANEL_SHARE))
    band_tiles = 1
    while band_tiles < row_tiles and _plane_bytes(window, tile, band_tiles + 1, column_tiles) <= most_bytes:
        band_tiles += 1
    band_tiles = -(-row_tiles // -(-row_tiles // band_tiles))  # bands of about the same size
    jobs = extent_of(window.channels)
    if window.slides_over_result:
        jobs *= extent_of(window.images) * -(-row_tiles // band_tiles)
    is_parallel = features.cores > 1 and window.contraction.multiply_adds >= MINIMUM_PARALLEL_MULTIPLY_ADDS
    return WindowTiling(
        tile=tile,
        row_tiles=row_tiles,
        column_tiles=column_tiles,
        band_tiles=band_tiles,
        jobs=jobs,
        tasks=min(features.cores, jobs) if is_parallel else 1,
    )


def plane_elements(rows: Coordinate, columns: Coordinate, positions: int, width: int) -> int:
    height = rows.stride * (positions - 1) + rows.span
    return height * columns.stride * (width + (columns.span - 1) // columns.stride)


def _plane_bytes(window: Windowed, tile: WindowTile, band_tiles: int, column_tiles: int) -> int:
    positions, width = band_tiles * tile.rows, column_tiles * tile.width
    return FLOAT_BYTES * plane_elements(window.rows, window.columns, positions, width)


def _tiles(window: Windowed, features: Features) -> Iterator[WindowTile]:
    columns = window.columns.position.extent
    lanes = min(features.lanes, max(_LEAST_LANES, 1 << (columns - 1).bit_length()))
    registers, tap_rows, tap_columns = (
        features.vector_registers,
        window.rows.tap.extent,
        window.columns.tap.extent,
    )
    phases = window.rows.phases * window.columns.phases
    for rows in range(1, min(window.rows.position.extent, _SUMS_IN_FLIGHT) + 1):
        if not window.slides_over_result:
            # Registers for the sums, for an element of A in each row, and for one of B.
            group = min(tap_rows, (registers - 1 - rows) // tap_columns)
            if group and rows * window.taps <= MOST_UNROLLED:
                yield WindowTile(rows=rows, vectors=1, lanes=lanes, tap_rows=group)
            continue
        for vectors in range(1, min(-(-columns // lanes), _SUMS_IN_FLIGHT) + 1):
            unrolled = rows * vectors * window.taps * phases
            if rows * vectors <= registers // 2 and (unrolled <= MOST_UNROLLED or rows * vectors == 1):
                yield WindowTile(rows=rows, vectors=vectors, lanes=lanes, tap_rows=tap_rows)


def _cost(window: Windowed, tile: WindowTile) -> float:
    """Time for one useful multiply-add, in vector operations."""
    rows, columns = window.rows.position.extent, window.columns.position.extent
    computed = -(-rows // tile.rows) * tile.rows * -(-columns // tile.width) * tile.width
    waste = computed / (rows * columns)
    tap_columns = window.columns.tap.extent
    reached = window.rows.stride * (tile.rows - 1) + abs(window.rows.step) * (tile.tap_rows - 1) + 1
    of_b = min(reached, tile.rows * tile.tap_rows) * tap_columns * tile.vectors
    taps = tile.tap_rows * tap_columns
    of_a = taps if window.slides_over_result else tile.rows
    sums = tile.rows * tile.vectors if window.slides_over_result else taps
    loads = (of_a + of_b) / (tile.rows * tile.vectors * taps)
    return waste * max(1.0, _SUMS_IN_FLIGHT / sums) * (1.0 + _LOAD_SHARE * loads)
