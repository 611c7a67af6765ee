"""A tile of sums: where each sum is while products are added, and how all of them are stored in the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import Contraction, replaced, values_of
from edgetrain_tuner.rules.loops import (
    REGISTERS,
    UNROLLED,
    VECTORIZED,
    Loops,
    digits_of,
    moved,
    position_of,
    prefetch,
    sequence,
    when_all,
)
from edgetrain_tuner.rules.product.panels import AxisValues, Panel, inside
from edgetrain_tuner.rules.product.tiles import Tile
from edgetrain_tuner.rules.product.transpose import padded_rows, transpose_block, transposes_sums


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The rows of a tile, `number` in its block. They are computed from `start` on and stored from `first` on."""

    number: Any
    first: Sequence[Any]  # along each axis
    start: Sequence[Any]


@dataclass(frozen=True, kw_only=True)
class TileSums:
    contraction: Contraction
    tile: Tile
    machine: Machine
    loops: Loops
    is_transposed: bool  # the result is contiguous along i

    def buffer(self) -> Any:
        return tirx.decl_buffer((self.tile.rows * self.tile.width,), "float32", "sums", scope=REGISTERS)

    def at(self, row: Any, column: Any) -> Any:
        return row * self.tile.width + column

    def each(self, body: Callable[[Any, Any], Any]) -> Any:
        """`body` for every row and column of a tile, all of it unrolled into vector instructions."""
        lanes = self.tile.lanes

        def vector(row: Any, number: Any) -> Any:
            return self.loops.loop("lane", lanes, lambda lane: body(row, number * lanes + lane), VECTORIZED)

        def vectors(row: Any) -> Any:
            return self.loops.loop("vector", self.tile.vectors, lambda number: vector(row, number), UNROLLED)

        return self.loops.loop("row", self.tile.rows, vectors, UNROLLED)

    def store(self, panel: Panel, rows: Rows, sums: Any) -> Any:
        """Stores the sums in the result, through the epilogue if there is one.

        They are spilled first: registers cannot be read at an index that is not a constant.
        """
        spilled, spill = self._transposed_sums(sums) if self._transposes else self._spilled_sums(sums)
        i_shape, j_shape = self.tile.row_shape, self.tile.shape
        is_checked = self._transposes and not self.contraction.limits  # for a column at once

        def element(i_at: Sequence[Any], j_at: Sequence[Any]) -> Any:
            values = self._values(panel, rows, i_at, j_at)
            value = spilled[self._spilled_at(position_of(i_at, i_shape), position_of(j_at, j_shape))]
            store = self.contraction.finished([replaced(index, values) for index in self.contraction.indices], value)
            is_inside = None if is_checked else inside(self.contraction, self.tile, values)
            return _when_both(is_inside, self._is_new(rows, i_at), store)

        def run(at: list[Any]) -> Any:
            """The contiguous part of a column, by vectors; its condition is checked once."""
            j_at, i_at = at[: len(j_shape)], at[len(j_shape) :]
            along = self.loops.along(
                "run", i_shape[-1], self.tile.lanes, lambda last: element([*i_at, last], j_at), with_choices=True
            )
            column = {**panel.values, **values_of(self.contraction.j, moved(panel.j_start, j_at))}
            return _when_both(inside(self.contraction, self.tile, column), None, along) if is_checked else along

        nest = self.loops.nest
        if self._transposes:
            stored = nest("place", (*j_shape, *i_shape[:-1]), run)
        elif self.is_transposed:
            stored = nest("place", (*j_shape, *i_shape), lambda at: element(at[len(j_shape) :], at[: len(j_shape)]))
        else:
            stored = nest("place", (*i_shape, *j_shape), lambda at: element(at[: len(i_shape)], at[len(i_shape) :]))
        return sequence(tirx.AllocBuffer(spilled), spill, stored)

    def fetch(self, panel: Panel, rows: Rows) -> list[Any]:
        """Prefetches what the epilogue will read, while products are added."""
        epilogue = self.contraction.epilogue
        shapes, line_elements = (self.tile.shape, self.tile.row_shape), self.machine.caches.line_elements
        along, across = shapes[::-1] if self.is_transposed else shapes
        if epilogue is None or not epilogue.operands_at(epilogue.axes):
            return []

        def line(at: list[Any]) -> Any:
            ends = [digits_of(at[0], across), digits_of(at[1] * line_elements, along)]
            i_at, j_at = ends[::-1] if self.is_transposed else ends
            values = self._values(panel, rows, i_at, j_at)
            indices = [replaced(index, values) for index in self.contraction.indices]
            return sequence(*map(prefetch, epilogue.operands_at(indices)))

        return [self.loops.nest("line", (math.prod(across), -(-math.prod(along) // line_elements)), line)]

    def _values(self, panel: Panel, rows: Rows, i_at: Sequence[Any], j_at: Sequence[Any]) -> AxisValues:
        return {
            **panel.values,
            **values_of(self.contraction.j, moved(panel.j_start, j_at)),
            **values_of(self.contraction.i, moved(rows.start, i_at)),
        }

    def _is_new(self, rows: Rows, at: Sequence[Any]) -> Any | None:
        """Whether no tile before has stored these rows, where the last tile was moved back; None if none was."""
        axes = zip(rows.first, rows.start, at, self.contraction.i, self.tile.row_shape, strict=True)
        conditions = [start + index >= first for first, start, index, axis, size in axes if axis.extent % size]
        return tirx.all(*conditions) if conditions else None

    @property
    def _transposes(self) -> bool:
        return self.is_transposed and transposes_sums(self.contraction, self.tile, self.machine)

    def _spilled_at(self, row: Any, column: Any) -> Any:
        return column * padded_rows(self.tile.rows) + row if self._transposes else self.at(row, column)

    def _spilled_sums(self, sums: Any) -> tuple[Any, Any]:
        """A buffer for the sums by rows, and the statement that fills it."""
        spilled = tirx.decl_buffer((self.tile.rows * self.tile.width,), "float32", "settled", scope=REGISTERS)

        def spill(row: Any, column: Any) -> Any:
            return tirx.BufferStore(spilled, sums[self.at(row, column)], [self.at(row, column)])

        return spilled, self.each(spill)

    def _transposed_sums(self, sums: Any) -> tuple[Any, Any]:
        """A buffer for the sums by columns, and the statement that fills it."""
        rows, width, lanes = self.tile.rows, self.tile.width, self.tile.lanes
        spilled = tirx.decl_buffer((padded_rows(rows) * width,), "float32", "settled", scope=REGISTERS)

        def block(first_row: int, first_column: int) -> Any:
            def read(row: int, lane: Any) -> Any:
                return sums[self.at(first_row + row, first_column + lane)]

            def write(column: int, row: Any, value: Any) -> Any:
                return tirx.BufferStore(spilled, value, [self._spilled_at(first_row + row, first_column + column)])

            return transpose_block(self.loops, min(lanes, rows - first_row), lanes, read, write)

        blocks = [block(row, column) for row in range(0, rows, lanes) for column in range(0, width, lanes)]
        return spilled, sequence(*blocks)


def _when_both(first: Any | None, second: Any | None, statement: Any) -> Any:
    return when_all([condition for condition in (first, second) if condition is not None], statement)
