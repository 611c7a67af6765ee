"""The tiling of a sliding window: tiles for registers, bands of rows for the cache, jobs for threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgetrain_tuner.machine import Costs, Machine
from edgetrain_tuner.rules.contraction import bytes_read, extent_of
from edgetrain_tuner.rules.product.blocking import FLOAT_BYTES, is_parallel
from edgetrain_tuner.rules.product.tiles import even_bands
from edgetrain_tuner.rules.window.form import ChannelWindow, Coordinate
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_names, require_within

PARAMETERS = ("rows", "vectors", "tap_rows", "band_tiles")
_OF_TILES = PARAMETERS[:-1]


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
    planes: int  # copies for each task: one that is read, and for small planes another that is filled meanwhile
    jobs: int
    tasks: int

    @property
    def parameters(self) -> dict[str, Values]:
        """The parameters of the schedule; all other fields follow from them, see `tiling_of`."""
        return {**{name: (getattr(self.tile, name),) for name in _OF_TILES}, "band_tiles": (self.band_tiles,)}

    @property
    def bands(self) -> int:
        return -(-self.row_tiles // self.band_tiles)

    @property
    def width(self) -> int:
        """Columns of all tiles."""
        return self.column_tiles * self.tile.width


def choose_tiling(window: ChannelWindow, machine: Machine) -> WindowTiling | None:
    """None where no tile fits the registers."""
    # Of the window as many rows at a time as fit: the last of each size.
    candidates = {(tile.rows, tile.vectors): tile for tile in tiles(window, machine)}
    if not candidates:
        return None
    tile = min(candidates.values(), key=lambda tile: (_cost(window, tile, machine.costs), -tile.rows * tile.vectors))
    # As for panels: a plane takes a small share of what it is copied from.
    limits = machine.limits
    share = int(bytes_read(window.b) * limits.panel_share)
    most_bytes = min(limits.plane_bytes, max(limits.least_panel_bytes, share))
    row_tiles = -(-window.rows.position.extent // tile.rows)
    return _tiling_with(window, machine, tile, even_bands(row_tiles, most_band_tiles(window, tile, most_bytes)))


def tiling_of(window: ChannelWindow, machine: Machine, parameters: Parameters) -> WindowTiling:
    """The tiling with these parameters. Raises `ScheduleRefusedError` where they do not fit."""
    require_names(parameters, PARAMETERS)
    fitting = [t for t in tiles(window, machine) if all(parameters[n] == (getattr(t, n),) for n in _OF_TILES)]
    if not fitting:
        raise ScheduleRefusedError(f"a tile of {[parameters[n] for n in _OF_TILES]} does not fit the registers")
    most = most_band_tiles(window, fitting[0], machine.limits.most_plane_bytes)
    (band_tiles,) = require_within("band_tiles", parameters["band_tiles"], [most])
    return _tiling_with(window, machine, fitting[0], band_tiles)


def most_band_tiles(window: ChannelWindow, tile: WindowTile, most_bytes: int) -> int:
    """Tiles of rows whose band is no larger, but at least one."""
    row_tiles = -(-window.rows.position.extent // tile.rows)
    column_tiles = -(-window.columns.position.extent // tile.width)
    band_tiles = 1
    while band_tiles < row_tiles and _plane_bytes(window, tile, band_tiles + 1, column_tiles) <= most_bytes:
        band_tiles += 1
    return band_tiles


def _tiling_with(window: ChannelWindow, machine: Machine, tile: WindowTile, band_tiles: int) -> WindowTiling:
    row_tiles = -(-window.rows.position.extent // tile.rows)
    jobs = extent_of(window.channels)
    if window.slides_over_result:
        jobs *= extent_of(window.images) * -(-row_tiles // band_tiles)
    column_tiles = -(-window.columns.position.extent // tile.width)
    plane_bytes = _plane_bytes(window, tile, band_tiles, column_tiles)
    is_small = band_tiles == row_tiles and plane_bytes <= machine.limits.double_plane_bytes
    return WindowTiling(
        tile=tile,
        row_tiles=row_tiles,
        column_tiles=column_tiles,
        band_tiles=band_tiles,
        planes=2 if window.slides_over_result and is_small else 1,
        jobs=jobs,
        tasks=min(machine.cores, jobs) if is_parallel(window.contraction, machine) else 1,
    )


def plane_elements(rows: Coordinate, columns: Coordinate, positions: int, width: int) -> int:
    height = rows.stride * (positions - 1) + rows.span
    return height * columns.stride * (width + (columns.span - 1) // columns.stride)


def _plane_bytes(window: ChannelWindow, tile: WindowTile, band_tiles: int, column_tiles: int) -> int:
    positions, width = band_tiles * tile.rows, column_tiles * tile.width
    return FLOAT_BYTES * plane_elements(window.rows, window.columns, positions, width)


def tiles(window: ChannelWindow, machine: Machine) -> Iterator[WindowTile]:
    """Every tile that fits the registers and the cache of decoded instructions."""
    columns = window.columns.position.extent
    lanes = min(machine.lanes, max(machine.thresholds.vector_lanes, 1 << (columns - 1).bit_length()))
    registers, most_products = machine.vector_registers, machine.limits.window_products
    tap_rows, tap_columns = window.rows.tap.extent, window.columns.tap.extent
    most_sums = machine.costs.sums_in_flight
    phases = window.rows.phases * window.columns.phases
    for rows in range(1, min(window.rows.position.extent, most_sums) + 1):
        if not window.slides_over_result:
            # Registers for the sums, for an element of A in each row, and for one of B.
            group = min(tap_rows, (registers - 1 - rows) // tap_columns)
            if rows * window.taps <= most_products:
                for count in range(1, group + 1):
                    yield WindowTile(rows=rows, vectors=1, lanes=lanes, tap_rows=count)
            continue
        for vectors in range(1, min(-(-columns // lanes), most_sums) + 1):
            unrolled = rows * vectors * window.taps * phases
            if rows * vectors <= registers // 2 and (unrolled <= most_products or rows * vectors == 1):
                yield WindowTile(rows=rows, vectors=vectors, lanes=lanes, tap_rows=tap_rows)


def _cost(window: ChannelWindow, tile: WindowTile, costs: Costs) -> float:
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
    return waste * max(1.0, costs.sums_in_flight / sums) * (1.0 + costs.unaligned_load * loads)
