"""The rule for windows without products: pools, the positions of their maxima, and their gradients.

The taps are few, so all of them are unrolled. Rows and columns are cut where padding begins, and split into phases
where a stride divides them. What is left inside the loops is one expression of consecutive elements, which LLVM
vectorises on any target.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import Axis, replaced, uses
from edgetrain_tuner.rules.loops import PARALLEL, SERIAL, Loops, digits_of, sequence
from edgetrain_tuner.rules.reduction.form import Reduction, analyzer_of, find_reduction, loads_of, with_result
from edgetrain_tuner.rules.rule import Kernel
from edgetrain_tuner.rules.segments import Segment, period_of, segments_of
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_names

PARAMETERS = ("parallel",)


class Pooling:
    """The rule. It declines kernels without a window, with products (there are better rules) and with many taps."""

    name = "pooling"

    def names(self, _kernel: Kernel) -> Sequence[str]:
        return PARAMETERS

    def propose(self, kernel: Kernel, machine: Machine) -> Parameters | None:
        pool = self._pool(kernel, machine)
        if pool is None:
            return None
        return {"parallel": (int(machine.cores > 1 and pool.work >= machine.thresholds.parallel_iterations),)}

    def choices(self, kernel: Kernel, machine: Machine, _name: str, _before: Parameters) -> Sequence[Values]:
        if self._pool(kernel, machine) is None:
            return []
        return [(0,), (1,)] if machine.cores > 1 else [(0,)]

    def check(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> None:
        self._checked(kernel, machine, parameters)

    def write(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Any:
        return self._checked(kernel, machine, parameters).written(is_shared=bool(parameters["parallel"][0]))

    def _checked(self, kernel: Kernel, machine: Machine, parameters: Parameters) -> Pool:
        require_names(parameters, PARAMETERS)
        pool = self._pool(kernel, machine)
        if pool is None:
            raise ScheduleRefusedError("the kernel reduces no window")
        if parameters["parallel"] not in self.choices(kernel, machine, "parallel", {}):
            raise ScheduleRefusedError(f"the planes are not shared among {machine.cores} cores")
        return pool

    def _pool(self, kernel: Kernel, machine: Machine) -> Pool | None:
        if kernel.contraction is not None or not machine.has_vectors:
            return None
        pool = find_pool(kernel.function, machine)
        return pool if pool is not None and pool.taps_written <= machine.limits.pooling_taps else None


@dataclass(frozen=True, kw_only=True)
class CutAxis:
    """An axis of the result that the window slides along."""

    axis: Axis
    period: int
    segments: tuple[Segment, ...]

    @property
    def copies(self) -> int:
        """How many copies of the loop body are written."""
        return sum(len(segment.phases) for segment in self.segments)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A reduction over small axes."""

    reduction: Reduction
    cut: tuple[CutAxis, ...]  # of its axes, those that the window slides along; the last is the result's last

    @property
    def work(self) -> int:
        return math.prod(axis.extent for axis in (*self.reduction.axes, *self.reduction.taps))

    @property
    def taps_written(self) -> int:
        return math.prod([axis.extent for axis in self.reduction.taps] + [cut.copies for cut in self.cut])

    def written(self, *, is_shared: bool) -> Any:
        """The kernel with its loops."""
        loops = Loops(str(self.reduction.taps[0].variable.ty.dtype))
        planes = [axis for axis in self.reduction.axes if not any(axis is cut.axis for cut in self.cut)]
        extents = [axis.extent for axis in planes]

        def plane(number: Any) -> Any:
            places = digits_of(number, extents) if extents else []
            values = {axis.variable: place for axis, place in zip(planes, places, strict=True)}
            return self._along(loops, self.cut, values, {})

        body = loops.loop("plane", math.prod(extents), plane, PARALLEL if is_shared else SERIAL)
        return self.reduction.rewritten(body)

    def _along(
        self, loops: Loops, left: Sequence[CutAxis], values: Mapping[Any, Any], ranges: Mapping[Any, int]
    ) -> Any:
        """The loops over the axes that are `left`."""
        if not left:
            return self._element(loops, values, ranges)
        cut, *inner = left

        def segment(part: Segment) -> Any:
            count = part.end - part.first

            def body(number: Any) -> Any:
                bound = {**ranges, number: count} if count > 1 else ranges
                first = (number + part.first) * cut.period
                return sequence(
                    *(self._along(loops, inner, {**values, cut.axis.variable: first + p}, bound) for p in part.phases)
                )

            return loops.loop("place", count, body)

        return sequence(*map(segment, cut.segments))

    def _element(self, loops: Loops, values: Mapping[Any, Any], ranges: Mapping[Any, int]) -> Any:
        analyzer = analyzer_of(ranges)
        reduction = self.reduction
        total = reduction.start
        for taps in itertools.product(*(range(axis.extent) for axis in reduction.taps)):
            numbers = {axis.variable: loops.number(tap) for axis, tap in zip(reduction.taps, taps, strict=True)}
            step = analyzer.simplify(replaced(reduction.combined, {**values, **numbers}))
            total = with_result(step, reduction.result, total)
        return reduction.kept([values[axis.variable] for axis in reduction.axes], total, analyzer)


def find_pool(function: Any, machine: Machine) -> Pool | None:
    """The reduction of a window that the kernel computes; None for any other kernel, and for too large a window."""
    reduction = find_reduction(function)
    if reduction is None:
        return None
    axes, taps, value = reduction.axes, reduction.taps, reduction.combined
    sliding = [axis for axis in axes if any(_meet(index, axis, taps) for index in _indices(value))]
    if not sliding or sliding[-1] is not axes[-1]:
        return None
    if math.prod(tap.extent for tap in taps) > machine.limits.pooling_taps:
        return None
    periods = [period_of(value, axis) for axis in sliding]
    if max(periods) > machine.limits.pooling_phases:
        return None
    cut = tuple(
        CutAxis(axis=axis, period=period, segments=tuple(segments_of(value, axis, period, taps)))
        for axis, period in zip(sliding, periods, strict=True)
    )
    return Pool(reduction=reduction, cut=cut)


def _meet(index: Any, axis: Axis, taps: Sequence[Axis]) -> bool:
    return uses(index, axis.variable) and any(uses(index, tap.variable) for tap in taps)


def _indices(expression: Any) -> Iterator[Any]:
    for load in loads_of(expression):
        yield from load.indices
