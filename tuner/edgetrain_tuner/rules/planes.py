"""Copies of what a window slides over, with zeros around it and columns of the same phase of the stride side by side.

Padding and strides are resolved here, once for each element; the loops over a plane have no conditions left, and read
consecutive columns whatever the stride.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgetrain_tuner.rules.contraction import replaced
from edgetrain_tuner.rules.loops import Loops, sequence
from edgetrain_tuner.rules.window_tiles import WindowTiling, plane_elements
from edgetrain_tuner.rules.windows import Coordinate

_ZERO = tirx.FloatImm("float32", 0.0)


@dataclass(frozen=True, kw_only=True)
class Plane:
    """A band of rows of the tensor `element`, one for each task: those that `positions` rows of the window reach."""

    loops: Loops
    element: Any
    rows: Coordinate
    columns: Coordinate
    positions: int
    width: int  # columns of the window, with those that only fill a vector
    lanes: int
    is_whole: bool  # one band holds all rows
    buffer: Any

    @staticmethod
    def of(loops: Loops, element: Any, rows: Coordinate, columns: Coordinate, tiling: WindowTiling) -> Plane:
        positions, width = tiling.band_tiles * tiling.tile.rows, tiling.width
        shape = (tiling.tasks, plane_elements(rows, columns, positions, width))
        return Plane(
            loops=loops,
            element=element,
            rows=rows,
            columns=columns,
            positions=positions,
            width=width,
            lanes=tiling.tile.lanes,
            is_whole=tiling.bands == 1,
            buffer=tirx.decl_buffer(shape, "float32", "plane"),
        )

    @property
    def pitch(self) -> int:
        """From one row to the next."""
        return self.columns.stride * self._phase_pitch

    @property
    def _phase_pitch(self) -> int:
        return self.width + (self.columns.span - 1) // self.columns.stride

    @property
    def _height(self) -> int:
        return self.rows.stride * (self.positions - 1) + self.rows.span

    def clear(self, task: Any) -> Any:
        size = self._height * self.pitch
        return self.loops.loop("clear", size, lambda at: tirx.BufferStore(self.buffer, _ZERO, [task, at]))

    def at(self, *, row_offset: int, column_offset: int) -> int:
        """Where the window's first position finds what lies at these offsets from its first row and column.

        The next row of positions is `rows.stride` pitches on, the next column is the next element.
        """
        row, column = row_offset - self.rows.low, column_offset - self.columns.low
        return row * self.pitch + self._column_at(column)

    def _column_at(self, column: int) -> int:
        stride = self.columns.stride
        return column % stride * self._phase_pitch + column // stride

    def copy(self, task: Any, first_position: Any, values: Mapping[Any, Any]) -> Any:
        """Copies the band that begins at a row of positions. What is beyond the tensor stays zero, or becomes it."""
        low, extent = self.rows.low, self.rows.extent
        if self.is_whole:  # then the same rows lie outside each time: they stay zero too
            first, end = max(0, -low), min(self._height, extent - low)
            return self.loops.loop(
                "row",
                max(0, end - first),
                lambda number: self._copy_row(
                    task, number + first, {**values, self.rows.variable: number + first + low}
                ),
            )
        start = first_position * self.rows.stride + low

        def row(number: Any) -> Any:
            place = start + number
            copied = self._copy_row(task, number, {**values, self.rows.variable: place})
            blank = self.loops.loop(
                "blank",
                self.pitch,
                lambda at: tirx.BufferStore(self.buffer, _ZERO, [task, number * self.pitch + at]),
            )
            return tirx.IfThenElse(tirx.all(place >= 0, place < extent), copied, blank)

        return self.loops.loop("row", self._height, row)

    def _copy_row(self, task: Any, number: Any, values: Mapping[Any, Any]) -> Any:
        columns, stride = self.columns, self.columns.stride
        last = stride * (columns.position.extent - 1) + columns.low + columns.span - 1
        # Columns are counted from `low` on: these lie in the tensor.
        first, end = max(0, -columns.low), min(last, columns.extent - 1) - columns.low + 1
        whole_first, whole_end = -(-first // stride), end // stride

        def element(column: Any, place: Any) -> Any:
            value = replaced(self.element, {**values, columns.variable: column + columns.low})
            return tirx.BufferStore(self.buffer, value, [task, number * self.pitch + place])

        def single(column: int) -> Any:
            return element(self.loops.number(column), self.loops.number(self._column_at(column)))

        def every_phase(index: Any) -> Any:
            at = index + whole_first
            return sequence(*(element(at * stride + p, at + p * self._phase_pitch) for p in range(stride)))

        if end <= first:  # a window that only ever sees padding
            return tirx.Evaluate(0)
        if stride == 1:
            return self.loops.along("column", end - first, self.lanes, lambda at: element(at + first, at + first))
        if whole_end <= whole_first:
            return sequence(*(single(column) for column in range(first, end)))
        edges = [*range(first, whole_first * stride), *range(whole_end * stride, end)]
        body = self.loops.loop("column", whole_end - whole_first, every_phase)
        return sequence(*(single(column) for column in edges), body)
