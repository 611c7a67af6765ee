"""Writes the loops of a weight gradient by Winograd's algorithm; `rule` describes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgetrain_tuner.rules.contraction import Axis, replaced, simplified_load
from edgetrain_tuner.rules.loops import VECTORIZED, Loops, digits_of, sequence, when, when_all
from edgetrain_tuner.rules.winograd.convolution_tiling import PLACES
from edgetrain_tuner.rules.winograd.form import OUTPUTS, TAPS, WinogradForm
from edgetrain_tuner.rules.winograd.products import RegisterSums
from edgetrain_tuner.rules.winograd.transforms import OF_GRADIENT, OF_IMAGE, OF_TAPS, Transform
from edgetrain_tuner.rules.winograd.weights_tiling import WeightTiling

_ZERO = tirx.FloatImm("float32", 0.0)


@dataclass(frozen=True, kw_only=True)
class _Factor:
    """One of the two that are multiplied: the image by channels, or the gradient by filters.

    `copied` is a part of an image, with a vector of channels at each place; `transformed` holds the transforms of all
    tiles of a block.
    """

    axis: Axis
    transform: Transform
    element: Callable[[Any, Any, Any, Any], Any]  # at an image, a channel, a row and a column
    low: tuple[int, int]  # the row and the column where the first tile begins
    extents: tuple[int, int]  # of the tensor: beyond it are zeros
    copied: Any
    transformed: Any

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and lanes of what is copied."""
        _, rows, columns, lanes = (int(extent) for extent in self.copied.ty.shape)
        return rows, columns, lanes


@dataclass(frozen=True, kw_only=True)
class _Block:
    """Under work by a task: its first image and row of tiles, and how many images it has."""

    task: Any
    image: Any
    images: Any
    tile_row: Any
    is_first: Any


class WeightLoops:
    """Writes the kernel out. `sums` are what the products of all tiles add up to, `taps` what becomes of some, and
    `line` the same in the order of memory."""

    def __init__(self, form: WinogradForm, tiling: WeightTiling) -> None:
        self._form = form
        self._t = t = tiling
        self._loops = Loops(str(form.channels.variable.ty.dtype))

        def buffer(name: str, *shape: int) -> Any:
            return tirx.decl_buffer((t.tasks, *shape), "float32", name)

        self._image = _Factor(
            axis=form.channels,
            transform=OF_IMAGE,
            element=self._pixel,
            low=(form.rows.reach.low, form.columns.reach.low),
            extents=(form.rows.reach.extent, form.columns.reach.extent),
            copied=buffer("pixels", *t.image_shape, t.lanes),
            transformed=buffer("image", PLACES, t.tiles, t.channel_vectors * t.lanes),
        )
        self._gradient = _Factor(
            axis=form.filters,
            transform=OF_GRADIENT,
            element=self._slope,
            low=(0, 0),
            extents=(form.rows.output.extent, form.columns.output.extent),
            copied=buffer("slopes", *t.gradient_shape, t.lanes),
            transformed=buffer("gradient", PLACES, t.tiles, t.filter_vectors * t.lanes),
        )
        self._sums = buffer("sums", PLACES, t.filters, t.channel_vectors * t.lanes)
        self._register_sums = RegisterSums(
            loops=self._loops, rows=t.rows, vectors=t.vectors, lanes=t.lanes, buffer=self._sums
        )
        self._taps = buffer("taps", TAPS, TAPS, t.lanes)
        self._line = buffer("line", t.lanes * TAPS * TAPS)

    def function(self) -> Any:
        factors = [buffer for factor in (self._image, self._gradient) for buffer in (factor.copied, factor.transformed)]
        loop = self._loops.distribute(self._t.jobs, self._t.tasks, self._begin, self._job)
        allocated = (tirx.AllocBuffer(buffer) for buffer in (*factors, self._sums, self._taps, self._line))
        return self._form.contraction.rewritten(sequence(*allocated, loop))

    def _pixel(self, image: Any, channel: Any, row: Any, column: Any) -> Any:
        form = self._form
        values = {form.channels.variable: channel}
        values |= {form.rows.reach.variable: row, form.columns.reach.variable: column}
        if form.images is not None:
            values[form.images.variable] = image
        return replaced(form.image, values)

    def _slope(self, image: Any, filter_at: Any, row: Any, column: Any) -> Any:
        form = self._form
        values = {form.filters.variable: filter_at}
        values |= {form.rows.output.variable: row, form.columns.output.variable: column}
        if form.images is not None:
            values[form.images.variable] = image
        return simplified_load(replaced(form.contraction.b, values))

    def _begin(self, task: Any) -> list[Any]:
        """Zeros: around the image, and for channels and filters that only fill a vector."""

        def clear(factor: _Factor) -> Any:
            return self._loops.nest(
                "clear", factor.shape, lambda at: tirx.BufferStore(factor.copied, _ZERO, [task, *at])
            )

        return [clear(self._image), clear(self._gradient)]

    def _job(self, task: Any, which: Any) -> Any:
        """One square of weights, over all blocks of all images."""
        form, t = self._form, self._t
        side, panel = digits_of(which, (t.sides, t.panels))
        filter_at, channel = side * t.filters, panel * t.channels

        def block(at: list[Any]) -> Any:
            image, row_block = at[0] * t.images, at[1]
            images = self._loops.number(t.images)
            one = _Block(
                task=task,
                image=image,
                images=tirx.min(images, form.image_count - image) if form.image_count % t.images else images,
                tile_row=row_block * t.tile_rows,
                is_first=tirx.all(at[0] == 0, at[1] == 0),
            )
            return sequence(
                self._transform_block(one, self._image, channel, t.channel_vectors),
                self._transform_block(one, self._gradient, filter_at, t.filter_vectors),
                self._multiply(one),
            )

        blocks = self._loops.nest("block", (t.image_blocks, t.row_blocks), block)
        return sequence(blocks, self._store(task, filter_at, channel))

    def _transform_block(self, block: _Block, factor: _Factor, start: Any, vectors: int) -> Any:
        """Copies what the block reaches of a vector of channels, and transforms it tile by tile."""
        t = self._t

        def one(at: list[Any]) -> Any:
            number, vector = at
            copy = self._copy(block, factor, block.image + number, start + vector * t.lanes)

            def tile(place: list[Any]) -> Any:
                row, column = place
                kept = number * t.image_tiles + row * t.tile_columns + column
                return self._transform_tile(block.task, factor, (row, column), (kept, vector * t.lanes))

            transform = self._loops.nest("turn", (t.tile_rows, t.tile_columns), tile)
            return when(start + vector * t.lanes < factor.axis.extent, sequence(copy, transform), True)

        return self._loops.nest("vector", (block.images, vectors), one)

    def _copy(self, block: _Block, factor: _Factor, image: Any, start: Any) -> Any:
        rows, columns, lanes = factor.shape
        low_row, low_column = factor.low
        first, end = max(0, -low_column), min(columns, factor.extents[1] - low_column)

        def row(number: Any) -> Any:
            place = block.tile_row * OUTPUTS + low_row + number

            def lane(which: Any) -> Any:
                def column(at: Any) -> Any:
                    element = factor.element(image, start + which, place, at + (first + low_column))
                    return tirx.BufferStore(factor.copied, element, [block.task, number, at + first, which])

                copied = self._loops.loop("column", end - first, column)
                return when(start + which < factor.axis.extent, copied, factor.axis.extent % lanes > 0)

            def blank(column: Any) -> Any:
                def one(which: Any) -> Any:
                    return tirx.BufferStore(factor.copied, _ZERO, [block.task, number, column, which])

                return self._loops.loop("lane", lanes, one, VECTORIZED)

            conditions = [place >= 0] if low_row < 0 else []
            last = OUTPUTS * self._t.row_blocks * self._t.tile_rows + low_row + rows - OUTPUTS * self._t.tile_rows
            conditions += [place < factor.extents[0]] if last > factor.extents[0] else []
            filled = self._loops.loop("lane", lanes, lane)
            if not conditions:
                return filled
            return tirx.IfThenElse(tirx.all(*conditions), filled, self._loops.loop("blank", columns, blank))

        return self._loops.loop("row", rows, row)

    def _transform_tile(self, task: Any, factor: _Factor, at: tuple[Any, Any], kept: tuple[Any, Any]) -> Any:
        """A vector of channels: `at` is the tile's row and column, `kept` its number in the block and first channel."""
        (row, column), (number, first) = at, kept

        def load(tile_row: int, tile_column: int, lane: Any) -> Any:
            return factor.copied[task, row * OUTPUTS + tile_row, column * OUTPUTS + tile_column, lane]

        def store(tile_row: int, tile_column: int, lane: Any, value: Any) -> Any:
            place = tile_row * factor.transform.outputs + tile_column
            return tirx.BufferStore(factor.transformed, value, [task, place, number, first + lane])

        return factor.transform.write(self._loops, self._t.lanes, load, store)

    def _multiply(self, block: _Block) -> Any:
        """Adds the products of all tiles of a block to the sums."""
        t = self._t

        def tile(at: list[Any]) -> Any:
            place, panel, side = at
            return self._multiply_tile(block, place, side * t.rows, panel * t.width)

        return self._loops.nest("place", (PLACES, t.panel, t.side), tile)

    def _multiply_tile(self, block: _Block, place: Any, first_filter: Any, first_channel: Any) -> Any:
        t, task = self._t, block.task

        def product(tile: Any, row: Any, column: Any) -> Any:
            slope = self._gradient.transformed[task, place, tile, first_filter + row]
            return slope * self._image.transformed[task, place, tile, first_channel + column]

        return self._register_sums.add(
            block.images * t.image_tiles,
            product,
            kept=lambda row, column: [task, place, first_filter + row, first_channel + column],
            is_first=block.is_first if t.blocks > 1 else None,
        )

    def _store(self, task: Any, filter_at: Any, channel: Any) -> Any:
        """Transforms sums into weights, a vector of channels at a time, and stores them through the epilogue if any."""
        form, t = self._form, self._t

        def vector(at: list[Any]) -> Any:
            row, number = at
            first = channel + number * t.lanes

            def load(tile_row: int, tile_column: int, lane: Any) -> Any:
                return self._sums[task, tile_row * OF_TAPS.inputs + tile_column, row, number * t.lanes + lane]

            def store(tap_row: int, tap_column: int, lane: Any, value: Any) -> Any:
                return tirx.BufferStore(self._taps, value, [task, tap_row, tap_column, lane])

            transformed = OF_TAPS.write(self._loops, t.lanes, load, store)
            conditions = [filter_at + row < form.filters.extent] if form.filters.extent % t.filters else []
            conditions += [first < form.channels.extent] if form.channels.extent % t.channels else []
            return when_all(conditions, sequence(transformed, self._write(task, filter_at + row, first)))

        return self._loops.nest("result", (t.filters, t.channel_vectors), vector)

    def _write(self, task: Any, filter_at: Any, first: Any) -> Any:
        """Stores weights in the order of memory, so that the epilogue's loads and stores are contiguous."""
        form, t = self._form, self._t

        def order(lane: Any) -> Any:
            number = self._loops.number
            taps = [(number(row), number(column)) for row in range(TAPS) for column in range(TAPS)]
            return sequence(
                *(
                    tirx.BufferStore(
                        self._line, self._taps[task, row, column, lane], [task, lane * len(taps) + number(place)]
                    )
                    for place, (row, column) in enumerate(taps)
                )
            )

        def element(at: Any) -> Any:
            lane, row, column = digits_of(at, (t.lanes, TAPS, TAPS))
            values = {form.filters.variable: filter_at, form.channels.variable: first + lane}
            values |= {form.rows.tap.variable: row, form.columns.tap.variable: column}
            indices = [replaced(index, values) for index in form.contraction.indices]
            return form.contraction.finished(indices, self._line[task, at])

        lanes = self._loops.number(t.lanes)
        used = tirx.min(lanes, form.channels.extent - first) if form.channels.extent % t.lanes else lanes
        return sequence(
            self._loops.loop("lane", t.lanes, order),
            self._loops.loop("element", used * (TAPS * TAPS), element),
        )
