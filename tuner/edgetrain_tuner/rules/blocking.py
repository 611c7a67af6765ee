"""How a contraction is cut up: tiles for registers, panels of B and blocks of rows for caches, jobs for threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules.contraction import (
    Axis,
    Contraction,
    bytes_read,
    extent_of,
    is_contiguous,
    unguarded,
    uses,
)
from edgetrain_tuner.rules.sides import Side
from edgetrain_tuner.rules.tiles import Tile, boxes, choose_tile, even_bands, most_rows, parts, tile_cost
from edgetrain_tuner.rules.turning import padded_rows, turns_panel, turns_sums
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_names, require_within

MINIMUM_PARALLEL_MULTIPLY_ADDS = 1 << 18
PANEL_BYTES = 192 * 1024  # a part of the second-level cache that any core with vectors has
# Small kernels are there for small memories: a panel is at most this part of what the kernel reads.
PANEL_SHARE = 8
LEAST_PANEL_BYTES = 8 * 1024
MOST_SCRATCH_BYTES = 1024 * 1024  # for a task; what no choice may exceed, wherever it comes from
PARAMETERS = ("shape", "rows", "depth", "block")
# A panel no deeper than this keeps the lines of a column-wise A in the first-level cache until the next rows need them.
DEPTH_OF_COLUMNS = 128
FLOAT_BYTES = 4
# An element that is copied in the order of memory, by vectors, and one that is not, in vector multiply-adds.
COPY, SCATTERED = 0.25, 2.5
TURNED = 0.8  # one that is copied across by blocks that are turned in registers
# One of a run that is shorter than a vector, with a condition for each: the taps of a padded window. In longer runs a
# condition costs nothing, because loops are cut where it changes; unless that is elsewhere for every phase of a stride.
_IN_PIECES = 0.9
# A line of A that is read again down a column, where A is larger than the caches of a core, or for the first time,
# where it is larger than what cores share: no prefetching follows.
_FAR_BYTES, _FARTHEST_BYTES, _FAR_LINE, _LINE_BYTES = 4 << 20, 16 << 20, 8.0, 64
# So it is for a result that is larger than a core's cache, and stored across in more streams than prefetching follows.
_FAR_RESULT_BYTES, _MOST_STREAMS = 1 << 20, 16
# What the first-level cache keeps from tile to tile, and what it takes to have a vector of a panel and a line of a
# column from the second-level cache instead: it comes alongside of products, and holds them up where they are few.
_NEAR_BYTES, _NEXT_VECTOR, _NEXT_LINE = 48 * 1024, 3.5, 2.5
_TILE_START = 8.0  # what a tile costs before its first product


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking:
    """`jobs` of one panel and one block of rows each, shared out to `tasks`."""

    tile: Tile
    depth_shape: tuple[int, ...]  # the box of k that a panel holds
    block_shape: tuple[int, ...]  # the box of tiles that share a panel, along each axis of i
    i_parts: tuple[int, ...]  # tiles along each axis of i
    j_parts: tuple[int, ...]  # panels along each axis of j
    k_parts: tuple[int, ...]
    block_rows: tuple[int, ...]  # rows of a block along each axis of i
    staged: int  # elements of A that a block has copied for a part of k
    jobs: int
    tasks: int

    @property
    def parameters(self) -> dict[str, Values]:
        """What of it is a choice; the rest follows, see `blocking_of`."""
        return {
            "shape": self.tile.shape,
            "rows": self.tile.row_shape,
            "depth": self.depth_shape,
            "block": self.block_shape,
        }

    @property
    def depth(self) -> int:
        return math.prod(self.depth_shape)

    @property
    def parts(self) -> int:
        return math.prod(self.k_parts)

    @property
    def block_parts(self) -> tuple[int, ...]:
        """Blocks along each axis of i."""
        return parts(self.i_parts, self.block_shape)

    @property
    def kept_rows(self) -> int:
        """Rows whose sums are kept while k comes in parts."""
        return math.prod(self.block_shape) * self.tile.rows if self.parts > 1 else 0

    @property
    def scratch_bytes(self) -> int:
        """What the tasks need beside the kernel's tensors."""
        return FLOAT_BYTES * self.tasks * (self.tile.width * (self.depth + self.kept_rows) + self.staged)


def choose_blocking(side: Side, features: Features) -> Blocking:
    """The blocking that takes the least time by a model of products and copies, in the memory that a kernel may use."""
    contraction = side.contraction
    tile = choose_tile(
        extents_of(contraction.i), extents_of(contraction.j), features, lambda rows: _lines_of(side, rows)
    )
    room = panel_bytes(contraction)
    i_parts = parts(extents_of(contraction.i), tile.row_shape)
    options = [
        _cut(side, features, tile, depth_shape, block_shape)
        for depth_shape in _even_grid(extents_of(contraction.k), _most_depth(side, tile, room))
        for block_shape in _even_grid(i_parts, math.prod(i_parts))
    ]
    smallest = min(options, key=lambda option: option.scratch_bytes)
    fitting = [option for option in options if _fits(option, room)] or [smallest]
    return min(fitting, key=lambda option: (cost(side, option).total, option.scratch_bytes))


def _even_grid(extents: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Boxes on a grid that are about the same size, as many as without: threads wait for the largest."""
    even = (tuple(map(even_bands, extents, box)) for box in on_grid(extents, most))
    return list(dict.fromkeys(even))


def _fits(blocking: Blocking, room: int) -> bool:
    kept = FLOAT_BYTES * blocking.tile.width * blocking.kept_rows
    return kept <= room and FLOAT_BYTES * blocking.staged <= room


def _most_depth(side: Side, tile: Tile, room: int) -> int:
    most = max(1, room // FLOAT_BYTES // tile.width)
    return min(most, DEPTH_OF_COLUMNS) if _reads_columns(side) else most


def on_grid(extents: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Boxes of up to `most` elements, two for each doubling, the largest among them."""
    kept = {math.floor(2 * math.log2(math.prod(box))): box for box in boxes(extents, most)}
    return list(kept.values())


def blocking_of(side: Side, features: Features, parameters: Parameters) -> Blocking:
    """The blocking with these parameters. Raises `ScheduleRefusedError` where they do not fit."""
    require_names(parameters, PARAMETERS)
    contraction = side.contraction
    shape = require_within("shape", parameters["shape"], extents_of(contraction.j))
    depth_shape = require_within("depth", parameters["depth"], extents_of(contraction.k))
    _require_prefix("depth", depth_shape, extents_of(contraction.k))
    vectors = -(-math.prod(shape) // features.lanes)
    row_shape = require_within("rows", parameters["rows"], extents_of(contraction.i))
    require_within("rows in all", (math.prod(row_shape),), [most_rows(vectors, features)])
    tile = Tile(row_shape=row_shape, vectors=vectors, lanes=features.lanes, shape=shape)
    block_shape = require_within("block", parameters["block"], parts(extents_of(contraction.i), row_shape))
    blocking = _cut(side, features, tile, depth_shape, block_shape)
    if blocking.scratch_bytes > MOST_SCRATCH_BYTES * blocking.tasks:
        raise ScheduleRefusedError(
            f"{blocking.scratch_bytes} bytes of scratch for {blocking.tasks} tasks are over {MOST_SCRATCH_BYTES} each"
        )
    return blocking


def _require_prefix(name: str, shape: Values, extents: Sequence[int]) -> None:
    """Raises `ScheduleRefusedError` where a part of an axis follows a part of one before: steps would have gaps."""
    partial = [n for n, (size, extent) in enumerate(zip(shape, extents, strict=True)) if size < extent]
    if partial and any(size > 1 for size in shape[: partial[-1]]):
        raise ScheduleRefusedError(f"{name} is {list(shape)} of {list(extents)}: only the first axis may come in parts")


def _cut(
    side: Side, features: Features, tile: Tile, depth_shape: tuple[int, ...], block_shape: tuple[int, ...]
) -> Blocking:
    """All that follows from a tile, a panel's depth and a block."""
    contraction = side.contraction
    i_extents = extents_of(contraction.i)
    i_parts, j_parts = parts(i_extents, tile.row_shape), parts(extents_of(contraction.j), tile.shape)
    sizes = zip(i_extents, tile.row_shape, block_shape, strict=True)
    block_rows = tuple(min(extent, rows * tiles) for extent, rows, tiles in sizes)
    jobs = extent_of(contraction.s) * math.prod(j_parts) * math.prod(parts(i_parts, block_shape))
    return Blocking(
        tile=tile,
        depth_shape=depth_shape,
        block_shape=block_shape,
        i_parts=i_parts,
        j_parts=j_parts,
        k_parts=parts(extents_of(contraction.k), depth_shape),
        block_rows=block_rows,
        staged=side.reach.elements((*block_rows, *depth_shape)) if side.reach else 0,
        jobs=jobs,
        tasks=min(features.cores, jobs) if is_parallel(contraction, features) else 1,
    )


def is_parallel(contraction: Contraction, features: Features) -> bool:
    return features.cores > 1 and contraction.multiply_adds >= MINIMUM_PARALLEL_MULTIPLY_ADDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Where the time of a kernel goes, by the model: in vector multiply-adds of one task."""

    products: float  # were every lane of every register full
    waste: float  # lanes and registers that a tile leaves empty
    copies: float
    stores: float
    starts: float  # of tiles, and of sums that are taken up again
    fetches: float  # of what the first-level cache does not have

    @property
    def total(self) -> float:
        return self.products + self.waste + self.copies + self.stores + self.starts + self.fetches


def cost(side: Side, blocking: Blocking) -> Cost:
    contraction, tile = side.contraction, blocking.tile
    products = contraction.multiply_adds / tile.lanes
    lines = _lines_of(side, tile.row_shape)
    tile_time = tile_cost(extents_of(contraction.i), extents_of(contraction.j), tile, lines)
    waste = products * (tile_time - 1.0)
    held_up = products * tile_time * (_holding_up(blocking, lines) - 1.0)
    packed = blocking.jobs * tile.width * extent_of(contraction.k) * _packing(contraction, blocking)
    staged = blocking.jobs * blocking.parts * blocking.staged * COPY
    results = extent_of(contraction.s) * extent_of(contraction.i) * extent_of(contraction.j)
    stored = results * (_storing_across(contraction, tile) if side.is_transposed else COPY)
    tiles = extent_of(contraction.s) * math.prod(blocking.j_parts) * math.prod(blocking.i_parts) * blocking.parts
    resumed = tiles * (_TILE_START + (2 * tile.rows * tile.vectors if blocking.parts > 1 else 0))
    far_lines = _far_lines_of_columns(side, blocking) + _far_lines_of_results(side, tile)
    waiting = -(-blocking.jobs // blocking.tasks) / blocking.jobs  # the last task's share
    return Cost(
        products=products * waiting,
        waste=waste * waiting,
        copies=(packed + staged) * waiting,
        stores=stored * waiting,
        starts=resumed * waiting,
        fetches=(held_up + far_lines * _FAR_LINE) * waiting,
    )


def _holding_up(blocking: Blocking, lines: int) -> float:
    """How much longer the products of a tile take for what they wait for."""
    tile = blocking.tile
    near = blocking.depth * (FLOAT_BYTES * tile.width + _LINE_BYTES * lines)
    fetched = _NEXT_VECTOR * tile.vectors + _NEXT_LINE * lines
    return max(1.0, fetched / (tile.rows * tile.vectors)) if near > _NEAR_BYTES else 1.0


def _far_lines_of_columns(side: Side, blocking: Blocking) -> float:
    """Lines of A that are read down its columns, for each panel."""
    read = bytes_read(side.contraction.a)
    if not _reads_columns(side) or read <= _FAR_BYTES:
        return 0.0
    near_panels = 1 if read <= _FARTHEST_BYTES else 0
    return read / _LINE_BYTES * (math.prod(blocking.j_parts) - near_panels)


def _far_lines_of_results(side: Side, tile: Tile) -> float:
    """Lines of the result, and of what an epilogue reads for each of its elements, that are stored across."""
    contraction, epilogue = side.contraction, side.contraction.epilogue
    nbytes = FLOAT_BYTES * math.prod(int(extent) for extent in contraction.result.ty.shape)
    if not side.is_transposed or tile.used_width <= _MOST_STREAMS or nbytes <= _FAR_RESULT_BYTES:
        return 0.0
    tensors = 1 if epilogue is None else len(epilogue.stores) + len(epilogue.operands_at(epilogue.axes))
    return tensors * nbytes / _LINE_BYTES


def _reads_columns(side: Side) -> bool:
    """Whether A is read down its columns, and not copied before."""
    return side.reach is None and not is_contiguous(side.contraction.a, side.contraction.k[-1])


def _lines_of(side: Side, row_shape: Sequence[int]) -> int:
    """Lines of the cache that a step of k reads an element of, where the next step reads others."""
    if not _reads_columns(side):
        return 0
    is_run = is_contiguous(side.contraction.a, side.contraction.i[-1])
    return math.prod(row_shape[:-1] if is_run else row_shape)


def _storing_across(contraction: Contraction, tile: Tile) -> float:
    """An element of a result that lies along the rows of its tiles."""
    return TURNED * padded_rows(tile.rows) / tile.rows if turns_sums(contraction, tile) else SCATTERED


def _packing(contraction: Contraction, blocking: Blocking) -> float:
    """An element of B that is copied into a panel."""
    tile = blocking.tile
    if turns_panel(contraction, tile, blocking.depth_shape):
        return TURNED
    guard, element = unguarded(contraction.b)
    if not is_contiguous(element, contraction.j[-1]):
        return SCATTERED
    is_cut = guard is None or not any(uses(guard, axis.variable) for axis in contraction.s)
    is_long = guard is None or contraction.j[-1].extent >= tile.lanes
    return COPY if is_cut and is_long else _IN_PIECES


def panel_bytes(contraction: Contraction) -> int:
    """What a task's panel may take; as much again may sums that are kept, and what is copied of A."""
    read = bytes_read(contraction.a) + bytes_read(contraction.b)
    return min(PANEL_BYTES, max(LEAST_PANEL_BYTES, read // PANEL_SHARE))


def extents_of(axes: Sequence[Axis]) -> list[int]:
    return [axis.extent for axis in axes]
