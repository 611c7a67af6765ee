"""Planes: copies of the rows that a window slides over, with zeros around them and strided columns deinterleaved.

Padding and strides are resolved here, once for each element. Loops over a plane need no conditions, and read
consecutive columns at any stride.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgetrain_tuner.rules.contraction import replaced
from edgetrain_tuner.rules.loops import Loops, sequence
from edgetrain_tuner.rules.window.form import Coordinate
from edgetrain_tuner.rules.window.tiling import WindowTiling, plane_elements

_ZERO = tirx.FloatImm("float32", 0.0)


@dataclass(frozen=True, kw_only=True)
class Plane:
    """The rows of the tensor `element` that `positions` rows of the window read; one plane for each task."""

    loops: Loops
    element: Any
    rows: Coordinate
    columns: Coordinate
    positions: int
    width: int  # columns of the window, with those that only fill a vector
    lanes: int
    is_whole: bool  # one band holds all rows
    buffer: Any
    count: int = 1  # how many there are for a task, to be filled in turns

    @staticmethod
    def of(
        loops: Loops, element: Any, rows: Coordinate, columns: Coordinate, tiling: WindowTiling, count: int = 1
    ) -> Plane:
        positions, width = tiling.band_tiles * tiling.tile.rows, tiling.width
        shape = (tiling.tasks, count * plane_elements(rows, columns, positions, width))
        return Plane(
            loops=loops,
            element=element,
            rows=rows,
            columns=columns,
            positions=positions,
            width=width,
            lanes=tiling.tile.lanes,
            is_whole=tiling.bands == 1,
            count=count,
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

    @property
    def _size(self) -> int:
        return self._height * self.pitch

    @property
    def rows_inside(self) -> range:
        """Its rows that lie in the tensor, where it is whole; the others are zero."""
        return range(max(0, -self.rows.low), min(self._height, self.rows.extent - self.rows.low))

    def start(self, turn: Any) -> Any:
        """Where in the buffer a task's plane of that turn begins."""
        return tirx.floormod(turn, self.count) * self._size if self.count > 1 else self.loops.number(0)

    def clear(self, task: Any) -> Any:
        size = self.count * self._size
        return self.loops.loop("clear", size, lambda at: tirx.BufferStore(self.buffer, _ZERO, [task, at]))

    def at(self, *, row_offset: int, column_offset: int) -> int:
        """The index in the plane for the window's first position, at these offsets from its first row and column.

        The next row of positions is `rows.stride` pitches on, the next column is the next element.
        """
        row, column = row_offset - self.rows.low, column_offset - self.columns.low
        return row * self.pitch + self._column_at(column)

    def _column_at(self, column: int) -> int:
        stride = self.columns.stride
        return column % stride * self._phase_pitch + column // stride

    def copy(self, task: Any, first_position: Any, values: Mapping[Any, Any], turn: Any = 0) -> Any:
        """Copies the band that begins at a row of positions, with zeros beyond the tensor."""
        low, extent, begin = self.rows.low, self.rows.extent, self.start(turn)
        if self.is_whole:  # the same rows are outside each time, and stay zero
            inside = self.rows_inside

            def whole_row(number: Any) -> Any:
                place = number + inside.start
                at = begin + place * self.pitch
                return self._copy_row(task, at, {**values, self.rows.variable: place + low})

            return self.loops.loop("row", len(inside), whole_row)
        start = first_position * self.rows.stride + low

        def row(number: Any) -> Any:
            place = start + number
            line = begin + number * self.pitch
            copied = self._copy_row(task, line, {**values, self.rows.variable: place})
            blank = self.loops.loop(
                "blank",
                self.pitch,
                lambda at: tirx.BufferStore(self.buffer, _ZERO, [task, line + at]),
            )
            return tirx.IfThenElse(tirx.all(place >= 0, place < extent), copied, blank)

        return self.loops.loop("row", self._height, row)

    def _copy_row(self, task: Any, line: Any, values: Mapping[Any, Any]) -> Any:
        columns, stride = self.columns, self.columns.stride
        last = stride * (columns.position.extent - 1) + columns.low + columns.span - 1
        # Columns are counted from `low` on: these lie in the tensor.
        first, end = max(0, -columns.low), min(last, columns.extent - 1) - columns.low + 1
        whole_first, whole_end = -(-first // stride), end // stride

        def value(column: Any) -> Any:
            return replaced(self.element, {**values, columns.variable: column + columns.low})

        def store(place: Any, copied: Any) -> Any:
            return tirx.BufferStore(self.buffer, copied, [task, line + place])

        def single(column: int) -> Any:
            return store(self.loops.number(self._column_at(column)), value(self.loops.number(column)))

        if end <= first:  # a window that only ever sees padding
            return tirx.Evaluate(0)
        if stride == 1:
            return self.loops.along("column", end - first, self.lanes, lambda at: store(at + first, value(at + first)))
        if whole_end <= whole_first:
            return sequence(*(single(column) for column in range(first, end)))
        edges = [*range(first, whole_first * stride), *range(whole_end * stride, end)]
        body = self.loops.deinterleave(
            whole_end - whole_first,
            self.lanes,
            stride,
            lambda at: value(at + whole_first * stride),
            lambda phase, at, copied: store(at + (whole_first + phase * self._phase_pitch), copied),
        )
        return sequence(*(single(column) for column in edges), body)
