"""The tiling of a Winograd weight gradient: register tiles, squares of weights, blocks of the image.

A job sums the products of some filters with some channels over all tiles of all images, block after block. Image and
gradient of a block are transformed again for each job, so the widest square that fits into scratch is the fastest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgetrain_tuner.machine import Costs, Machine
from edgetrain_tuner.rules.contraction import bytes_read
from edgetrain_tuner.rules.product.blocking import FLOAT_BYTES, is_parallel
from edgetrain_tuner.rules.product.tiles import Tile, choose_tile, even_bands, most_rows, tile_cost
from edgetrain_tuner.rules.winograd.convolution_tiling import (
    PLACES,
    blocks,
    require_room,
    transform_cost,
    with_least_scratch,
)
from edgetrain_tuner.rules.winograd.form import OUTPUTS, TAPS, WinogradForm
from edgetrain_tuner.rules.winograd.transforms import OF_GRADIENT, OF_IMAGE, OF_TAPS
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_names, require_within

PARAMETERS = ("width", "rows", "panel", "side", "block")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTiling:
    """`jobs` of one square of weights each, distributed to `tasks`.

    A register tile is `rows` filters by `width` channels; `side` by `panel` of them make a square.
    """

    lanes: int
    width: int
    rows: int
    panel: int
    side: int
    images: int  # of a block
    tile_rows: int  # of a block, each as wide as the image
    tile_columns: int
    panels: int
    sides: int
    image_blocks: int
    row_blocks: int
    jobs: int
    tasks: int

    @property
    def parameters(self) -> dict[str, Values]:
        """The parameters of the schedule; all other fields follow from them, see `tiling_of`."""
        return {
            "width": (self.width,),
            "rows": (self.rows,),
            "panel": (self.panel,),
            "side": (self.side,),
            "block": (self.images, self.tile_rows),
        }

    @property
    def vectors(self) -> int:
        return -(-self.width // self.lanes)

    @property
    def channels(self) -> int:
        """Of a square."""
        return self.panel * self.width

    @property
    def filters(self) -> int:
        """Of a square."""
        return self.side * self.rows

    @property
    def channel_vectors(self) -> int:
        return -(-self.channels // self.lanes)

    @property
    def filter_vectors(self) -> int:
        return -(-self.filters // self.lanes)

    @property
    def image_tiles(self) -> int:
        """Tiles of an image in a block."""
        return self.tile_rows * self.tile_columns

    @property
    def tiles(self) -> int:
        """Tiles of a block."""
        return self.images * self.image_tiles

    @property
    def blocks(self) -> int:
        return self.image_blocks * self.row_blocks

    @property
    def image_shape(self) -> tuple[int, int]:
        """Rows and columns that the tiles of a block reach of an image."""
        return OUTPUTS * self.tile_rows + TAPS - 1, OUTPUTS * self.tile_columns + TAPS - 1

    @property
    def gradient_shape(self) -> tuple[int, int]:
        return OUTPUTS * self.tile_rows, OUTPUTS * self.tile_columns

    @property
    def scratch_bytes(self) -> int:
        """Scratch of one task."""
        transformed = PLACES * self.tiles * (self.channel_vectors + self.filter_vectors) * self.lanes
        sums = PLACES * self.filters * self.channel_vectors * self.lanes
        copied = (math.prod(self.image_shape) + math.prod(self.gradient_shape)) * self.lanes
        return FLOAT_BYTES * (transformed + sums + copied + 2 * TAPS**2 * self.lanes)


def tilings(form: WinogradForm, machine: Machine) -> Iterator[WeightTiling]:
    """Those that a choice without a search is made from, of any size.

    All have the best tile for registers, or one of fewer rows which leaves none of them empty.
    """
    filters = form.filters.extent
    tile = choose_tile((filters,), (form.channels.extent,), machine)
    filled = max(rows for rows in range(1, tile.rows + 1) if filters % rows == 0)
    for rows in sorted({filled, tile.rows}):
        for panel in shares(-(-form.channels.extent // tile.width), machine):
            for side in shares(-(-filters // rows), machine):
                for block in blocks(form):
                    values = (tile.width,), (rows,), (panel,), (side,), block
                    yield _tiling(form, machine, dict(zip(PARAMETERS, values, strict=True)))


def widths(form: WinogradForm, machine: Machine) -> list[int]:
    """Whole vectors, so that none of them lies in two register tiles."""
    most = min((machine.vector_registers - 1) // 2, -(-form.channels.extent // machine.lanes))
    return [vectors * machine.lanes for vectors in range(1, most + 1)]


def row_counts(form: WinogradForm, machine: Machine, width: int) -> list[int]:
    """The most for each number of register tiles, if they fill half of the registers at least."""
    most = min(most_rows(width // machine.lanes, machine), form.filters.extent)
    return sorted({even_bands(form.filters.extent, rows) for rows in range(-(-most // 2), most + 1)})


def shares(count: int, machine: Machine) -> list[int]:
    return sorted({even_bands(count, size) for size in range(1, min(machine.limits.winograd_square_tiles, count) + 1)})


def choose_tiling(form: WinogradForm, machine: Machine) -> WeightTiling | None:
    """Of those that take about the least time by the model, the one with the least scratch; None if none fits."""
    options = tilings(form, machine)
    return with_least_scratch(options, lambda tiling: cost(form, tiling, machine.costs), room(form, machine), machine)


def room(form: WinogradForm, machine: Machine) -> int:
    """Bytes that a task's scratch may take: a part of what the kernel reads and writes."""
    read = bytes_read(form.contraction.a) + bytes_read(form.contraction.b)
    written = FLOAT_BYTES * form.filters.extent * form.channels.extent * TAPS**2
    return min(machine.limits.task_scratch_bytes, int((read + written) * machine.limits.winograd_scratch_share))


def tiling_of(form: WinogradForm, machine: Machine, parameters: Parameters) -> WeightTiling:
    """The tiling with these parameters. Raises `ScheduleRefusedError` where they do not fit."""
    require_names(parameters, PARAMETERS)
    lanes = machine.lanes
    (width,) = require_within("width", parameters["width"], [-(-form.channels.extent // lanes) * lanes])
    if width % lanes:
        raise ScheduleRefusedError(f"width is {width}, not a multiple of {lanes}")
    most = most_rows(width // lanes, machine)
    (rows,) = require_within("rows", parameters["rows"], [min(most, form.filters.extent)])
    require_within("panel", parameters["panel"], [-(-form.channels.extent // width)])
    require_within("side", parameters["side"], [-(-form.filters.extent // rows)])
    require_within("block", parameters["block"], [form.image_count, form.rows.tiles])
    tiling = _tiling(form, machine, parameters)
    require_room(tiling.scratch_bytes, machine)
    return tiling


def _tiling(form: WinogradForm, machine: Machine, parameters: Parameters) -> WeightTiling:
    """The tiling with these parameters, whether it fits or not."""
    (width,), (rows,), (panel,), (side,), (images, tile_rows) = (parameters[name] for name in PARAMETERS)
    panels, sides = -(-form.channels.extent // (panel * width)), -(-form.filters.extent // (side * rows))
    return WeightTiling(
        lanes=machine.lanes,
        width=width,
        rows=rows,
        panel=panel,
        side=side,
        images=images,
        tile_rows=tile_rows,
        tile_columns=form.columns.tiles,
        panels=panels,
        sides=sides,
        image_blocks=-(-form.image_count // images),
        row_blocks=-(-form.rows.tiles // tile_rows),
        jobs=panels * sides,
        tasks=min(machine.cores, panels * sides) if is_parallel(form.contraction, machine) else 1,
    )


def cost(form: WinogradForm, tiling: WeightTiling, costs: Costs) -> float:
    """Time of all products, copies and transforms, in vector multiply-adds of one task, as in `blocking`."""
    t = tiling
    tile = Tile(row_shape=(t.rows,), vectors=t.vectors, lanes=t.lanes, shape=(t.width,))
    tile_count = t.jobs * PLACES * t.panel * t.side
    tiles = form.image_count * t.row_blocks * t.image_tiles
    products = tile_count * t.rows * t.vectors * tiles * tile_cost((t.rows,), (t.width,), tile, costs)
    resumed = tile_count * t.blocks * (costs.tile_start + 4 * t.rows * t.vectors)
    planes = t.jobs * form.image_count * t.row_blocks
    copied = math.prod(t.image_shape) * t.channel_vectors + math.prod(t.gradient_shape) * t.filter_vectors
    copies = planes * copied * t.lanes * costs.scattered
    image, gradient = transform_cost(OF_IMAGE, costs), transform_cost(OF_GRADIENT, costs)
    transformed = t.channel_vectors * image + t.filter_vectors * gradient
    transforms = t.jobs * tiles * transformed
    weights = form.filters.extent * form.channels.extent * TAPS**2
    stored = weights * costs.weight_store + t.jobs * t.filters * t.channel_vectors * transform_cost(OF_TAPS, costs)
    waiting = -(-t.jobs // t.tasks) / t.jobs  # the last task's share
    return (products + resumed + copies + transforms + stored) * waiting


def choices(form: WinogradForm, machine: Machine, name: str, before: Parameters) -> Sequence[Values]:
    """Values of the parameter, growing, after those before it; each can be followed by some that fit."""

    def fits(value: Values) -> bool:
        chosen = {"rows": (1,), "panel": (1,), "side": (1,), "block": (1, 1), **before, name: value}
        return _tiling(form, machine, chosen).scratch_bytes <= machine.limits.task_scratch_bytes

    found = _CHOICES[name](form, machine, before)
    return sorted(filter(fits, found), key=lambda value: (math.prod(value), value))


_CHOICES: Mapping[str, Callable[[WinogradForm, Machine, Parameters], list[Values]]] = {
    "width": lambda form, machine, _: [(width,) for width in widths(form, machine)],
    "rows": lambda form, machine, before: [(rows,) for rows in row_counts(form, machine, before["width"][0])],
    "panel": lambda form, machine, before: [
        (n,) for n in shares(-(-form.channels.extent // before["width"][0]), machine)
    ],
    "side": lambda form, machine, before: [(n,) for n in shares(-(-form.filters.extent // before["rows"][0]), machine)],
    "block": lambda form, _, before: [*blocks(form)],
}
