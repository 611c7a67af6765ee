"""Packs panels of B: copies that the innermost loop of a product reads in order.

Padding, strides and dilation are resolved here, once for each element. A B that is contiguous along the panel is copied
in the order of memory. One that is contiguous along k is transposed in registers where possible, and otherwise copied a
few steps of k at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import Contraction, is_contiguous, is_known, replaced, unguarded, values_of
from edgetrain_tuner.rules.loops import Loops, digits_of, moved, position_of, sequence, when
from edgetrain_tuner.rules.product.blocking import Blocking
from edgetrain_tuner.rules.product.tiles import Tile
from edgetrain_tuner.rules.product.transpose import transpose_block, transposes_panel

AxisValues = Mapping[Any, Any]
_ZERO = tirx.FloatImm("float32", 0.0)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The panel that a job is working on: the values it fixes, and where in j and k it begins."""

    task: Any
    values: AxisValues  # of s, and of what the copy of A is described by
    j_start: Sequence[Any]
    k_start: Sequence[Any]
    k_extents: Sequence[Any]  # how deep it is; the last one of an axis may be less deep than the others
    part: Any  # its number among those that k is cut into


def inside(contraction: Contraction, tile: Tile, values: AxisValues) -> Any | None:
    """Whether the position exists, where a tile reaches beyond the end of an axis; None if it always does."""
    axes = zip(contraction.j, tile.shape, strict=True)
    conditions = [values[axis.variable] < axis.extent for axis, size in axes if axis.extent % size]
    # A limit on rows is no condition for a panel, which has none.
    known = [limit for limit in contraction.limits if is_known(limit.value, values)]
    conditions += [replaced(limit.value, values) < limit.extent for limit in known]
    return tirx.all(*conditions) if conditions else None


def when_present(contraction: Contraction, values: AxisValues, statement: Any) -> Any:
    """The statement, where there is anything to add for these values of s and k."""
    present = contraction.present
    return statement if present is None else tirx.IfThenElse(replaced(present, values), statement, None)


@dataclass(frozen=True, kw_only=True)
class PanelCopy:
    """Fills `buffer`, which holds a panel for each task: `depth` rows, each as wide as a tile."""

    contraction: Contraction
    blocking: Blocking
    machine: Machine
    loops: Loops
    buffer: Any

    @staticmethod
    def of(contraction: Contraction, blocking: Blocking, machine: Machine, loops: Loops) -> PanelCopy:
        shape = (blocking.tasks, blocking.depth, blocking.tile.width)
        buffer = tirx.decl_buffer(shape, "float32", "panel")
        return PanelCopy(contraction=contraction, blocking=blocking, machine=machine, loops=loops, buffer=buffer)

    @property
    def _tile(self) -> Tile:
        return self.blocking.tile

    def clear_padding(self, task: Any) -> list[Any]:
        """Zeros where a row is wider than its columns: products with them are computed, but never stored."""
        used = self._tile.used_width
        if used == self._tile.width:
            return []

        def clear(at: list[Any]) -> Any:
            return tirx.BufferStore(self.buffer, _ZERO, [task, at[0], at[1] + used])

        return [self.loops.nest("fill", (self.blocking.depth, self._tile.width - used), clear)]

    def copy(self, panel: Panel) -> Any:
        """Copies the panel in the order of B's memory, with zeros beyond the end of an axis."""
        j_shape, k_shape = self._tile.shape, tuple(panel.k_extents)
        nest = self.loops.nest
        if transposes_panel(self.contraction, self._tile, self.blocking.depth_shape, self.machine):
            return nest("pack", k_shape[:-1], lambda at: self._transpose(panel, at))
        _, element = unguarded(self.contraction.b)
        if is_contiguous(element, self.contraction.j[-1]) or not is_contiguous(element, self.contraction.k[-1]):
            return nest(
                "pack",
                (*k_shape, *j_shape),
                lambda at: self._copy_element(panel, at[len(k_shape) :], at[: len(k_shape)]),
            )
        return self._copy_steps(panel)

    def _values(self, panel: Panel, j_at: Sequence[Any], k_at: Sequence[Any]) -> AxisValues:
        return {
            **panel.values,
            **values_of(self.contraction.j, moved(panel.j_start, j_at)),
            **values_of(self.contraction.k, moved(panel.k_start, k_at)),
        }

    def _copy_element(self, panel: Panel, j_at: Sequence[Any], k_at: Sequence[Any]) -> Any:
        values = self._values(panel, j_at, k_at)
        element = replaced(self.contraction.b, values)
        condition = inside(self.contraction, self._tile, values)
        if condition is not None:
            element = tirx.if_then_else(condition, element, _ZERO)
        place = [panel.task, position_of(k_at, self.blocking.depth_shape), position_of(j_at, self._tile.shape)]
        return when_present(self.contraction, values, tirx.BufferStore(self.buffer, element, place))

    def _copy_steps(self, panel: Panel) -> Any:
        """Copies along k, a few steps at a time: the lines that are written are then still in the cache."""
        j_shape, k_shape, depth_shape = self._tile.shape, tuple(panel.k_extents), self.blocking.depth_shape
        axis = next((n for n, size in enumerate(depth_shape) if size > 1), 0)
        inner = math.prod(depth_shape[axis + 1 :])
        size = min(max(1, self.machine.caches.steps_copied // inner), depth_shape[axis])
        whole, rest = k_shape[:axis], k_shape[axis + 1 :]

        def several(at: list[Any]) -> Any:
            def one(place: list[Any]) -> Any:
                j_at, (offset, *k_rest) = place[: len(j_shape)], place[len(j_shape) :]
                step = at[-1] * size + offset
                copied = self._copy_element(panel, j_at, [*at[:-1], step, *k_rest])
                return when(step < k_shape[axis], copied, not _divides(size, k_shape[axis]))

            return self.loops.nest("pack", (*j_shape, size, *rest), one)

        return self.loops.nest("steps", (*whole, _parts_of(k_shape[axis], size)), several)

    def _transpose(self, panel: Panel, k_at: Sequence[Any]) -> Any:
        """Copies a run of steps by blocks that are transposed in registers; the last block ends with the run."""
        loops, lanes, run = self.loops, self._tile.lanes, panel.k_extents[-1]

        def block(step: Any, first: Any, columns: int) -> Any:
            def read(column: int, lane: Any) -> Any:
                j_at = digits_of(first + column, self._tile.shape)
                return replaced(self.contraction.b, self._values(panel, j_at, [*k_at, step + lane]))

            def write(lane: int, column: Any, value: Any) -> Any:
                depth = position_of([*k_at, step + lane], self.blocking.depth_shape)
                return tirx.BufferStore(self.buffer, value, [panel.task, depth, first + column])

            return transpose_block(loops, columns, lanes, read, write)

        def steps(number: Any) -> Any:
            step = number * lanes
            if not _divides(lanes, run):
                step = tirx.min(step, run - lanes)
            whole, rest = divmod(self._tile.used_width, lanes)
            blocks = [loops.loop("columns", whole, lambda n: block(step, n * lanes, lanes))] if whole else []
            blocks += [block(step, loops.number(whole * lanes), rest)] if rest else []
            return sequence(*blocks)

        return loops.loop("steps", _parts_of(run, lanes), steps)


def _divides(size: int, extent: Any) -> bool:
    return isinstance(extent, int) and extent % size == 0


def _parts_of(extent: Any, size: int) -> Any:
    return -(-extent // size) if isinstance(extent, int) else tirx.floordiv(extent + (size - 1), size)
