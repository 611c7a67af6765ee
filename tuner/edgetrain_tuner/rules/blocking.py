"""How a contraction is cut up: tiles of the result for the registers, panels of B for the cache, jobs for threads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules.contraction import Contraction, bytes_read, extent_of, is_contiguous
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_names, require_within

MINIMUM_PARALLEL_MULTIPLY_ADDS = 1 << 18
PANEL_BYTES = 192 * 1024  # a part of the second-level cache that any core with vectors has
# Small kernels are there for small memories: a task's panel is at most this part of what it is copied from.
PANEL_SHARE = 8
LEAST_PANEL_BYTES = 8 * 1024
MOST_ROWS_KEPT = 512  # of the result, while k comes in parts
MOST_SCRATCH_BYTES = 1024 * 1024  # for a task; what no choice may exceed, wherever it comes from
PARAMETERS = ("shape", "rows", "depth", "block_tiles")
# A panel no deeper than this keeps the lines of a column-wise A in the first-level cache until the next rows need them.
DEPTH_OF_COLUMNS = 128
FLOAT_BYTES = 4
# Independent sums that hide the latency of a multiply-add: 4 cycles on 2 units.
_SUMS_IN_FLIGHT = 8
# A load costs about this share of a multiply-add, beside those that it runs alongside of.
_LOAD_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """`rows` of the result times `vectors` registers; along j it covers the box `shape`, an extent for each axis."""

    rows: int
    vectors: int
    lanes: int
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        """Elements of a row, with those that only fill the last register."""
        return self.vectors * self.lanes

    @property
    def used_width(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking:
    """`jobs` of one panel and one block of rows each, shared out to `tasks`."""

    tile: Tile
    depth_shape: tuple[int, ...]  # the box of k that a panel holds
    j_parts: tuple[int, ...]  # panels along each axis of j
    k_parts: tuple[int, ...]
    row_tiles: int
    block_tiles: int  # tiles of rows in a block
    jobs: int
    tasks: int

    @property
    def parameters(self) -> dict[str, Values]:
        """What of it is a choice; the rest follows, see `blocking_of`."""
        return {
            "shape": self.tile.shape,
            "rows": (self.tile.rows,),
            "depth": self.depth_shape,
            "block_tiles": (self.block_tiles,),
        }

    @property
    def depth(self) -> int:
        return math.prod(self.depth_shape)

    @property
    def parts(self) -> int:
        return math.prod(self.k_parts)

    @property
    def blocks(self) -> int:
        return -(-self.row_tiles // self.block_tiles)

    @property
    def scratch_bytes(self) -> int:
        """What the tasks need beside the kernel's tensors."""
        kept_rows = self.block_tiles * self.tile.rows if self.parts > 1 else 0
        return FLOAT_BYTES * self.tasks * self.tile.width * (self.depth + kept_rows)


def choose_blocking(contraction: Contraction, features: Features) -> Blocking:
    rows = extent_of(contraction.i)
    tile = choose_tile(rows, [axis.extent for axis in contraction.j], features)
    depth_shape = _depth_shape(contraction, tile)
    cut = _cut(contraction, features, tile, depth_shape)
    block_tiles = cut.row_tiles if cut.parts == 1 else max(1, MOST_ROWS_KEPT // tile.rows)
    if _is_parallel(contraction, features) and cut.jobs < features.cores:
        block_tiles = min(block_tiles, -(-cut.row_tiles // features.cores))
    return _cut(contraction, features, tile, depth_shape, min(block_tiles, cut.row_tiles))


def blocking_of(contraction: Contraction, features: Features, parameters: Parameters) -> Blocking:
    """The blocking with these parameters. Raises `ScheduleRefusedError` where they do not fit."""
    require_names(parameters, PARAMETERS)
    shape = require_within("shape", parameters["shape"], [axis.extent for axis in contraction.j])
    depth_shape = require_within("depth", parameters["depth"], [axis.extent for axis in contraction.k])
    vectors = -(-math.prod(shape) // features.lanes)
    (rows,) = require_within("rows", parameters["rows"], [min(extent_of(contraction.i), most_rows(vectors, features))])
    tile = Tile(rows=rows, vectors=vectors, lanes=features.lanes, shape=shape)
    row_tiles = -(-extent_of(contraction.i) // rows)
    (block_tiles,) = require_within("block_tiles", parameters["block_tiles"], [row_tiles])
    blocking = _cut(contraction, features, tile, depth_shape, block_tiles)
    if blocking.scratch_bytes > MOST_SCRATCH_BYTES * blocking.tasks:
        raise ScheduleRefusedError(
            f"{blocking.scratch_bytes} bytes of scratch for {blocking.tasks} tasks are over {MOST_SCRATCH_BYTES} each"
        )
    return blocking


def _cut(
    contraction: Contraction,
    features: Features,
    tile: Tile,
    depth_shape: tuple[int, ...],
    block_tiles: int | None = None,
) -> Blocking:
    """All that follows from a tile, a panel's depth and the tiles of a block: by default, those of all rows."""
    j_parts = _parts([axis.extent for axis in contraction.j], tile.shape)
    row_tiles = -(-extent_of(contraction.i) // tile.rows)
    block_tiles = row_tiles if block_tiles is None else block_tiles
    jobs = extent_of(contraction.s) * math.prod(j_parts) * -(-row_tiles // block_tiles)
    return Blocking(
        tile=tile,
        depth_shape=depth_shape,
        j_parts=j_parts,
        k_parts=_parts([axis.extent for axis in contraction.k], depth_shape),
        row_tiles=row_tiles,
        block_tiles=block_tiles,
        jobs=jobs,
        tasks=min(features.cores, jobs) if _is_parallel(contraction, features) else 1,
    )


def _is_parallel(contraction: Contraction, features: Features) -> bool:
    return features.cores > 1 and contraction.multiply_adds >= MINIMUM_PARALLEL_MULTIPLY_ADDS


def panel_bytes(contraction: Contraction) -> int:
    """What a task's panel may take."""
    return min(PANEL_BYTES, max(LEAST_PANEL_BYTES, bytes_read(contraction.b) // PANEL_SHARE))


def _depth_shape(contraction: Contraction, tile: Tile) -> tuple[int, ...]:
    most = max(1, panel_bytes(contraction) // FLOAT_BYTES // tile.width)
    if not is_contiguous(contraction.a, contraction.k[-1]):
        most = min(most, DEPTH_OF_COLUMNS)
    *_, deepest = boxes([axis.extent for axis in contraction.k], most)
    return deepest


def _parts(extents: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(-(-extent // size) for extent, size in zip(extents, shape, strict=True))


def boxes(extents: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Boxes of up to `most` elements, growing: all of the last axes, a part of one, a single index of the first."""
    inner = 1
    for position in reversed(range(len(extents))):
        for part in range(1, extents[position] + 1):
            if part * inner > most:
                return
            yield (1,) * position + (part, *extents[position + 1 :])
        inner *= extents[position]


def choose_tile(rows: int, extents: Sequence[int], features: Features) -> Tile:
    """The tile that takes the least time by a model of registers, loads and waste; the largest among equals."""
    registers, lanes = features.vector_registers, features.lanes
    candidates = [
        Tile(rows=tile_rows, vectors=vectors, lanes=lanes, shape=shape)
        for shape in boxes(extents, (registers - 1) // 2 * lanes)
        for vectors in [-(-math.prod(shape) // lanes)]
        for tile_rows in range(1, min(rows, most_rows(vectors, features)) + 1)
    ]
    return min(candidates, key=lambda tile: (_cost(rows, extents, tile), -tile.rows * tile.vectors))


def most_rows(vectors: int, features: Features) -> int:
    """Registers for the sums, for a row of the panel, and for one element of A."""
    return (features.vector_registers - 1 - vectors) // vectors


def _cost(rows: int, extents: Sequence[int], tile: Tile) -> float:
    """Time for one useful multiply-add, in vector operations."""
    computed = math.prod(_parts(extents, tile.shape)) * tile.width * -(-rows // tile.rows) * tile.rows
    waste = computed / (math.prod(extents) * rows)
    sums = tile.rows * tile.vectors
    loads = (tile.rows + tile.vectors) / sums
    return waste * max(1.0, _SUMS_IN_FLIGHT / sums) * (1.0 + _LOAD_SHARE * loads)
