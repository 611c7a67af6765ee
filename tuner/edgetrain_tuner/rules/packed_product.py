"""A contraction at the speed of the machine's multiply-add units, with no search.

As in every good matrix product (Goto and van de Geijn, 2008): a panel of B is copied so that the innermost loop reads
it in order, and a tile of the result stays in registers while that loop runs over k. The copy is also where padding,
strides and dilation are resolved, once for each element, so a convolution costs what a matrix product costs.

The loops are written out rather than derived by schedule primitives: sizes that divide nothing are then plain cases (a
panel is filled up with zeros, the last tile of rows is moved back to end with the last row), not conditions in the
innermost loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgetrain_tuner.features import Features
from edgetrain_tuner.rules.blocking import PARAMETERS, Blocking, blocking_of, choose_blocking
from edgetrain_tuner.rules.blocking_choices import choices
from edgetrain_tuner.rules.contraction import Contraction, extent_of, is_contiguous, is_known, replaced, values_of
from edgetrain_tuner.rules.loops import (
    REGISTERS,
    UNROLLED,
    VECTORIZED,
    Loops,
    digits_of,
    moved,
    position_of,
    scaled,
    sequence,
    when,
)
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values

MINIMUM_MULTIPLY_ADDS = 1 << 16  # below, copying a panel costs more than it brings
MINIMUM_DEPTH = 4

AxisValues = Mapping[Any, Any]
_ZERO = tirx.FloatImm("float32", 0.0)


class PackedProduct:
    """The rule. It declines where no panel would be used twice, and where the kernel is too small."""

    name = "packed-product"

    def names(self, _kernel: Kernel) -> Sequence[str]:
        return PARAMETERS

    def propose(self, kernel: Kernel, features: Features) -> Parameters | None:
        contraction = kernel.contraction
        if contraction is None or not contraction.i or contraction.multiply_adds < MINIMUM_MULTIPLY_ADDS:
            return None
        if extent_of(contraction.j) * 2 < features.lanes or extent_of(contraction.k) < MINIMUM_DEPTH:
            return None
        return choose_blocking(contraction, features).parameters

    def choices(self, kernel: Kernel, features: Features, name: str, before: Parameters) -> Sequence[Values]:
        return [] if kernel.contraction is None else choices(kernel.contraction, features, name, before)

    def check(self, kernel: Kernel, features: Features, parameters: Parameters) -> None:
        self._blocking(kernel, features, parameters)

    def write(self, kernel: Kernel, features: Features, parameters: Parameters) -> Any:
        return _Writer(*self._blocking(kernel, features, parameters)).function()

    def _blocking(self, kernel: Kernel, features: Features, parameters: Parameters) -> tuple[Contraction, Blocking]:
        if kernel.contraction is None or not kernel.contraction.i:
            raise ScheduleRefusedError("the kernel is no sum of products with rows")
        return kernel.contraction, blocking_of(kernel.contraction, features, parameters)


@dataclass(frozen=True, kw_only=True)
class _Panel:
    """A panel under work: the axes' values that it fixes, and where in j and k it begins."""

    task: Any
    s_values: AxisValues
    j_start: Sequence[Any]
    k_start: Sequence[Any]
    k_extents: Sequence[Any]  # how deep it is; the last one of an axis may be less deep than the others
    part: Any  # its number among those that k is cut into


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """A tile of rows under work, `number` in its block. Computed from `start`, stored from `first` on."""

    number: Any
    first: Any
    start: Any


class _Writer:
    """Writes one contraction out. The names follow its formula: rows are i, a panel is j wide and k deep."""

    def __init__(self, contraction: Contraction, blocking: Blocking) -> None:
        self._c = contraction
        self._blocking = blocking
        self._tile = blocking.tile
        self._loops = Loops(str(contraction.k[0].variable.ty.dtype))
        shape = (blocking.tasks, blocking.depth, self._tile.width)
        self._panel = tirx.decl_buffer(shape, "float32", "panel")
        # Sums so far, while k comes in parts.
        shape = (blocking.tasks, blocking.block_tiles * self._tile.rows, self._tile.width)
        self._kept = tirx.decl_buffer(shape, "float32", "kept") if blocking.parts > 1 else None

    def function(self) -> Any:
        blocking = self._blocking
        loop = self._loops.shared_out(blocking.jobs, blocking.tasks, self._filling, self._job)
        allocations = [tirx.AllocBuffer(buffer) for buffer in (self._panel, self._kept) if buffer is not None]
        return self._c.rewritten(sequence(*allocations, loop))

    def _filling(self, task: Any) -> list[Any]:
        """Zeros where a row of the panel is wider than what it will hold: sums there are never stored, but computed."""
        used = self._tile.used_width
        if used == self._tile.width:
            return []

        def clear(at: list[Any]) -> Any:
            return tirx.BufferStore(self._panel, _ZERO, [task, at[0], at[1] + used])

        return [self._loops.nest("fill", (self._blocking.depth, self._tile.width - used), clear)]

    def _job(self, task: Any, which: Any) -> Any:
        """One panel of B times one block of rows of A, part after part of k."""
        blocking = self._blocking
        s_extents = [axis.extent for axis in self._c.s]
        *lead, block = digits_of(which, (*s_extents, *blocking.j_parts, blocking.blocks))
        s_index, j_index = lead[: len(s_extents)], lead[len(s_extents) :]

        def part(number: Any) -> Any:
            k_start = scaled(digits_of(number, blocking.k_parts), blocking.depth_shape)
            panel = _Panel(
                task=task,
                s_values=values_of(self._c.s, s_index),
                j_start=scaled(j_index, self._tile.shape),
                k_start=k_start,
                k_extents=[
                    size if axis.extent % size == 0 else tirx.min(self._loops.number(size), axis.extent - start)
                    for axis, size, start in zip(self._c.k, blocking.depth_shape, k_start, strict=True)
                ],
                part=number,
            )

            def tile(number: Any) -> Any:
                tiles, index = blocking.row_tiles, block * blocking.block_tiles + number
                return when(index < tiles, self._tile_of(panel, number, index), tiles % blocking.block_tiles != 0)

            return sequence(self._pack(panel), self._loops.loop("tile", blocking.block_tiles, tile))

        return self._loops.loop("part", blocking.parts, part)

    def _pack(self, panel: _Panel) -> Any:
        """Copies the panel, in the order in which B lies in memory; what lies beyond an axis's end is zero."""
        by_column = not is_contiguous(self._c.b, self._c.j[-1]) and is_contiguous(self._c.b, self._c.k[-1])
        j_shape, k_shape = self._tile.shape, tuple(panel.k_extents)

        def copy(at: list[Any]) -> Any:
            j_at, k_at = (
                (at[: len(j_shape)], at[len(j_shape) :]) if by_column else (at[len(k_shape) :], at[: len(k_shape)])
            )
            values = {
                **panel.s_values,
                **values_of(self._c.j, moved(panel.j_start, j_at)),
                **values_of(self._c.k, moved(panel.k_start, k_at)),
            }
            element = replaced(self._c.b, values)
            inside = self._inside(values)
            if inside is not None:
                element = tirx.if_then_else(inside, element, _ZERO)
            place = [panel.task, position_of(k_at, self._blocking.depth_shape), position_of(j_at, j_shape)]
            return tirx.BufferStore(self._panel, element, place)

        return self._loops.nest("pack", (*j_shape, *k_shape) if by_column else (*k_shape, *j_shape), copy)

    def _inside(self, values: AxisValues) -> Any | None:
        """Whether the position exists, where a tile reaches beyond the end of an axis; None if it always does."""
        axes = zip(self._c.j, self._tile.shape, strict=True)
        conditions = [values[axis.variable] < axis.extent for axis, size in axes if axis.extent % size]
        # A limit on rows is no condition for a panel, which has none.
        known = [limit for limit in self._c.limits if is_known(limit.value, values)]
        conditions += [replaced(limit.value, values) < limit.extent for limit in known]
        return tirx.all(*conditions) if conditions else None

    def _tile_of(self, panel: _Panel, number: Any, index: Any) -> Any:
        """A tile of sums: begun or taken up again, added to, and kept for the next part or stored for good."""
        rows, first = extent_of(self._c.i), index * self._tile.rows
        start = tirx.min(first, self._loops.number(rows - self._tile.rows)) if rows % self._tile.rows else first
        tile = _Rows(number=number, first=first, start=start)
        sums = tirx.decl_buffer((self._tile.rows * self._tile.width,), "float32", "sums", scope=REGISTERS)
        clear = self._each(lambda row, column: tirx.BufferStore(sums, _ZERO, [self._at(row, column)]))
        products = self._loops.nest("depth", panel.k_extents, lambda at: self._add_products(panel, tile, sums, at))
        store = self._store(panel, tile, sums)
        buffer = self._kept
        if buffer is None:
            return sequence(tirx.AllocBuffer(sums), clear, products, store)

        def kept(row: Any, column: Any) -> list[Any]:
            return [panel.task, number * self._tile.rows + row, column]

        resume = self._each(
            lambda row, column: tirx.BufferStore(sums, buffer[tuple(kept(row, column))], [self._at(row, column)])
        )
        keep = self._each(lambda row, column: tirx.BufferStore(buffer, sums[self._at(row, column)], kept(row, column)))
        begin = tirx.IfThenElse(panel.part == 0, clear, resume)
        end = tirx.IfThenElse(panel.part == self._blocking.parts - 1, store, keep)
        return sequence(tirx.AllocBuffer(sums), begin, products, end)

    def _at(self, row: Any, column: Any) -> Any:
        return row * self._tile.width + column

    def _each(self, body: Callable[[Any, Any], Any]) -> Any:
        """`body` for every row and column of a tile, all of it unrolled into vector instructions."""
        lanes = self._tile.lanes

        def vector(row: Any, number: Any) -> Any:
            return self._loops.loop("lane", lanes, lambda lane: body(row, number * lanes + lane), VECTORIZED)

        def vectors(row: Any) -> Any:
            return self._loops.loop("vector", self._tile.vectors, lambda number: vector(row, number), UNROLLED)

        return self._loops.loop("row", self._tile.rows, vectors, UNROLLED)

    def _add_products(self, panel: _Panel, tile: _Rows, sums: Any, at: list[Any]) -> Any:
        k_values = values_of(self._c.k, moved(panel.k_start, at))
        depth = position_of(at, self._blocking.depth_shape)

        def add(row: Any, column: Any) -> Any:
            a = replaced(self._c.a, {**panel.s_values, **k_values, **self._row_values(tile.start + row)})
            place = self._at(row, column)
            return tirx.BufferStore(sums, sums[place] + a * self._panel[panel.task, depth, column], [place])

        return self._each(add)

    def _row_values(self, row: Any) -> AxisValues:
        return values_of(self._c.i, digits_of(row, [axis.extent for axis in self._c.i]))

    def _store(self, panel: _Panel, tile: _Rows, sums: Any) -> Any:
        """Writes the sums to where they belong, through the epilogue if there is one.

        They go through memory: what is read at places that are not constants cannot stay in registers.
        """
        settled = tirx.decl_buffer((self._tile.rows * self._tile.width,), "float32", "settled", scope=REGISTERS)

        def settle(row: Any, column: Any) -> Any:
            return tirx.BufferStore(settled, sums[self._at(row, column)], [self._at(row, column)])

        def row(number: Any) -> Any:
            def element(at: list[Any]) -> Any:
                j_values = values_of(self._c.j, moved(panel.j_start, at))
                values = {**panel.s_values, **j_values, **self._row_values(tile.start + number)}
                value = settled[self._at(number, position_of(at, self._tile.shape))]
                store = self._c.finished([replaced(index, values) for index in self._c.indices], value)
                inside = self._inside(values)
                return store if inside is None else tirx.IfThenElse(inside, store, None)

            columns = self._loops.nest("column", self._tile.shape, element)
            return when(tile.start + number >= tile.first, columns, extent_of(self._c.i) % self._tile.rows != 0)

        rows = self._loops.loop("row", self._tile.rows, row)
        return sequence(tirx.AllocBuffer(settled), self._each(settle), rows)
