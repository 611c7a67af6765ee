"""Blocking of a contraction: tiles for registers, panels of B and blocks of rows for caches, jobs for threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from edgetrain_tuner.machine import Caches, Machine
from edgetrain_tuner.rules.contraction import (
    Axis,
    Contraction,
    bytes_read,
    extent_of,
    is_contiguous,
    unguarded,
    uses,
)
from edgetrain_tuner.rules.product.tiles import Tile, boxes, choose_tile, even_bands, most_rows, parts, tile_cost
from edgetrain_tuner.rules.product.transpose import padded_rows, transposes_panel, transposes_sums
from edgetrain_tuner.rules.product.vector_side import VectorSide
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_names, require_within

PARAMETERS = ("shape", "rows", "depth", "block")
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocking:
    """`jobs` of one panel and one block of rows each, distributed to `tasks`."""

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
        """The parameters of the schedule; all other fields follow from them, see `blocking_of`."""
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
        """Scratch of all tasks."""
        return FLOAT_BYTES * self.tasks * (self.tile.width * (self.depth + self.kept_rows) + self.staged)


def choose_blocking(side: VectorSide, machine: Machine) -> Blocking:
    """The blocking that takes the least time by a model of products and copies, in the memory that a kernel may use."""
    contraction = side.contraction
    tile = choose_tile(
        extents_of(contraction.i), extents_of(contraction.j), machine, lambda rows: _lines_of(side, rows)
    )
    room = panel_bytes(contraction, machine)
    i_parts = parts(extents_of(contraction.i), tile.row_shape)
    options = [
        _blocking_with(side, machine, tile, depth_shape, block_shape)
        for depth_shape in _even_grid(extents_of(contraction.k), _most_depth(side, tile, room, machine))
        for block_shape in _even_grid(i_parts, math.prod(i_parts))
    ]
    smallest = min(options, key=lambda option: option.scratch_bytes)
    fitting = [option for option in options if _fits(option, room)] or [smallest]
    return min(fitting, key=lambda option: (cost(side, option, machine).total, option.scratch_bytes))


def _even_grid(extents: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Boxes on a grid, evened out so that none is much smaller than the others: threads wait for the largest."""
    even = (tuple(map(even_bands, extents, box)) for box in on_grid(extents, most))
    return list(dict.fromkeys(even))


def _fits(blocking: Blocking, room: int) -> bool:
    kept = FLOAT_BYTES * blocking.tile.width * blocking.kept_rows
    return kept <= room and FLOAT_BYTES * blocking.staged <= room


def _most_depth(side: VectorSide, tile: Tile, room: int, machine: Machine) -> int:
    most = max(1, room // FLOAT_BYTES // tile.width)
    return min(most, machine.caches.column_depth) if _reads_columns(side) else most


def on_grid(extents: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Boxes of up to `most` elements, two for each doubling, the largest among them."""
    kept = {math.floor(2 * math.log2(math.prod(box))): box for box in boxes(extents, most)}
    return list(kept.values())


def blocking_of(side: VectorSide, machine: Machine, parameters: Parameters) -> Blocking:
    """The blocking with these parameters. Raises `ScheduleRefusedError` where they do not fit."""
    require_names(parameters, PARAMETERS)
    contraction = side.contraction
    shape = require_within("shape", parameters["shape"], extents_of(contraction.j))
    depth_shape = require_within("depth", parameters["depth"], extents_of(contraction.k))
    _require_prefix("depth", depth_shape, extents_of(contraction.k))
    vectors = -(-math.prod(shape) // machine.lanes)
    row_shape = require_within("rows", parameters["rows"], extents_of(contraction.i))
    require_within("rows in all", (math.prod(row_shape),), [most_rows(vectors, machine)])
    tile = Tile(row_shape=row_shape, vectors=vectors, lanes=machine.lanes, shape=shape)
    block_shape = require_within("block", parameters["block"], parts(extents_of(contraction.i), row_shape))
    blocking = _blocking_with(side, machine, tile, depth_shape, block_shape)
    most_bytes = machine.limits.task_scratch_bytes
    if blocking.scratch_bytes > most_bytes * blocking.tasks:
        raise ScheduleRefusedError(
            f"{blocking.scratch_bytes} bytes of scratch for {blocking.tasks} tasks are over {most_bytes} each"
        )
    return blocking


def _require_prefix(name: str, shape: Values, extents: Sequence[int]) -> None:
    """Raises `ScheduleRefusedError` where a part of an axis follows a part of one before: steps would have gaps."""
    partial = [n for n, (size, extent) in enumerate(zip(shape, extents, strict=True)) if size < extent]
    if partial and any(size > 1 for size in shape[: partial[-1]]):
        raise ScheduleRefusedError(f"{name} is {list(shape)} of {list(extents)}: only the first axis may come in parts")


def _blocking_with(
    side: VectorSide, machine: Machine, tile: Tile, depth_shape: tuple[int, ...], block_shape: tuple[int, ...]
) -> Blocking:
    """The blocking with these sizes, whether it fits or not."""
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
        tasks=min(machine.cores, jobs) if is_parallel(contraction, machine) else 1,
    )


def is_parallel(contraction: Contraction, machine: Machine) -> bool:
    return machine.cores > 1 and contraction.multiply_adds >= machine.thresholds.parallel_multiply_adds


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


def cost(side: VectorSide, blocking: Blocking, machine: Machine) -> Cost:
    contraction, tile, costs = side.contraction, blocking.tile, machine.costs
    products = contraction.multiply_adds / tile.lanes
    lines = _lines_of(side, tile.row_shape)
    tile_time = tile_cost(extents_of(contraction.i), extents_of(contraction.j), tile, costs, lines)
    waste = products * (tile_time - 1.0)
    waits = products * tile_time * (_cache_wait(blocking, lines, machine) - 1.0)
    packed = blocking.jobs * tile.width * extent_of(contraction.k) * _pack_cost(contraction, blocking, machine)
    staged = blocking.jobs * blocking.parts * blocking.staged * costs.copy
    results = extent_of(contraction.s) * extent_of(contraction.i) * extent_of(contraction.j)
    stored = results * (_column_store_cost(contraction, tile, machine) if side.is_transposed else costs.copy)
    tiles = extent_of(contraction.s) * math.prod(blocking.j_parts) * math.prod(blocking.i_parts) * blocking.parts
    resumed = tiles * (costs.tile_start + (2 * tile.rows * tile.vectors if blocking.parts > 1 else 0))
    far_columns = _far_lines_of_columns(side, blocking, machine.caches)
    far_results = _far_lines_of_results(side, tile, machine.caches)
    waiting = -(-blocking.jobs // blocking.tasks) / blocking.jobs  # the last task's share
    return Cost(
        products=products * waiting,
        waste=waste * waiting,
        copies=(packed + staged) * waiting,
        stores=stored * waiting,
        starts=resumed * waiting,
        fetches=(waits + (far_columns + far_results) * costs.far_line) * waiting,
    )


def _cache_wait(blocking: Blocking, lines: int, machine: Machine) -> float:
    """How many times as long the products of a tile take because they wait for the second-level cache.

    Its loads run alongside of products, and hold them up where products are few.
    """
    tile, costs = blocking.tile, machine.costs
    near = blocking.depth * (FLOAT_BYTES * tile.width + machine.caches.line_bytes * lines)
    fetched = costs.next_vector * tile.vectors + costs.next_line * lines
    is_near = near <= machine.caches.first_level_bytes
    return 1.0 if is_near else max(1.0, fetched / (tile.rows * tile.vectors))


def _far_lines_of_columns(side: VectorSide, blocking: Blocking, caches: Caches) -> float:
    """Lines of A that come from far: it is read by columns for each panel, and no prefetching follows that."""
    read = bytes_read(side.contraction.a)
    if not _reads_columns(side) or read <= caches.core_bytes:
        return 0.0
    near_panels = 1 if read <= caches.shared_bytes else 0
    return read / caches.line_bytes * (math.prod(blocking.j_parts) - near_panels)


def _far_lines_of_results(side: VectorSide, tile: Tile, caches: Caches) -> float:
    """Lines of the result, and of the epilogue's operands, where they are accessed by columns and come from far."""
    contraction, epilogue = side.contraction, side.contraction.epilogue
    nbytes = FLOAT_BYTES * math.prod(int(extent) for extent in contraction.result.ty.shape)
    is_followed = tile.used_width <= caches.prefetched_streams or nbytes <= caches.result_bytes
    if not side.is_transposed or is_followed:
        return 0.0
    tensors = 1 if epilogue is None else len(epilogue.stores) + len(epilogue.operands_at(epilogue.axes))
    return tensors * nbytes / caches.line_bytes


def _reads_columns(side: VectorSide) -> bool:
    """Whether A is read by columns, with a stride, and not from a copy."""
    return side.reach is None and not is_contiguous(side.contraction.a, side.contraction.k[-1])


def _lines_of(side: VectorSide, row_shape: Sequence[int]) -> int:
    """Lines of the cache of which a step of k reads one element, where the next step reads other lines."""
    if not _reads_columns(side):
        return 0
    is_run = is_contiguous(side.contraction.a, side.contraction.i[-1])
    return math.prod(row_shape[:-1] if is_run else row_shape)


def _column_store_cost(contraction: Contraction, tile: Tile, machine: Machine) -> float:
    """Cost of storing an element of a result that is contiguous along the rows of its tiles."""
    if not transposes_sums(contraction, tile, machine):
        return machine.costs.scattered
    return machine.costs.transposed * padded_rows(tile.rows) / tile.rows


def _pack_cost(contraction: Contraction, blocking: Blocking, machine: Machine) -> float:
    """Cost of copying an element of B into a panel."""
    tile, costs = blocking.tile, machine.costs
    if transposes_panel(contraction, tile, blocking.depth_shape, machine):
        return costs.transposed
    guard, element = unguarded(contraction.b)
    if not is_contiguous(element, contraction.j[-1]):
        return costs.scattered
    # A condition costs nothing in a long run, because loops are cut where it changes; unless that is elsewhere for
    # every phase of a stride.
    is_cut = guard is None or not any(uses(guard, axis.variable) for axis in contraction.s)
    is_long = guard is None or contraction.j[-1].extent >= tile.lanes
    return costs.copy if is_cut and is_long else costs.short_run


def panel_bytes(contraction: Contraction, machine: Machine) -> int:
    """Bytes that a task's panel may take; kept sums and the copy of A may take as much again, each."""
    read = bytes_read(contraction.a) + bytes_read(contraction.b)
    limits = machine.limits
    return min(limits.panel_bytes, max(limits.least_panel_bytes, int(read * limits.panel_share)))


def extents_of(axes: Sequence[Axis]) -> list[int]:
    return [axis.extent for axis in axes]
