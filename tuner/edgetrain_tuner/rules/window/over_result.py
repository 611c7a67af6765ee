"""A window whose positions are those of the result: a depthwise convolution, and the gradient of its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import tirx

from edgetrain_tuner.rules.contraction import Limit, replaced, uses, values_of
from edgetrain_tuner.rules.loops import REGISTERS, digits_of, sequence, when
from edgetrain_tuner.rules.window.form import ChannelWindow, Coordinate
from edgetrain_tuner.rules.window.sliding import Sliding

_ZERO = tirx.FloatImm("float32", 0.0)
Values = Mapping[Any, Any]
Phases = tuple[int, int]  # of rows and of columns


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The extent of C, where positions times phases is more."""

    rows: tuple[Limit, ...]
    columns: int

    @staticmethod
    def of(window: ChannelWindow) -> Limits | None:
        """None for limits that are not about rows alone, or the number of columns alone."""
        rows, columns = [], window.columns.position.extent * window.columns.phases
        for limit in window.contraction.limits:
            by_row, by_column = (
                any(uses(limit.value, axis.variable) for axis in c.axes) for c in (window.rows, window.columns)
            )
            if by_row and not by_column:
                rows.append(limit)
            elif by_column and not by_row and _is_place(limit.value, window.columns):
                columns = min(columns, limit.extent)
            else:
                return None
        return Limits(rows=tuple(rows), columns=columns)


def _is_place(value: Any, c: Coordinate) -> bool:
    """Whether `value` counts the places of C along a coordinate: position · phases + phase."""
    expected = c.position.variable * c.phases + (c.phase.variable if c.phase is not None else 0)
    return bool(tvm.sym.Analyzer().can_prove_equal(value, expected))


class SlideOverResult:
    """Writes the loops: for each band of each channel of each image, tiles of sums, then whole rows of C."""

    def __init__(self, sliding: Sliding, limits: Limits) -> None:
        self._g = sliding
        self._w = sliding.window
        self._tile = sliding.tile
        self._loops = sliding.loops
        self._limits = limits
        rows, columns = self._w.rows, self._w.columns
        self._phases = [(p, q) for p in range(rows.phases) for q in range(columns.phases)]
        # The rows of C that a tile of rows computes, with the columns of all phases interleaved.
        self._line_pitch = sliding.tiling.width * columns.phases
        shape = (sliding.tiling.tasks, self._tile.rows * rows.phases * self._line_pitch)
        self._lines = tirx.decl_buffer(shape, "float32", "lines")

    def function(self) -> Any:
        tiling, plane = self._g.tiling, self._g.plane
        loop = self._loops.distribute(tiling.jobs, tiling.tasks, self._begin, self._job)
        allocations = [tirx.AllocBuffer(buffer) for buffer in (plane.buffer, self._lines)]
        return self._w.contraction.rewritten(sequence(*allocations, loop))

    @property
    def _copies_ahead(self) -> bool:
        return self._g.plane.count > 1

    def _begin(self, task: Any) -> list[Any]:
        tiling = self._g.tiling
        first_job = task * -(-tiling.jobs // tiling.tasks)
        return [self._g.plane.clear(task), *([self._copy(task, first_job)] if self._copies_ahead else [])]

    def _copy(self, task: Any, which: Any) -> Any:
        """Copies the rows that a job slides over."""
        first, values = self._place_of(which)
        return self._g.plane.copy(task, first, values, turn=which)

    def _place_of(self, which: Any) -> tuple[Any, Values]:
        """A job's first row, and its image and channel."""
        axes = (*self._w.images, *self._w.channels)  # as in other kernels (ADR 0028)
        *at, band = digits_of(which, (*(axis.extent for axis in axes), self._g.tiling.bands))
        return self._g.first_row(band), values_of(axes, at)

    def _job(self, task: Any, which: Any) -> Any:
        """One band of one channel of one image."""
        w, tiling = self._w, self._g.tiling
        first, values = self._place_of(which)
        taps = tirx.decl_buffer((len(self._phases) * w.taps,), "float32", "taps", scope=REGISTERS)
        start = self._g.plane.start(which)
        copied = tirx.min(which + 1, self._loops.number(tiling.jobs - 1)) if self._copies_ahead else which

        def tile(number: Any) -> Any:
            row = first + number * self._tile.rows
            base = start + number * self._g.tile_pitch
            sums = self._loops.loop("block", tiling.column_tiles, lambda block: self._sums(task, taps, base, block))
            statement = sequence(sums, self._store(task, row, values))
            return when(row < w.rows.position.extent, statement, tiling.row_tiles % tiling.band_tiles != 0)

        return sequence(
            tirx.AllocBuffer(taps),
            *self._read_taps(taps, values),
            self._copy(task, copied),
            self._loops.loop("tile", tiling.band_tiles, tile),
        )

    def _read_taps(self, taps: Any, values: Values) -> list[Any]:
        return [
            tirx.BufferStore(taps, self._tap(phases, r, s, values), [self._tap_at(phases, r, s)])
            for phases in self._phases
            for r in range(self._w.rows.tap.extent)
            for s in range(self._w.columns.tap.extent)
        ]

    def _tap_at(self, phases: Phases, r: int, s: int) -> Any:
        rows, columns = self._w.rows.tap.extent, self._w.columns.tap.extent
        return self._loops.number((self._phases.index(phases) * rows + r) * columns + s)

    def _tap(self, phases: Phases, r: int, s: int, values: Values) -> Any:
        """The window's element; the constant zero where a phase has no such tap."""
        rows, columns = self._w.rows, self._w.columns
        at = {rows.tap.variable: r, columns.tap.variable: s}
        at |= {c.phase.variable: p for c, p in zip((rows, columns), phases, strict=True) if c.phase is not None}
        numbers = {variable: self._loops.number(value) for variable, value in at.items()}
        return tvm.sym.Analyzer().simplify(replaced(self._w.a, {**values, **numbers}))

    def _sums(self, task: Any, taps: Any, start: Any, block: Any) -> Any:
        """A tile of sums for each phase, from `start` in the plane, stored in the lines."""
        tile, column_phases = self._tile, self._w.columns.phases
        count = tile.rows * tile.width
        phase_sums = tirx.decl_buffer((column_phases * count,), "float32", "settled", scope=REGISTERS)
        statements: list[Any] = [tirx.AllocBuffer(phase_sums)] if column_phases > 1 else []
        for phases in self._phases:
            sums = tirx.decl_buffer((count,), "float32", "sums", scope=REGISTERS)
            statements += [tirx.AllocBuffer(sums), *self._each(_clears(sums))]
            statements += self._products(task, taps, start + block * tile.width, phases, sums)
            if column_phases == 1:
                statements += self._each(self._moves(sums, task, block, phases[0]))
                continue
            statements += self._each(_copies(sums, phase_sums, phases[1] * count))
            if phases[1] == column_phases - 1:
                statements.append(self._interleave(task, phase_sums, block, phases[0]))
        return sequence(*statements)

    def _moves(self, sums: Any, task: Any, block: Any, row_phase: int) -> Callable[[int, Any], Any]:
        def move(start: int, lane: Any) -> Any:
            row, column = divmod(start, self._tile.width)
            place = self._line(row, row_phase) + block * self._tile.width + (column + lane)
            return tirx.BufferStore(self._lines, sums[start + lane], [task, place])

        return move

    def _each(self, body: Callable[[int, Any], Any]) -> list[Any]:
        """`body(start, lane)` for every vector of a tile."""
        starts = range(0, self._tile.rows * self._tile.width, self._tile.lanes)
        return [self._g.vector(partial(body, start)) for start in starts]

    def _products(self, task: Any, taps: Any, base: Any, phases: Phases, sums: Any) -> list[Any]:
        tile, plane = self._tile, self._g.plane
        statements = []
        for product in self._g.tap_products(phases, range(self._w.rows.tap.extent)):
            if isinstance(self._tap(phases, product.tap_row, product.tap_column, {}), tirx.FloatImm):
                continue
            tap = taps[self._tap_at(phases, product.tap_row, product.tap_column)]
            for column in range(0, tile.width, tile.lanes):
                start, place = product.row * tile.width + column, base + (product.place + column)

                def add(lane: Any, start: int = start, place: Any = place, tap: Any = tap) -> Any:
                    term = tap * plane.buffer[task, place + lane]
                    return tirx.BufferStore(sums, sums[start + lane] + term, [start + lane])

                statements.append(self._g.vector(add))
        return statements

    def _line(self, row: Any, row_phase: int) -> Any:
        return (row * self._w.rows.phases + row_phase) * self._line_pitch

    def _interleave(self, task: Any, phase_sums: Any, block: Any, row_phase: int) -> Any:
        """Interleaves the columns of all phases, which LLVM does with shuffles."""
        tile, phases = self._tile, self._w.columns.phases

        def element(at: list[Any]) -> Any:
            row, column = at
            start = self._line(row, row_phase) + (block * tile.width + column) * phases
            places = [(phase * tile.rows + row) * tile.width + column for phase in range(phases)]
            stores = [tirx.BufferStore(self._lines, phase_sums[p], [task, start + n]) for n, p in enumerate(places)]
            return sequence(*stores)

        return self._loops.nest("settle", (tile.rows, tile.width), element)

    def _store(self, task: Any, first: Any, values: Values) -> Any:
        """Stores the lines in C, through the epilogue if there is one."""
        rows = self._w.rows

        def line(number: Any, row_phase: int) -> Any:
            row = {rows.position.variable: first + number}
            if rows.phase is not None:
                row[rows.phase.variable] = self._loops.number(row_phase)
            conditions = [replaced(limit.value, row) < limit.extent for limit in self._limits.rows]
            if rows.position.extent % self._tile.rows:
                conditions.append(first + number < rows.position.extent)
            start = self._line(number, row_phase)
            statement = self._loops.along(
                "place",
                self._limits.columns,
                self._tile.lanes,
                lambda place: self._finished({**values, **row}, place, self._lines[task, start + place]),
            )
            return tirx.IfThenElse(tirx.all(*conditions), statement, None) if conditions else statement

        def every_phase(number: Any) -> Any:
            return sequence(*(line(number, phase) for phase in range(rows.phases)))

        return self._loops.loop("row", self._tile.rows, every_phase)

    def _finished(self, values: Values, place: Any, value: Any) -> Any:
        columns, analyzer = self._w.columns, tvm.sym.Analyzer()
        at = {**values, columns.position.variable: tirx.floordiv(place, columns.phases)}
        if columns.phase is not None:
            at[columns.phase.variable] = tirx.floormod(place, columns.phases)
        indices = [analyzer.simplify(replaced(index, at)) for index in self._w.contraction.indices]
        return self._w.contraction.finished(indices, value)


def _clears(buffer: Any) -> Callable[[int, Any], Any]:
    return lambda start, lane: tirx.BufferStore(buffer, _ZERO, [start + lane])


def _copies(source: Any, target: Any, offset: int) -> Callable[[int, Any], Any]:
    return lambda start, lane: tirx.BufferStore(target, source[start + lane], [offset + start + lane])
