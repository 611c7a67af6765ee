"""How a convolution by Winograd's algorithm is cut up: tiles for registers, panels of filters and blocks of the image.

A panel's filters are transformed and kept while the blocks pass by; a block's part of the image is transformed once for
each panel. Both are what memory goes to, so both are cut in parts of the channels where there is little of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules.blocking import COPY, FLOAT_BYTES, MOST_SCRATCH_BYTES, SCATTERED, is_parallel
from edgetrain_tuner.rules.contraction import bytes_read
from edgetrain_tuner.rules.rule import on_log_grid
from edgetrain_tuner.rules.tiles import Tile, even_bands, most_rows, tile_cost
from edgetrain_tuner.rules.window_tiles import plane_elements
from edgetrain_tuner.rules.winograd_form import OUTPUTS, TAPS, Convolved
from edgetrain_tuner.rules.winograd_transforms import OF_FILTER, OF_IMAGE, OF_RESULT, Transform
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_names, require_within

PARAMETERS = ("width", "panel", "block", "depth", "kept", "rows")
PLACES = OF_IMAGE.outputs**2  # numbers that a tile is turned into
_VECTORS_AT_A_TIME = 32  # of each tap, that are copied before they are transformed
SCRATCH_SHARE = 4  # a task's scratch is at most this part of what the kernel reads
_TILE_START = 8.0  # as in `blocking`
# In vector multiply-adds: an element of the image whose neighbour goes elsewhere, and a vector of filters that the
# block before has driven out of the first-level cache.
_SPLIT, _FETCH = 3 * COPY, 3.0
_WORTH_MEMORY = 1.07  # times the least time is given for the least scratch
_MOST_PANEL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradTiling:
    """`jobs` of one panel and one block each, shared out to `tasks`.

    A register tile is `rows` tiles of outputs by `width` filters; `panel` of them lie side by side.
    """

    lanes: int
    width: int
    panel: int
    rows: int
    images: int  # of a block
    tile_rows: int  # of a block: rows of tiles of outputs, each all across the image
    depth: int  # channels that are transformed at a time
    kept: int  # channels of the filters that are kept: all of them, or a part that is made again for each block
    copied_width: int  # filters whose weights are copied at a time
    tile_columns: int
    panels: int
    image_blocks: int
    row_blocks: int
    parts: int
    plane: int  # elements of the part of the image that is copied
    jobs: int
    tasks: int

    @property
    def parameters(self) -> dict[str, Values]:
        """What of it is a choice; the rest follows, see `tiling_of`."""
        return {
            "width": (self.width,),
            "panel": (self.panel,),
            "block": (self.images, self.tile_rows),
            "depth": (self.depth,),
            "kept": (self.kept,),
            "rows": (self.rows,),
        }

    @property
    def kinds(self) -> int:
        """Each task has its own part of the images, for every panel of filters, where all get as much."""
        return self.panels if self.image_blocks * self.row_blocks % self.tasks == 0 else 1

    @property
    def vectors(self) -> int:
        return -(-self.width // self.lanes)

    @property
    def filled_width(self) -> int:
        return self.vectors * self.lanes

    @property
    def copied_depth(self) -> int:
        """Channels whose weights are copied at a time."""
        return max(1, min(self.kept, _VECTORS_AT_A_TIME * self.lanes // self.copied_width))

    @property
    def tiles(self) -> int:
        """Tiles of outputs in a block."""
        return self.images * self.tile_rows * self.tile_columns

    @property
    def row_tiles(self) -> int:
        """Register tiles for a block."""
        return -(-self.tiles // self.rows)

    @property
    def column_lanes(self) -> int:
        """Tiles along a row of them that are transformed in one vector."""
        return min(self.lanes, 1 << (self.tile_columns - 1).bit_length())

    @property
    def column_vectors(self) -> int:
        return -(-self.tile_columns // self.column_lanes)

    @property
    def pitch(self) -> int:
        """Tiles from one channel to the next: the last vector of the last row reaches beyond what is used."""
        beyond = self.column_vectors * self.column_lanes - self.tile_columns
        return max(self.row_tiles * self.rows, self.tiles + beyond)

    @property
    def scratch_bytes(self) -> int:
        """What a task needs beside the kernel's tensors."""
        filters = PLACES * self.panel * self.kept * self.filled_width
        image = PLACES * self.depth * self.pitch
        products = PLACES * self.panel * self.row_tiles * self.rows * self.filled_width
        weights = self.copied_depth * TAPS**2 * self.copied_width
        settled = OUTPUTS**2 * self.tile_columns * self.lanes
        return FLOAT_BYTES * (filters + image + products + weights + settled + self.plane)


def tilings(form: Convolved, features: Features) -> Iterator[WinogradTiling]:
    """Those that a choice without a search is made from, of any size."""
    channels = form.channels.extent
    for width in widths(form, features):
        for panel in panels(form, width):
            for block in blocks(form):
                tiles = math.prod(block) * form.columns.tiles
                most = most_rows(-(-width // features.lanes), features)
                rows = -(-tiles // -(-tiles // most))
                for depth in depths(form):
                    for kept in sorted({depth, channels}):
                        values = (width,), (panel,), block, (depth,), (kept,), (rows,)
                        yield _of(form, features, dict(zip(PARAMETERS, values, strict=True)))


def widths(form: Convolved, features: Features) -> list[int]:
    """The widest register tile for each number of vectors."""
    most = (features.vector_registers - 1) // 2
    return sorted({min(vectors * features.lanes, form.filters.extent) for vectors in range(1, most + 1)})


def panels(form: Convolved, width: int) -> list[int]:
    most = min(_MOST_PANEL, -(-form.filters.extent // width))
    return sorted({even_bands(-(-form.filters.extent // width), count) for count in range(1, most + 1)})


def blocks(form: Convolved) -> list[tuple[int, int]]:
    """Some rows of an image, or several whole images."""
    rows, images = form.rows.tiles, form.image_count
    several = [(even_bands(images, count), rows) for count in on_log_grid(images)]
    return sorted({*((1, even_bands(rows, count)) for count in on_log_grid(rows)), *several})


def depths(form: Convolved) -> list[int]:
    channels = form.channels.extent
    return sorted({even_bands(channels, count) for count in on_log_grid(channels)})


def choose_tiling(form: Convolved, features: Features) -> WinogradTiling | None:
    """Of those that take about the least time by the model, the one with the least scratch; None if none fits."""
    return with_least_scratch(tilings(form, features), lambda tiling: cost(form, tiling), room(form))


class _HasScratch(Protocol):
    @property
    def scratch_bytes(self) -> int: ...


_Cut = TypeVar("_Cut", bound=_HasScratch)


def with_least_scratch(tilings: Iterable[_Cut], cost: Callable[[_Cut], float], most: int) -> _Cut | None:
    """Of those with at most so many bytes of scratch and about the least cost; None if none has."""
    costs = [(cost(tiling), tiling) for tiling in tilings if tiling.scratch_bytes <= most]
    if not costs:
        return None
    least = min(time for time, _ in costs)
    near = [(tiling.scratch_bytes, time, tiling) for time, tiling in costs if time <= least * _WORTH_MEMORY]
    return min(near, key=lambda option: option[:2])[2]


def room(form: Convolved) -> int:
    """Bytes that a task's scratch may take."""
    read = bytes_read(form.contraction.a) + bytes_read(form.contraction.b)
    return min(MOST_SCRATCH_BYTES, read // SCRATCH_SHARE)


def tiling_of(form: Convolved, features: Features, parameters: Parameters) -> WinogradTiling:
    """The tiling with these parameters. Raises `ScheduleRefusedError` where they do not fit."""
    require_names(parameters, PARAMETERS)
    filters, channels = form.filters.extent, form.channels.extent
    (width,) = require_within("width", parameters["width"], [filters])
    require_within("panel", parameters["panel"], [-(-filters // width)])
    most = most_rows(-(-width // features.lanes), features)
    require_within("rows", parameters["rows"], [most])
    require_within("block", parameters["block"], [form.image_count, form.rows.tiles])
    (depth,) = require_within("depth", parameters["depth"], [channels])
    if parameters["kept"] not in ((depth,), (channels,)):
        raise ScheduleRefusedError(f"kept is {list(parameters['kept'])}, not {depth} or {channels}")
    tiling = _of(form, features, parameters)
    if tiling.scratch_bytes > MOST_SCRATCH_BYTES:
        raise ScheduleRefusedError(f"{tiling.scratch_bytes} bytes of scratch for a task are over {MOST_SCRATCH_BYTES}")
    return tiling


def _of(form: Convolved, features: Features, parameters: Parameters) -> WinogradTiling:
    """All that follows from a choice."""
    (width,), (panel,), (images, tile_rows), (depth,), (kept,), (rows,) = (parameters[name] for name in PARAMETERS)
    panels = -(-form.filters.extent // (panel * width))
    image_blocks, row_blocks = -(-form.image_count // images), -(-form.rows.tiles // tile_rows)
    jobs = panels * image_blocks * row_blocks
    columns = form.columns.tiles
    lanes = min(features.lanes, 1 << (columns - 1).bit_length())
    return WinogradTiling(
        lanes=features.lanes,
        width=width,
        panel=panel,
        rows=rows,
        images=images,
        tile_rows=tile_rows,
        depth=depth,
        kept=kept,
        copied_width=features.lanes * (1 if form.is_filter_major else -(-width // features.lanes)),
        tile_columns=columns,
        panels=panels,
        image_blocks=image_blocks,
        row_blocks=row_blocks,
        parts=-(-form.channels.extent // depth),
        plane=plane_elements(form.rows.reach, form.columns.reach, tile_rows, -(-columns // lanes) * lanes),
        jobs=jobs,
        tasks=min(features.cores, jobs) if is_parallel(form.contraction, features) else 1,
    )


def cost(form: Convolved, tiling: WinogradTiling) -> float:
    """Time of all products, copies and transforms, in vector multiply-adds of one task, as in `blocking`."""
    t, channels, filters = tiling, form.channels.extent, form.filters.extent
    tile = Tile(row_shape=(t.rows,), vectors=t.vectors, lanes=t.lanes, shape=(t.width,))
    tile_count = t.jobs * PLACES * t.panel * t.row_tiles
    products = tile_count * t.rows * t.vectors * channels * _without_waste(tile)
    resumed = tile_count * t.parts * (_TILE_START + (4 if t.parts > 1 else 2) * t.rows * t.vectors)
    fetched = t.jobs * PLACES * t.panel * t.vectors * channels * _FETCH
    panels = t.tasks * t.panels if t.kinds > 1 else t.tasks + t.panels - 1  # with those that two tasks have parts of
    made = panels if t.kept == channels else t.jobs
    weights = made * t.panel * t.width * channels * TAPS**2 * SCATTERED
    weights += made * t.panel * t.vectors * channels * operations(OF_FILTER)
    rows = t.jobs * t.images * channels
    image = rows * t.plane * _SPLIT + rows * t.tile_rows * t.column_vectors * operations(OF_IMAGE)
    stored = form.image_count * form.rows.tiles * t.tile_columns * filters * OUTPUTS**2 * SCATTERED
    stored += t.jobs * t.tiles * t.panel * t.vectors * operations(OF_RESULT)
    waiting = -(-t.jobs // t.tasks) / t.jobs  # the last task's share
    return (products + resumed + fetched + weights + image + stored) * waiting


def _without_waste(tile: Tile) -> float:
    return tile_cost(tile.row_shape, tile.shape, tile) * tile.used_width / tile.width


def operations(transform: Transform) -> float:
    """Of a vector: loads, additions and stores, two in the time of a multiply-add."""
    return (transform.inputs**2 + transform.adds + transform.outputs**2) / 2


def choices(form: Convolved, features: Features, name: str, before: Parameters) -> Sequence[Values]:
    """Values of the parameter, growing, after those before it; each can be followed by some that fit."""

    def fits(value: Values) -> bool:
        chosen = {"panel": (1,), "block": (1, 1), "depth": (1,), "rows": (1,), **before, name: value}
        tiling = _of(form, features, {"kept": chosen["depth"], **chosen})
        return tiling.scratch_bytes <= MOST_SCRATCH_BYTES

    found = _CHOICES[name](form, features, before)
    return sorted(filter(fits, found), key=lambda value: (math.prod(value), value))


def _row_choices(_form: Convolved, features: Features, before: Parameters) -> list[Values]:
    most = most_rows(-(-before["width"][0] // features.lanes), features)
    return [(rows,) for rows in range(1, most + 1)]


_CHOICES: Mapping[str, Callable[[Convolved, Features, Parameters], list[Values]]] = {
    "width": lambda form, features, _: [(width,) for width in widths(form, features)],
    "panel": lambda form, _, before: [(panel,) for panel in panels(form, before["width"][0])],
    "block": lambda form, _, before: [*blocks(form)],
    "depth": lambda form, _, before: [(depth,) for depth in depths(form)],
    "kept": lambda form, _, before: [*{before["depth"], (form.channels.extent,)}],
    "rows": _row_choices,
}
