"""Writes the loops of a convolution, or of a data gradient, by Winograd's algorithm; `rule` describes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import replaced, simplified_load
from edgetrain_tuner.rules.loops import Loops, digits_of, prefetch, sequence, when, when_all
from edgetrain_tuner.rules.window.planes import Plane
from edgetrain_tuner.rules.winograd.convolution_tiling import PLACES, WinogradTiling
from edgetrain_tuner.rules.winograd.form import OUTPUTS, TAPS, WinogradForm
from edgetrain_tuner.rules.winograd.products import RegisterSums
from edgetrain_tuner.rules.winograd.transforms import OF_FILTER, OF_IMAGE, OF_RESULT

_ZERO = tirx.FloatImm("float32", 0.0)


@dataclass(frozen=True, kw_only=True)
class _Work:
    """The panel and the block that a task is working on: where each begins."""

    task: Any
    tile: Any  # the panel's first register tile, of all filters
    image: Any
    tile_row: Any


@dataclass(frozen=True, kw_only=True)
class _Channels:
    """Some channels, from `start` on; `kept_at` is where their filters are kept, `number` is None for all of them."""

    start: Any
    count: Any
    kept_at: Any
    number: Any


class WinogradLoops:
    """`filters` and `image` hold the transforms, `products` the sums of their products over channels."""

    def __init__(self, form: WinogradForm, tiling: WinogradTiling, machine: Machine) -> None:
        self._form = form
        self._runs_ahead = machine.caches.weight_runs_ahead
        self._most_uneven = machine.thresholds.uneven_jobs
        self._t = t = tiling
        self._loops = Loops(str(form.channels.variable.ty.dtype))
        tile = (t.tasks, PLACES, t.panel)
        self._filters = tirx.decl_buffer((*tile, t.kept, t.filled_width), "float32", "filters")
        self._image = tirx.decl_buffer((t.tasks, PLACES, t.depth, t.pitch), "float32", "image")
        self._products = tirx.decl_buffer((*tile, t.row_tiles * t.rows, t.filled_width), "float32", "products")
        self._sums = RegisterSums(
            loops=self._loops, rows=t.rows, vectors=t.vectors, lanes=t.lanes, buffer=self._products
        )
        weights = (t.tasks, t.copied_depth, TAPS, TAPS, t.copied_width)
        self._weights = tirx.decl_buffer(weights, "float32", "weights")
        outputs = (t.tasks, OUTPUTS, OUTPUTS * t.tile_columns, t.lanes)
        self._outputs = tirx.decl_buffer(outputs, "float32", "settled")
        self._plane = Plane(
            loops=self._loops,
            element=form.image,
            rows=form.rows.reach,
            columns=form.columns.reach,
            positions=t.tile_rows,
            width=t.column_vectors * t.column_lanes,
            lanes=t.column_lanes,
            is_whole=t.row_blocks == 1,
            buffer=tirx.decl_buffer((t.tasks, t.plane), "float32", "plane"),
        )

    def function(self) -> Any:
        buffers = (self._filters, self._image, self._products, self._weights, self._outputs, self._plane.buffer)
        loop = self._loops.distribute(
            self._t.jobs,
            self._t.tasks,
            self._begin,
            self._job,
            kinds=self._t.kinds,
            most_uneven=self._most_uneven,
        )
        return self._form.contraction.rewritten(sequence(*(tirx.AllocBuffer(b) for b in buffers), loop))

    def _begin(self, task: Any) -> list[Any]:
        """Zeros: around the image, and for filters and tiles that only fill a vector or a register tile."""

        def clear(buffer: Any) -> Any:
            shape = [int(extent) for extent in buffer.ty.shape][1:]
            return self._loops.nest("clear", shape, lambda at: tirx.BufferStore(buffer, _ZERO, [task, *at]))

        return [self._plane.clear(task), clear(self._weights), clear(self._image)]

    def _job(self, task: Any, which: Any) -> Any:
        """One panel of filters over one block of the image, part after part of the channels."""
        t, channels = self._t, self._form.channels.extent
        panel, image_block, row_block = digits_of(which, (t.panels, t.image_blocks, t.row_blocks))
        work = _Work(task=task, tile=panel * t.panel, image=image_block * t.images, tile_row=row_block * t.tile_rows)
        zero = self._loops.number(0)
        keeps_all = t.kept == channels

        def part(number: Any) -> Any:
            start = number * t.depth
            count = t.depth if channels % t.depth == 0 else tirx.min(self._loops.number(t.depth), channels - start)
            some = _Channels(start=start, count=count, kept_at=start if keeps_all else zero, number=number)
            make = [] if keeps_all else [self._make_filters(work, some)]
            return sequence(*make, self._make_image(work, some), self._multiply(work, some))

        first = []
        if keeps_all:
            share = -(-(t.jobs // t.kinds) // t.tasks)
            everything = _Channels(start=zero, count=channels, kept_at=zero, number=None)
            is_new = tirx.any(
                tirx.all(image_block == 0, row_block == 0), tirx.floormod(which, self._loops.number(share)) == 0
            )
            first = [tirx.IfThenElse(is_new, self._make_filters(work, everything), None)]
        return sequence(*first, self._loops.loop("part", t.parts, part), self._store(work))

    def _in_panel(self, work: _Work, body: Callable[[Any], Any]) -> Any:
        """`body` for each register tile of the panel that holds filters."""
        t, filters = self._t, self._form.filters.extent

        def one(number: Any) -> Any:
            is_partial = -(-filters // t.width) % t.panel > 0
            return when((work.tile + number) * t.width < filters, body(number), is_partial)

        return self._loops.loop("side", t.panel, one)

    def _make_filters(self, work: _Work, some: _Channels) -> Any:
        """Copies weights, so that filters are contiguous, and transforms them, some channels at a time."""
        t, size = self._t, self._t.copied_depth

        def several(side: Any, first: Any, group: Any) -> Any:
            def steps(body: Callable[[Any], Any]) -> Any:
                is_partial = not isinstance(some.count, int) or some.count % size > 0
                return self._loops.loop(
                    "step", size, lambda step: when(group * size + step < some.count, body(step), is_partial)
                )

            def transform(step: Any) -> Any:
                def vector(number: Any) -> Any:
                    kept = (side, some.kept_at + group * size + step, first + number * t.lanes)
                    return self._transform_filter(work.task, (step, number * t.lanes), kept)

                return self._loops.loop("vector", t.copied_width // t.lanes, vector)

            return sequence(self._copy_weights(work, side, first, some.start + group * size, steps), steps(transform))

        def tile(side: Any) -> Any:
            def column(number: Any) -> Any:
                groups = (some.count + (size - 1)) // size
                return self._loops.loop("several", groups, lambda group: several(side, number * t.copied_width, group))

            return self._loops.loop("column", t.filled_width // t.copied_width, column)

        return self._in_panel(work, tile)

    def _copy_weights(
        self, work: _Work, side: Any, first: Any, channel: Any, steps: Callable[[Callable[[Any], Any]], Any]
    ) -> Any:
        """Copies weights in the order of memory, from a filter and a channel on, and prefetches the next ones."""
        form, t = self._form, self._t

        def filters(body: Callable[[Any, Any], Any]) -> Any:
            def one(number: Any) -> Any:
                at = (work.tile + side) * t.width + first + number
                conditions = [first + number < t.width] if t.width % t.lanes else []
                conditions += [at < form.filters.extent] if form.filters.extent % t.width else []
                return when_all(conditions, body(number, at))

            return self._loops.loop("filter", t.copied_width, one)

        def weight(filter_at: Any, channel_at: Any, row: Any, column: Any) -> Any:
            values = {
                form.filters.variable: filter_at,
                form.channels.variable: channel_at,
                form.rows.tap.variable: form.rows.tap_at(row),
                form.columns.tap.variable: form.columns.tap_at(column),
            }
            return simplified_load(replaced(form.contraction.b, values))

        def copy(step: Any, number: Any, filter_at: Any) -> Any:
            def tap(at: list[Any]) -> Any:
                element = weight(filter_at, channel + step, *at)
                return tirx.BufferStore(self._weights, element, [work.task, step, *at, number])

            further = (self._runs_ahead, 0) if form.is_filter_major else (0, self._runs_ahead)
            zero = self._loops.number(0)
            ahead = prefetch(weight(filter_at + further[0], channel + step + further[1], zero, zero))
            return sequence(ahead, self._loops.nest("tap", (TAPS, TAPS), tap))

        if form.is_filter_major:
            return filters(lambda number, at: steps(lambda step: copy(step, number, at)))
        return steps(lambda step: filters(lambda number, at: copy(step, number, at)))

    def _transform_filter(self, task: Any, copied: Sequence[Any], kept: Sequence[Any]) -> Any:
        """Transforms a vector of filters. `copied` is (step, filter), `kept` is (register tile, channel, filter)."""
        step, start = copied
        *lead, first = kept

        def load(row: int, column: int, lane: Any) -> Any:
            return self._weights[task, step, row, column, start + lane]

        def store(row: int, column: int, lane: Any, value: Any) -> Any:
            place = row * OF_FILTER.outputs + column
            return tirx.BufferStore(self._filters, value, [task, place, *lead, first + lane])

        return OF_FILTER.write(self._loops, self._t.lanes, load, store)

    def _make_image(self, work: _Work, some: _Channels) -> Any:
        """Copies what the block reaches of each channel, with zeros around it, and transforms it by rows of tiles."""
        form, t = self._form, self._t

        def one(at: list[Any]) -> Any:
            channel, number = at
            image = work.image + number
            values = {form.channels.variable: some.start + channel}
            if form.images is not None:
                values[form.images.variable] = image
            copy = self._plane.copy(work.task, work.tile_row, values)

            def vector(place: list[Any]) -> Any:
                row, column = place
                return self._transform_tiles(
                    work.task, channel, number * t.tile_rows + row, row, column * t.column_lanes
                )

            transform = self._loops.nest("turn", (t.tile_rows, t.column_vectors), vector)
            return when(image < form.image_count, sequence(copy, transform), form.image_count % t.images > 0)

        return self._loops.nest("channel", (some.count, t.images), one)

    def _transform_tiles(self, task: Any, channel: Any, number: Any, row: Any, column: Any) -> Any:
        """Transforms a vector of tiles; lanes beyond the last column are overwritten by the next row of tiles."""
        form, plane = self._form, self._plane
        start = row * (OUTPUTS * plane.pitch) + column
        first = number * self._t.tile_columns + column

        def load(tile_row: int, tile_column: int, lane: Any) -> Any:
            place = plane.at(
                row_offset=form.rows.reach.low + tile_row, column_offset=form.columns.reach.low + tile_column
            )
            return plane.buffer[task, start + place + lane]

        def store(tile_row: int, tile_column: int, lane: Any, value: Any) -> Any:
            place = tile_row * OF_IMAGE.outputs + tile_column
            return tirx.BufferStore(self._image, value, [task, place, channel, first + lane])

        return OF_IMAGE.write(self._loops, self._t.column_lanes, load, store)

    def _multiply(self, work: _Work, some: _Channels) -> Any:
        """Adds the products of some channels to the sums."""

        def place(number: Any) -> Any:
            def side(which: Any) -> Any:
                def tile(row_tile: Any) -> Any:
                    return self._multiply_tile(work.task, some, number, which, row_tile * self._t.rows)

                return self._loops.loop("tile", self._t.row_tiles, tile)

            return self._in_panel(work, side)

        return self._loops.loop("place", PLACES, place)

    def _multiply_tile(self, task: Any, some: _Channels, place: Any, side: Any, first: Any) -> Any:
        def product(channel: Any, row: Any, column: Any) -> Any:
            image = self._image[task, place, channel, first + row]
            return image * self._filters[task, place, side, some.kept_at + channel, column]

        return self._sums.add(
            some.count,
            product,
            kept=lambda row, column: [task, place, side, first + row, column],
            is_first=some.number == 0 if self._t.parts > 1 else None,
        )

    def _store(self, work: _Work) -> Any:
        """Transforms sums into outputs, a row of tiles for a vector of filters at a time, and stores them."""
        form, t = self._form, self._t

        def row(at: list[Any]) -> Any:
            number, tile_row = at

            def side(which: Any) -> Any:
                def vector(place: Any) -> Any:
                    first = (number * t.tile_rows + tile_row) * t.tile_columns
                    filter_at = (work.tile + which) * t.width + place * t.lanes
                    used = t.width - place * t.lanes
                    return sequence(
                        self._transform_result(work.task, which, first, place * t.lanes),
                        self._write(work, (work.image + number, work.tile_row + tile_row), filter_at, used),
                    )

                return self._loops.loop("vector", t.vectors, vector)

            conditions = [work.image + number < form.image_count] if form.image_count % t.images else []
            conditions += [work.tile_row + tile_row < form.rows.tiles] if form.rows.tiles % t.tile_rows else []
            return when_all(conditions, self._in_panel(work, side))

        return self._loops.nest("row", (t.images, t.tile_rows), row)

    def _transform_result(self, task: Any, side: Any, first: Any, start: Any) -> Any:
        def tile(column: Any) -> Any:
            def load(row: int, place: int, lane: Any) -> Any:
                return self._products[task, row * OF_RESULT.inputs + place, side, first + column, start + lane]

            def store(row: int, place: int, lane: Any, value: Any) -> Any:
                return tirx.BufferStore(self._outputs, value, [task, row, column * OUTPUTS + place, lane])

            return OF_RESULT.write(self._loops, self._t.lanes, load, store)

        return self._loops.loop("tile", self._t.tile_columns, tile)

    def _write(self, work: _Work, at: Sequence[Any], filter_at: Any, used: Any) -> Any:
        """Stores outputs through the epilogue if there is one, but none beyond the last row, column or filter."""
        form, t = self._form, self._t
        image, tile_row = at

        def element(place: list[Any]) -> Any:
            number, row, column = place
            y = tile_row * OUTPUTS + row
            values = {form.filters.variable: filter_at + number, form.rows.output.variable: y}
            values[form.columns.output.variable] = column
            if form.images is not None:
                values[form.images.variable] = image
            indices = [replaced(index, values) for index in form.contraction.indices]
            return form.contraction.finished(indices, self._outputs[work.task, row, column, number])

        def line(place: list[Any]) -> Any:
            number, row = place
            conditions = [number < used] if t.width % t.lanes else []
            conditions += [filter_at + number < form.filters.extent] if form.filters.extent % t.width else []
            if form.rows.output.extent % OUTPUTS:
                conditions.append(tile_row * OUTPUTS + row < form.rows.output.extent)
            written = self._loops.loop(
                "column", form.columns.output.extent, lambda column: element([number, row, column])
            )
            return when_all(conditions, written)

        return self._loops.nest("line", (t.lanes, OUTPUTS), line)
