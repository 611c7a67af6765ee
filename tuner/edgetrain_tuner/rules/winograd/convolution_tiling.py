"""The tiling of a Winograd convolution: register tiles, panels of filters, blocks of the image.

The transformed filters of a panel are kept while blocks of the image pass by. A block is transformed once for each
panel. Both take scratch, so both hold only a part of the channels where scratch is short.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from edgetrain_tuner.machine import Costs, Machine
from edgetrain_tuner.rules.contraction import bytes_read
from edgetrain_tuner.rules.product.blocking import FLOAT_BYTES, is_parallel
from edgetrain_tuner.rules.product.tiles import Tile, even_bands, most_rows, tile_cost
from edgetrain_tuner.rules.rule import on_log_grid
from edgetrain_tuner.rules.window.tiling import plane_elements
from edgetrain_tuner.rules.winograd.form import OUTPUTS, TAPS, WinogradForm
from edgetrain_tuner.rules.winograd.transforms import OF_FILTER, OF_IMAGE, OF_RESULT, Transform
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_names, require_within

PARAMETERS = ("width", "panel", "block", "depth", "kept", "rows")
PLACES = OF_IMAGE.outputs**2  # numbers that a tile is transformed into


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradTiling:
    """`jobs` of one panel and one block each, distributed to `tasks`.

    A register tile is `rows` tiles of outputs by `width` filters; `panel` of them lie side by side.
    """

    lanes: int
    width: int
    panel: int
    rows: int
    images: int  # of a block
    tile_rows: int  # of a block: rows of tiles of outputs, each as wide as the image
    depth: int  # channels that are transformed at a time
    kept: int  # channels of the filters that are kept: all of them, or a part that is made again for each block
    copied_width: int  # filters whose weights are copied at a time
    copied_depth: int  # channels whose weights are copied at a time
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
        """The parameters of the schedule; all other fields follow from them, see `tiling_of`."""
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
        """As many as there are panels where every task can have its own blocks of the image for all of them; else 1."""
        return self.panels if self.image_blocks * self.row_blocks % self.tasks == 0 else 1

    @property
    def vectors(self) -> int:
        return -(-self.width // self.lanes)

    @property
    def filled_width(self) -> int:
        return self.vectors * self.lanes

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
        """Tiles along a row that are transformed in one vector."""
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
        """Scratch of one task."""
        filters = PLACES * self.panel * self.kept * self.filled_width
        image = PLACES * self.depth * self.pitch
        products = PLACES * self.panel * self.row_tiles * self.rows * self.filled_width
        weights = self.copied_depth * TAPS**2 * self.copied_width
        outputs = OUTPUTS**2 * self.tile_columns * self.lanes
        return FLOAT_BYTES * (filters + image + products + weights + outputs + self.plane)


def tilings(form: WinogradForm, machine: Machine) -> Iterator[WinogradTiling]:
    """Those that a choice without a search is made from, of any size."""
    channels = form.channels.extent
    for width in widths(form, machine):
        for panel in panels(form, machine, width):
            for block in blocks(form):
                tiles = math.prod(block) * form.columns.tiles
                most = most_rows(-(-width // machine.lanes), machine)
                rows = -(-tiles // -(-tiles // most))
                for depth in depths(form):
                    for kept in sorted({depth, channels}):
                        values = (width,), (panel,), block, (depth,), (kept,), (rows,)
                        yield _tiling(form, machine, dict(zip(PARAMETERS, values, strict=True)))


def widths(form: WinogradForm, machine: Machine) -> list[int]:
    """The widest register tile for each number of vectors."""
    most = (machine.vector_registers - 1) // 2
    return sorted({min(vectors * machine.lanes, form.filters.extent) for vectors in range(1, most + 1)})


def panels(form: WinogradForm, machine: Machine, width: int) -> list[int]:
    most = min(machine.limits.winograd_panel_tiles, -(-form.filters.extent // width))
    return sorted({even_bands(-(-form.filters.extent // width), count) for count in range(1, most + 1)})


def blocks(form: WinogradForm) -> list[tuple[int, int]]:
    """Some rows of an image, or several whole images."""
    rows, images = form.rows.tiles, form.image_count
    several = [(even_bands(images, count), rows) for count in on_log_grid(images)]
    return sorted({*((1, even_bands(rows, count)) for count in on_log_grid(rows)), *several})


def depths(form: WinogradForm) -> list[int]:
    channels = form.channels.extent
    return sorted({even_bands(channels, count) for count in on_log_grid(channels)})


def choose_tiling(form: WinogradForm, machine: Machine) -> WinogradTiling | None:
    """Of those that take about the least time by the model, the one with the least scratch; None if none fits."""
    options = tilings(form, machine)
    return with_least_scratch(options, lambda tiling: cost(form, tiling, machine.costs), room(form, machine), machine)


class _HasScratch(Protocol):
    @property
    def scratch_bytes(self) -> int: ...


_Cut = TypeVar("_Cut", bound=_HasScratch)


def with_least_scratch(
    tilings: Iterable[_Cut], cost: Callable[[_Cut], float], most: int, machine: Machine
) -> _Cut | None:
    """Of those with at most so many bytes of scratch and about the least cost; None if none has."""
    costs = [(cost(tiling), tiling) for tiling in tilings if tiling.scratch_bytes <= most]
    if not costs:
        return None
    least = min(time for time, _ in costs)
    given = least * machine.thresholds.time_for_scratch
    near = [(tiling.scratch_bytes, time, tiling) for time, tiling in costs if time <= given]
    return min(near, key=lambda option: option[:2])[2]


def room(form: WinogradForm, machine: Machine) -> int:
    """Bytes that a task's scratch may take."""
    read = bytes_read(form.contraction.a) + bytes_read(form.contraction.b)
    return min(machine.limits.task_scratch_bytes, int(read * machine.limits.winograd_scratch_share))


def tiling_of(form: WinogradForm, machine: Machine, parameters: Parameters) -> WinogradTiling:
    """The tiling with these parameters. Raises `ScheduleRefusedError` where they do not fit."""
    require_names(parameters, PARAMETERS)
    filters, channels = form.filters.extent, form.channels.extent
    (width,) = require_within("width", parameters["width"], [filters])
    require_within("panel", parameters["panel"], [-(-filters // width)])
    most = most_rows(-(-width // machine.lanes), machine)
    require_within("rows", parameters["rows"], [most])
    require_within("block", parameters["block"], [form.image_count, form.rows.tiles])
    (depth,) = require_within("depth", parameters["depth"], [channels])
    if parameters["kept"] not in ((depth,), (channels,)):
        raise ScheduleRefusedError(f"kept is {list(parameters['kept'])}, not {depth} or {channels}")
    tiling = _tiling(form, machine, parameters)
    require_room(tiling.scratch_bytes, machine)
    return tiling


def require_room(scratch_bytes: int, machine: Machine) -> None:
    """Raises `ScheduleRefusedError` for more scratch than a task may have."""
    most = machine.limits.task_scratch_bytes
    if scratch_bytes > most:
        raise ScheduleRefusedError(f"{scratch_bytes} bytes of scratch for a task are over {most}")


def _tiling(form: WinogradForm, machine: Machine, parameters: Parameters) -> WinogradTiling:
    """The tiling with these parameters, whether it fits or not."""
    (width,), (panel,), (images, tile_rows), (depth,), (kept,), (rows,) = (parameters[name] for name in PARAMETERS)
    panels = -(-form.filters.extent // (panel * width))
    image_blocks, row_blocks = -(-form.image_count // images), -(-form.rows.tiles // tile_rows)
    jobs = panels * image_blocks * row_blocks
    columns = form.columns.tiles
    lanes = min(machine.lanes, 1 << (columns - 1).bit_length())
    copied_width = machine.lanes * (1 if form.is_filter_major else -(-width // machine.lanes))
    return WinogradTiling(
        lanes=machine.lanes,
        width=width,
        panel=panel,
        rows=rows,
        images=images,
        tile_rows=tile_rows,
        depth=depth,
        kept=kept,
        copied_width=copied_width,
        copied_depth=max(1, min(kept, machine.caches.weight_vectors_copied * machine.lanes // copied_width)),
        tile_columns=columns,
        panels=panels,
        image_blocks=image_blocks,
        row_blocks=row_blocks,
        parts=-(-form.channels.extent // depth),
        plane=plane_elements(form.rows.reach, form.columns.reach, tile_rows, -(-columns // lanes) * lanes),
        jobs=jobs,
        tasks=min(machine.cores, jobs) if is_parallel(form.contraction, machine) else 1,
    )


def cost(form: WinogradForm, tiling: WinogradTiling, costs: Costs) -> float:
    """Time of all products, copies and transforms, in vector multiply-adds of one task, as in `blocking`."""
    t, channels, filters = tiling, form.channels.extent, form.filters.extent
    tile = Tile(row_shape=(t.rows,), vectors=t.vectors, lanes=t.lanes, shape=(t.width,))
    tile_count = t.jobs * PLACES * t.panel * t.row_tiles
    products = tile_count * t.rows * t.vectors * channels * _without_waste(tile, costs)
    resumed = tile_count * t.parts * (costs.tile_start + (4 if t.parts > 1 else 2) * t.rows * t.vectors)
    fetches = t.jobs * PLACES * t.panel * t.vectors * channels * costs.filter_fetch
    panels = t.tasks * t.panels if t.kinds > 1 else t.tasks + t.panels - 1  # with those that two tasks have parts of
    made = panels if t.kept == channels else t.jobs
    weights = made * t.panel * t.width * channels * TAPS**2 * costs.scattered
    weights += made * t.panel * t.vectors * channels * transform_cost(OF_FILTER, costs)
    rows = t.jobs * t.images * channels
    image = rows * t.plane * costs.split_copy + rows * t.tile_rows * t.column_vectors * transform_cost(OF_IMAGE, costs)
    stored = form.image_count * form.rows.tiles * t.tile_columns * filters * OUTPUTS**2 * costs.scattered
    stored += t.jobs * t.tiles * t.panel * t.vectors * transform_cost(OF_RESULT, costs)
    waiting = -(-t.jobs // t.tasks) / t.jobs  # the last task's share
    return (products + resumed + fetches + weights + image + stored) * waiting


def _without_waste(tile: Tile, costs: Costs) -> float:
    return tile_cost(tile.row_shape, tile.shape, tile, costs) * tile.used_width / tile.width


def transform_cost(transform: Transform, costs: Costs) -> float:
    """Time of a vector's loads, additions and stores, in multiply-adds."""
    return (transform.inputs**2 + transform.adds + transform.outputs**2) / costs.transform_operations


def choices(form: WinogradForm, machine: Machine, name: str, before: Parameters) -> Sequence[Values]:
    """Values of the parameter, growing, after those before it; each can be followed by some that fit."""

    def fits(value: Values) -> bool:
        chosen = {"panel": (1,), "block": (1, 1), "depth": (1,), "rows": (1,), **before, name: value}
        tiling = _tiling(form, machine, {"kept": chosen["depth"], **chosen})
        return tiling.scratch_bytes <= machine.limits.task_scratch_bytes

    found = _CHOICES[name](form, machine, before)
    return sorted(filter(fits, found), key=lambda value: (math.prod(value), value))


def _row_choices(_form: WinogradForm, machine: Machine, before: Parameters) -> list[Values]:
    most = most_rows(-(-before["width"][0] // machine.lanes), machine)
    return [(rows,) for rows in range(1, most + 1)]


_CHOICES: Mapping[str, Callable[[WinogradForm, Machine, Parameters], list[Values]]] = {
    "width": lambda form, machine, _: [(width,) for width in widths(form, machine)],
    "panel": lambda form, machine, before: [(panel,) for panel in panels(form, machine, before["width"][0])],
    "block": lambda form, _, before: [*blocks(form)],
    "depth": lambda form, _, before: [(depth,) for depth in depths(form)],
    "kept": lambda form, _, before: [*{before["depth"], (form.channels.extent,)}],
    "rows": _row_choices,
}
