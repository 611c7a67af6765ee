"""A window whose positions are summed over: the gradient of a depthwise convolution's weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tvm import tirx

from edgetrain_tuner.rules.contraction import replaced, values_of
from edgetrain_tuner.rules.loops import REGISTERS, digits_of, sequence
from edgetrain_tuner.rules.window.form import Coordinate
from edgetrain_tuner.rules.window.planes import Plane
from edgetrain_tuner.rules.window.sliding import Sliding

_ZERO = tirx.FloatImm("float32", 0.0)


class SlideOverSums:
    """Writes the loops: for each channel, a vector of sums for each tap, whose lanes are added up at the end."""

    def __init__(self, sliding: Sliding) -> None:
        self._g = sliding
        self._w = sliding.window
        self._tile = sliding.tile
        self._loops = sliding.loops
        # A is copied too: beyond its last column there must be zeros.
        self._factors = Plane.of(
            sliding.loops, self._w.a, _itself(self._w.rows), _itself(self._w.columns), sliding.tiling
        )

    def function(self) -> Any:
        tiling, planes = self._g.tiling, (self._g.plane, self._factors)
        loop = self._loops.distribute(
            tiling.jobs, tiling.tasks, lambda task: [plane.clear(task) for plane in planes], self._job
        )
        return self._w.contraction.rewritten(sequence(*(tirx.AllocBuffer(plane.buffer) for plane in planes), loop))

    def _job(self, task: Any, which: Any) -> Any:
        """One channel."""
        w, count = self._w, self._w.taps * self._tile.lanes
        channel = values_of(w.channels, digits_of(which, [axis.extent for axis in w.channels]))
        kept = tirx.decl_buffer((count,), "float32", "kept", scope=REGISTERS)
        clear = self._loops.loop("clear", count, lambda at: tirx.BufferStore(kept, _ZERO, [at]))

        def band(at: list[Any]) -> Any:
            *image, number = at
            values = {**channel, **values_of(w.images, image)}
            first = self._g.first_row(number)
            copies = [plane.copy(task, first, values) for plane in (self._g.plane, self._factors)]
            return sequence(*copies, *(self._add(task, kept, rows) for rows in self._tap_groups()))

        bands = self._loops.nest("image", [*(axis.extent for axis in w.images), self._g.tiling.bands], band)
        return sequence(tirx.AllocBuffer(kept), clear, bands, self._store(kept, channel))

    def _tap_groups(self) -> list[range]:
        """Rows of the window whose sums fit the registers together."""
        count, step = self._w.rows.tap.extent, self._tile.tap_rows
        return [range(first, min(first + step, count)) for first in range(0, count, step)]

    def _add(self, task: Any, kept: Any, tap_rows: range) -> Any:
        """Adds a band's products to the sums of some rows of the window."""
        lanes, columns = self._tile.lanes, self._w.columns.tap.extent
        count, start = len(tap_rows) * columns, tap_rows.start * columns * lanes
        sums = tirx.decl_buffer((count * lanes,), "float32", "sums", scope=REGISTERS)

        def resume(at: Any) -> Any:
            return tirx.BufferStore(sums, kept[at + start], [at])

        def keep(at: Any) -> Any:
            return tirx.BufferStore(kept, sums[at], [at + start])

        tiles = (self._g.tiling.band_tiles, self._g.tiling.column_tiles)
        products = self._loops.nest("tile", tiles, lambda at: self._products(task, tap_rows, at, sums))
        begin, end = ([self._sum_vector(tap, body) for tap in range(count)] for body in (resume, keep))
        return sequence(tirx.AllocBuffer(sums), *begin, products, *end)

    def _sum_vector(self, tap: int, body: Callable[[Any], Any]) -> Any:
        return self._g.vector(lambda lane: body(tap * self._tile.lanes + lane))

    def _products(self, task: Any, tap_rows: range, tile_at: list[Any], sums: Any) -> Any:
        number, block = tile_at
        tile, plane, factors = self._tile, self._g.plane, self._factors
        column = block * tile.lanes
        statements = []
        for product in self._g.tap_products((0, 0), tap_rows):
            total = ((product.tap_row - tap_rows.start) * self._w.columns.tap.extent + product.tap_column) * tile.lanes
            at_factor = number * (tile.rows * factors.pitch) + column + product.row * factors.pitch
            at_plane = number * self._g.tile_pitch + column + product.place

            def add(lane: Any, total: int = total, at_factor: Any = at_factor, at_plane: Any = at_plane) -> Any:
                term = factors.buffer[task, at_factor + lane] * plane.buffer[task, at_plane + lane]
                return tirx.BufferStore(sums, sums[total + lane] + term, [total + lane])

            statements.append(self._g.vector(add))
        return sequence(*statements)

    def _store(self, kept: Any, channel: Mapping[Any, Any]) -> Any:
        w, lanes, zero = self._w, self._tile.lanes, self._loops.number(0)

        def tap(at: list[Any]) -> Any:
            row, column = at
            total = tirx.decl_buffer((1,), "float32", "total", scope=REGISTERS)
            start = (row * w.columns.tap.extent + column) * lanes
            values = {**channel, w.rows.tap.variable: row, w.columns.tap.variable: column}
            indices = [replaced(index, values) for index in w.contraction.indices]

            def add(lane: Any) -> Any:
                return tirx.BufferStore(total, total[zero] + kept[start + lane], [zero])

            return sequence(
                tirx.AllocBuffer(total),
                tirx.BufferStore(total, _ZERO, [zero]),
                self._loops.loop("lane", lanes, add),
                w.contraction.finished(indices, total[zero]),
            )

        return self._loops.nest("tap", (w.rows.tap.extent, w.columns.tap.extent), tap)


def _itself(c: Coordinate) -> Coordinate:
    """The positions of a coordinate as one of their own."""
    one_tap = replace(c.tap, extent=1)
    extent = c.position.extent
    return replace(c, variable=c.position.variable, tap=one_tap, stride=1, step=0, bases=(0,), extent=extent)
