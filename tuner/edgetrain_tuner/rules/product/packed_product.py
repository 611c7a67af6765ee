"""The rule for matrix products, convolutions and their gradients on machines with vectors.

It works as good matrix products do (Goto and van de Geijn, 2008): a panel of B is packed so that the innermost loop
reads it in order, and a tile of the result stays in registers while that loop runs over k. Packing also resolves
padding, strides and dilation, once for each element, so a convolution costs about what a matrix product costs.

The loops are written as statements, not derived with schedule primitives. So a size that is not a multiple of the tile
needs no condition in the innermost loop: a panel is padded with zeros, and the last tile of rows overlaps the one
before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import tirx

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import (
    extent_of,
    replaced,
    simplified_load,
    uses,
    values_of,
)
from edgetrain_tuner.rules.loops import (
    REGISTERS,
    Loops,
    digits_of,
    moved,
    position_of,
    scaled,
    sequence,
    when,
    when_all,
)
from edgetrain_tuner.rules.product.blocking import PARAMETERS, Blocking, blocking_of, choose_blocking, cost
from edgetrain_tuner.rules.product.blocking_choices import choices
from edgetrain_tuner.rules.product.panels import AxisValues, Panel, PanelCopy, when_present
from edgetrain_tuner.rules.product.staging import Stage
from edgetrain_tuner.rules.product.tile_sums import Rows, TileSums
from edgetrain_tuner.rules.product.vector_side import VectorSide, vector_sides
from edgetrain_tuner.rules.product.walk import find_walk
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_within

SIDE = "side"

_ZERO = tirx.FloatImm("float32", 0.0)
_ABSENT = tirx.IntImm("int32", -(1 << 30))  # instead of a step: there is nothing to add


class PackedProduct:
    """The rule. It declines where no panel would be used twice, and where the kernel is too small."""

    name = "packed-product"

    def names(self, _kernel: Kernel) -> Sequence[str]:
        return (SIDE, *PARAMETERS)

    def propose(self, kernel: Kernel, machine: Machine) -> Parameters | None:
        contraction, thresholds = kernel.contraction, machine.thresholds
        if contraction is None or not contraction.i:
            return None
        if contraction.multiply_adds < thresholds.packed_multiply_adds:
            return None
        if extent_of(contraction.j) * 2 < machine.lanes or extent_of(contraction.k) < thresholds.packed_depth:
            return None
        sides = vector_sides(contraction)
        blockings = {number: choose_blocking(side, machine) for number, side in sides.items()}
        best = min(sides, key=lambda number: cost(sides[number], blockings[number], machine).total)
        return {SIDE: (best,), **blockings[best].parameters}

    def choices(self, kernel: Kernel, machine: Machine, name: str, before: Parameters) -> Sequence[Values]:
        sides = vector_sides(kernel.contraction) if kernel.contraction is not None and kernel.contraction.i else {}
        if name == SIDE:
            return [(number,) for number in sides]
        side = sides.get(before[SIDE][0])
        return [] if side is None else choices(side, machine, name, before)

    def check(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> None:
        self._checked(kernel, machine, parameters)

    def write(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Any:
        return _Writer(*self._checked(kernel, machine, parameters), machine).function()

    def _checked(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> tuple[VectorSide, Blocking]:
        if kernel.contraction is None or not kernel.contraction.i:
            raise ScheduleRefusedError("the kernel is no sum of products with rows")
        sides = vector_sides(kernel.contraction)
        (number,) = require_within(SIDE, parameters.get(SIDE, ()), [max(sides)])
        rest = {name: values for name, values in parameters.items() if name != SIDE}
        return sides[number], blocking_of(sides[number], machine, rest)


def _split(values: Sequence[Any], *counts: int) -> list[Sequence[Any]]:
    """The first so many values, the next so many, and the rest."""
    groups = []
    for count in counts:
        groups.append(values[:count])
        values = values[count:]
    return [*groups, values]


class _Writer:
    """Writes the loops of a contraction. Names follow its formula: rows are i, a panel is j wide and k deep."""

    def __init__(self, side: VectorSide, blocking: Blocking, machine: Machine) -> None:
        contraction, tasks = side.contraction, blocking.tasks
        sizes = (*blocking.block_rows, *blocking.depth_shape)
        self._stage = Stage.of(side.reach, contraction.s, sizes, tasks) if side.reach else None
        self._c = contraction.with_a(self._stage.element) if self._stage else contraction
        self._blocking = blocking
        self._most_uneven = machine.thresholds.uneven_jobs
        self._tile = blocking.tile
        self._loops = Loops(str(contraction.k[0].variable.ty.dtype))
        self._panels = PanelCopy.of(self._c, blocking, machine, self._loops)
        self._sums = TileSums(
            contraction=self._c,
            tile=self._tile,
            machine=machine,
            loops=self._loops,
            is_transposed=side.is_transposed,
        )
        # Sums so far, while k comes in parts.
        kept = (tasks, blocking.kept_rows, self._tile.width)
        self._kept = tirx.decl_buffer(kept, "float32", "kept") if blocking.kept_rows else None
        self._walk = find_walk(self._c, self._stage.starts if self._stage else {})
        self._steps = tirx.decl_buffer((tasks, blocking.depth), "int32", "steps") if self._walk else None

    def function(self) -> Any:
        blocking = self._blocking
        blocks = math.prod(blocking.block_parts)
        if self._c.present is not None:
            # The phases of a stride have different numbers of taps: every task gets a share of each.
            sharing = {"kinds": blocking.jobs // math.prod(blocking.j_parts) // blocks, "blocks": blocks}
        elif self._has_rows_outermost and blocks % blocking.tasks == 0:
            # Tasks get parts of the outermost axis in memory, as in other kernels (ADR 0028).
            sharing = {"kinds": blocking.jobs // blocks}
        else:
            sharing = {}
        loop = self._loops.distribute(
            blocking.jobs,
            blocking.tasks,
            self._panels.clear_padding,
            self._job,
            most_uneven=self._most_uneven,
            **sharing,
        )
        buffers = [self._panels.buffer, self._kept, self._steps, self._stage and self._stage.buffer]
        allocations = [tirx.AllocBuffer(buffer) for buffer in buffers if buffer is not None]
        return self._c.rewritten(sequence(*allocations, loop))

    @property
    def _has_rows_outermost(self) -> bool:
        return any(uses(self._c.indices[0], axis.variable) for axis in self._c.i)

    def _job(self, task: Any, which: Any) -> Any:
        """One panel of B times one block of rows of A, part after part of k."""
        blocking, c = self._blocking, self._c
        digits = digits_of(which, (*(axis.extent for axis in c.s), *blocking.j_parts, *blocking.block_parts))
        s_index, j_index, block = _split(digits, len(c.s), len(c.j))
        s_values, store_indices = self._stored_indices(s_index)
        first_tile = scaled(block, blocking.block_shape)

        def part(number: Any) -> Any:
            k_start = scaled(digits_of(number, blocking.k_parts), blocking.depth_shape)
            staged = self._staged_values(task, first_tile, k_start)
            panel = Panel(
                task=task,
                values={**s_values, **staged},
                j_start=scaled(j_index, self._tile.shape),
                k_start=k_start,
                k_extents=[
                    size if axis.extent % size == 0 else tirx.min(self._loops.number(size), axis.extent - start)
                    for axis, size, start in zip(c.k, blocking.depth_shape, k_start, strict=True)
                ],
                part=number,
            )

            def tile(at: list[Any]) -> Any:
                index = moved(first_tile, at)
                beyond = zip(index, blocking.i_parts, blocking.block_shape, strict=True)
                inside = [place < count for place, count, size in beyond if count % size]
                work = self._tile_of(panel, position_of(at, blocking.block_shape), index)
                return when_all(inside, work)

            fill = [self._stage.fill(self._loops, self._tile.lanes, panel.values)] if self._stage else []
            tiles = self._loops.nest("tile", blocking.block_shape, tile)
            return sequence(*self._plan_walk(panel), *fill, self._panels.copy(panel), tiles)

        return sequence(*store_indices, self._loops.loop("part", blocking.parts, part))

    def _staged_values(self, task: Any, first_tile: Sequence[Any], k_start: Sequence[Any]) -> AxisValues:
        """Where the copy of A begins: with the block, or earlier, so that it does not reach beyond the axis."""
        if self._stage is None:
            return {}
        starts = []
        for axis, tile, rows, size in zip(
            self._c.i, first_tile, self._tile.row_shape, self._blocking.block_rows, strict=True
        ):
            start, last = tile * rows, axis.extent - size
            starts.append(tirx.min(start, self._loops.number(last)) if axis.extent % size else start)
        values = zip(self._stage.starts.values(), (*starts, *k_start), strict=True)
        return {self._stage.task: task, **dict(values)}

    def _stored_indices(self, indices: Sequence[Any]) -> tuple[AxisValues, list[Any]]:
        """Values of s as loads from a buffer, and the statements that fill it.

        TVM 0.27 gets `(q // 8 % 3 + 2) % 3` wrong when it simplifies a buffer's index (it adds 48 to q, not 16), and
        phases of a stride are such expressions of a job's number. It leaves alone what it cannot look into.
        """
        if not indices:
            return {}, []
        buffer = tirx.decl_buffer((len(indices),), self._loops.dtype, "at", scope=REGISTERS)
        stores = [tirx.BufferStore(buffer, value, [number]) for number, value in enumerate(indices)]
        values = values_of(self._c.s, [buffer[self._loops.number(number)] for number in range(len(indices))])
        return values, [tirx.AllocBuffer(buffer), *stores]

    def _tile_of(self, panel: Panel, number: Any, index: Sequence[Any]) -> Any:
        """A tile of sums: cleared or resumed, added to, then kept for the next part of k or stored in the result."""
        first = scaled(index, self._tile.row_shape)
        start = [
            tirx.min(place, self._loops.number(axis.extent - size)) if axis.extent % size else place
            for place, axis, size in zip(first, self._c.i, self._tile.row_shape, strict=True)
        ]
        tile = Rows(number=number, first=first, start=start)
        places, kept_sums = self._sums, self._kept
        sums = places.buffer()
        clear = places.each(lambda row, column: tirx.BufferStore(sums, _ZERO, [places.at(row, column)]))
        products = self._products(panel, tile, sums)
        store = places.store(panel, tile, sums)
        fetch = places.fetch(panel, tile)
        if kept_sums is None:
            return sequence(tirx.AllocBuffer(sums), clear, *fetch, products, store)

        def kept(row: Any, column: Any) -> list[Any]:
            return [panel.task, number * self._tile.rows + row, column]

        def resume(row: Any, column: Any) -> Any:
            return tirx.BufferStore(sums, kept_sums[tuple(kept(row, column))], [places.at(row, column)])

        def keep(row: Any, column: Any) -> Any:
            return tirx.BufferStore(kept_sums, sums[places.at(row, column)], kept(row, column))

        is_last = panel.part == self._blocking.parts - 1
        begin = tirx.IfThenElse(panel.part == 0, clear, places.each(resume))
        fetch = [when(is_last, statement, True) for statement in fetch]
        end = tirx.IfThenElse(is_last, store, places.each(keep))
        return sequence(tirx.AllocBuffer(sums), begin, *fetch, products, end)

    def _plan_walk(self, panel: Panel) -> list[Any]:
        """Fills the table of steps: how far from the first element of A each k is."""
        walk, steps = self._walk, self._steps
        if walk is None or steps is None:
            return []

        def plan(at: list[Any]) -> Any:
            values = {**panel.values, **values_of(self._c.k, moved(panel.k_start, at))}
            step = replaced(walk.step, values).astype("int32")
            if self._c.present is not None:
                step = tirx.Select(replaced(self._c.present, values), step, _ABSENT)
            return tirx.BufferStore(steps, step, [panel.task, position_of(at, self._blocking.depth_shape)])

        return [self._loops.nest("step", panel.k_extents, plan)]

    def _products(self, panel: Panel, tile: Rows, sums: Any) -> Any:
        """Adds the products of all k to the sums."""
        walk, steps = self._walk, self._steps
        if walk is None or steps is None:
            nest = self._loops.nest

            def along(at: list[Any]) -> Any:
                values = {**panel.values, **values_of(self._c.k, moved(panel.k_start, at))}
                depth = position_of(at, self._blocking.depth_shape)
                add = self._add_products(panel, tile, sums, depth, replaced(self._c.a, values))
                return when_present(self._c, values, add)

            return nest("depth", panel.k_extents, along)

        def one(depth: Any) -> Any:
            step = steps[panel.task, depth]
            a = replaced(walk.at(step), panel.values)
            add = self._add_products(panel, tile, sums, depth, a)
            return when(step > _ABSENT, add, self._c.present is not None)

        return self._loops.loop("depth", math.prod(panel.k_extents), one)

    def _add_products(self, panel: Panel, tile: Rows, sums: Any, depth: Any, a: Any) -> Any:
        def add(row: Any, column: Any) -> Any:
            place = self._sums.at(row, column)
            element = simplified_load(replaced(a, self._row_values(tile, row)))
            product = element * self._panels.buffer[panel.task, depth, column]
            return tirx.BufferStore(sums, sums[place] + product, [place])

        return self._sums.each(add)

    def _row_values(self, tile: Rows, row: Any) -> AxisValues:
        return values_of(self._c.i, moved(tile.start, digits_of(row, self._tile.row_shape)))
