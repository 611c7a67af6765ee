"""The rule for sums of products on machines without vectors: a tile of the result stays in registers.

Such machines are small, so nothing is copied and there is no scratch: what a tile reads twice stays in a register. The
tile and some steps of the last summed axis are unrolled, so the conditions of padding and the phases of a stride are
decided when the kernel is written, and products with padding are left out. Axes are cut where a condition on them
changes: the first and the last tile are written separately, and the loop over the others has no conditions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import tirx

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import Axis, replaced, uses
from edgetrain_tuner.rules.loops import REGISTERS, Loops, sequence, when_all
from edgetrain_tuner.rules.product.register_tiling import (
    PARAMETERS,
    SumOfProducts,
    Tiling,
    choose_tiling,
    find_sum,
    is_short,
    taps_choices,
    tile_choices,
    tiling_of,
)
from edgetrain_tuner.rules.reduction.form import analyzer_of
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.rules.segments import Segment
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError
from edgetrain_tuner.schedule import Values as ParameterValues

_ZERO = tirx.FloatImm("float32", 0.0)

_NOTHING = tirx.Evaluate(tirx.IntImm("int32", 0))

Values = Mapping[Any, Any]  # of variables
Places = Mapping[Any, Sequence[Any]]  # of the axes' variables, all that a tile has
Ranges = Mapping[Any, int]  # of loops' variables


class RegisterTile:
    """The rule. It declines where there are vectors, and where no tile saves a load."""

    name = "register-tile"

    def names(self, _kernel: Kernel) -> Sequence[str]:
        return PARAMETERS

    def propose(self, kernel: Kernel, machine: Machine) -> Parameters | None:
        total = _sum(kernel, machine)
        tiling = None if total is None else choose_tiling(total, machine)
        return None if tiling is None else tiling.parameters

    def choices(self, kernel: Kernel, machine: Machine, name: str, before: Parameters) -> Sequence[ParameterValues]:
        total = _sum(kernel, machine)
        if total is None:
            return []
        if name == "tile":
            found = tile_choices(total, machine)
            return [tile for tile in found if is_short(total, Tiling(tile=tile, taps=1), machine)]
        options = [Tiling(tile=before["tile"], taps=taps) for taps in taps_choices(total, machine)]
        return [(option.taps,) for option in options if is_short(total, option, machine)]

    def check(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> None:
        self._checked(kernel, machine, parameters)

    def write(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Any:
        return _Writer(*self._checked(kernel, machine, parameters)).function()

    def _checked(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> tuple[SumOfProducts, Tiling]:
        total = _sum(kernel, machine)
        if total is None:
            raise ScheduleRefusedError("the kernel is no sum of products, or the target has vectors")
        return total, tiling_of(total, machine, parameters)


def _sum(kernel: Kernel, machine: Machine) -> SumOfProducts | None:
    return None if machine.has_vectors else find_sum(kernel.function)


class _Writer:
    """Writes the loops of a sum of products."""

    def __init__(self, total: SumOfProducts, tiling: Tiling) -> None:
        self._total = total
        self._tiling = tiling
        self._reduction = total.reduction
        self._loops = Loops(str(total.last.variable.ty.dtype))
        self._inside = [c for c in total.conditions if total.is_inside(c, tiling)]
        self._outside = [c for c in total.conditions if not total.is_inside(c, tiling)]

    def function(self) -> Any:
        return self._reduction.rewritten(self._tiles(0, {}, {}))

    def _tiles(self, number: int, places: Places, ranges: Ranges) -> Any:
        """All tiles along the axes from this one on."""
        if number == len(self._total.axes):
            return self._tile(places, ranges)
        axis, size = self._total.axes[number], self._tiling.tile[number]

        def tiles(at: Sequence[Any], known: Ranges) -> Any:
            return self._tiles(number + 1, {**places, axis.variable: at}, known)

        return self._along(axis, number, size, ranges, tiles)

    def _along(
        self, axis: Axis, number: int, size: int, ranges: Ranges, body: Callable[[Sequence[Any], Ranges], Any]
    ) -> Any:
        """`body` of the places of each tile along an axis, and of what is known of all variables then."""
        whole = [Segment(first=0, end=axis.extent, phases=(0,))]
        segments = self._total.segments(number, size) if size > 1 else whole

        def segment(part: Segment) -> Any:
            count = part.end - part.first

            def tile(index: Any) -> Any:
                known = {**ranges, index: count} if count > 1 else ranges
                first = (index + part.first) * size
                return body([first + phase for phase in part.phases], known)

            return self._loops.loop("tile", count, tile)

        return sequence(*map(segment, segments))

    def _tile(self, places: Places, ranges: Ranges) -> Any:
        points = [dict(zip(places, point, strict=True)) for point in itertools.product(*places.values())]
        sums = tirx.decl_buffer((len(points),), "float32", "sums", scope=REGISTERS)
        clear = [tirx.BufferStore(sums, _ZERO, [self._loops.number(n)]) for n in range(len(points))]
        analyzer = analyzer_of(ranges)
        keep = [
            self._reduction.kept(
                [analyzer.simplify(point[axis.variable]) for axis in self._total.axes],
                sums[self._loops.number(n)],
                analyzer,
            )
            for n, point in enumerate(points)
        ]
        return sequence(tirx.AllocBuffer(sums), *clear, self._added(sums, points, ranges), *keep)

    def _added(self, sums: Any, points: Sequence[Values], ranges: Ranges) -> Any:
        """Adds all products to the sums; those axes first that decide whether there are any."""
        taps = [axis for axis in self._reduction.taps if axis is not self._total.last]
        is_deciding = [any(uses(c, axis.variable) for c in self._outside) for axis in taps]
        deciding, others = (
            [axis for axis, decides in zip(taps, is_deciding, strict=True) if decides == wanted]
            for wanted in (True, False)
        )

        def where_present(values: Values, known: Ranges) -> Any:
            conditions = _undecided(self._outside, {**points[0], **values}, analyzer_of(known))
            if conditions is None:
                return _NOTHING
            add = self._nest(others, values, known, lambda v, k: self._last(sums, points, v, k))
            return when_all(conditions, add)

        return self._nest(deciding, {}, ranges, where_present)

    def _nest(self, axes: Sequence[Axis], values: Values, ranges: Ranges, body: Callable[[Values, Ranges], Any]) -> Any:
        """`body` for every step along the axes."""
        if not axes:
            return body(values, ranges)
        axis, *inner = axes

        def step(index: Any) -> Any:
            known = {**ranges, index: axis.extent} if axis.extent > 1 else ranges
            return self._nest(inner, {**values, axis.variable: index}, known, body)

        return self._loops.loop("step", axis.extent, step)

    def _last(self, sums: Any, points: Sequence[Values], values: Values, ranges: Ranges) -> Any:
        """Steps along the sum's last axis, some of them written out."""
        last = self._total.last

        def several(at: Sequence[Any], known: Ranges) -> Any:
            analyzer = analyzer_of(known)
            stores = []
            for place, (number, point) in itertools.product(at, enumerate(points)):
                term = self._term({**values, **point, last.variable: place}, analyzer)
                if term is not None:
                    index = self._loops.number(number)
                    stores.append(tirx.BufferStore(sums, sums[index] + term, [index]))
            return sequence(*stores) if stores else _NOTHING

        return self._along(last, len(self._total.axes), self._tiling.taps, ranges, several)

    def _term(self, values: Values, analyzer: Any) -> Any | None:
        """What is added for one place of the result and one of the sum; None where there is nothing."""
        conditions = _undecided(self._inside, values, analyzer)
        if conditions is None:
            return None
        one, other = (analyzer.simplify(replaced(factor, values)) for factor in self._total.factors)
        return tirx.if_then_else(tirx.all(*conditions), one * other, _ZERO) if conditions else one * other


def _undecided(conditions: Sequence[Any], values: Values, analyzer: Any) -> list[Any] | None:
    """Those conditions that are not known to hold; None where one is known not to."""
    found = [analyzer.simplify(replaced(condition, values)) for condition in conditions]
    if any(isinstance(condition, tirx.IntImm) and not int(condition) for condition in found):
        return None
    return [condition for condition in found if not isinstance(condition, tirx.IntImm)]
