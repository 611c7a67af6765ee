"""Which tile of a sum of products stays in registers: the one whose products need the fewest loads.

Loads are counted for a tile in the middle, away from all edges.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

from edgetrain_tuner.machine import Machine
from edgetrain_tuner.rules.contraction import Axis, conjuncts, summed_product, unguarded, uses
from edgetrain_tuner.rules.reduction.form import Reduction, find_reduction, loads_of
from edgetrain_tuner.rules.segments import Segment, formula, is_comparison, is_computable, period_of, segments_of
from edgetrain_tuner.schedule import Parameters, ScheduleRefusedError, Values, require_names, require_within

PARAMETERS = ("tile", "taps")


@dataclass(frozen=True, kw_only=True)
class SumOfProducts:
    """The product of both `factors`, where all `conditions` hold, summed over the reduction's taps."""

    reduction: Reduction
    factors: tuple[Any, Any]
    conditions: tuple[Any, ...]
    _segments: dict[tuple[int, int], list[Segment]] = field(default_factory=dict, compare=False)  # found so far

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.reduction.axes

    @property
    def last(self) -> Axis:
        """The axis of the sum of which some steps are written out: the last that has more than one."""
        taps = self.reduction.taps
        return next((axis for axis in reversed(taps) if axis.extent > 1), taps[-1])

    @property
    def written_axes(self) -> tuple[Axis, ...]:
        """Those that a `Tiling` has sizes for, in its order."""
        return (*self.axes, self.last)

    def segments(self, number: int, size: int) -> list[Segment]:
        """A written axis in tiles of a size, those together whose conditions are the same."""
        if (number, size) not in self._segments:
            axis = self.written_axes[number]
            others = [a for a in (*self.axes, *self.reduction.taps) if a is not axis]
            self._segments[number, size] = segments_of(self.reduction.combined, axis, size, others)
        return self._segments[number, size]

    def is_inside(self, condition: Any, tiling: Tiling) -> bool:
        """Whether a condition differs within a tile, or along what of the sum is written out."""
        return any(uses(condition, axis.variable) for axis in (*tiling.tiled(self), self.last))


def find_sum(function: Any) -> SumOfProducts | None:
    """The sum of products of single floats that the kernel computes; None for any other kernel."""
    reduction = find_reduction(function)
    product = None if reduction is None else summed_product(reduction.block)
    if reduction is None or product is None or str(reduction.block.body.value.ty.dtype) != "float32":
        return None
    parts = [unguarded(factor) for factor in product]
    conditions = [part for condition, _ in parts for part in conjuncts(condition)]
    factors = (parts[0][1], parts[1][1])
    numbers = [index for factor in factors for load in loads_of(factor) for index in load.indices]
    if not all(map(is_computable, numbers)) or not all(map(is_comparison, conditions)):
        return None
    return SumOfProducts(reduction=reduction, factors=factors, conditions=tuple(conditions))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """How long a tile is along each axis of the result, and how many steps of the sum's last axis are written out."""

    tile: tuple[int, ...]
    taps: int

    @property
    def parameters(self) -> dict[str, Values]:
        return {"tile": self.tile, "taps": (self.taps,)}

    @property
    def sizes(self) -> tuple[int, ...]:
        """For each written axis."""
        return (*self.tile, self.taps)

    def size_of(self, total: SumOfProducts, axis: Axis) -> int:
        """1 for an axis that is not written out."""
        return next((s for a, s in zip(total.written_axes, self.sizes, strict=True) if a is axis), 1)

    def tiled(self, total: SumOfProducts) -> list[Axis]:
        return [axis for axis, size in zip(total.axes, self.tile, strict=True) if size > 1]


def choose_tiling(total: SumOfProducts, machine: Machine) -> Tiling | None:
    """The one with the fewest instructions; None where no tile saves any."""
    alone = Tiling(tile=(1,) * len(total.axes), taps=1)
    options = [
        Tiling(tile=tile, taps=taps) for tile in tile_choices(total, machine) for taps in taps_choices(total, machine)
    ]
    fitting = [option for option in options if is_short(total, option, machine)]
    if not fitting:
        return None
    costs = {option: cost(total, option, machine) for option in fitting}
    best = min(fitting, key=lambda option: (costs[option], math.prod(option.tile) * option.taps, option.tile))
    return best if costs[best] < machine.thresholds.register_tile_share * cost(total, alone, machine) else None


def tiling_of(total: SumOfProducts, machine: Machine, parameters: Parameters) -> Tiling:
    """The tiling with these parameters. Raises `ScheduleRefusedError` where they do not fit."""
    require_names(parameters, PARAMETERS)
    tile = require_within("tile", parameters["tile"], [axis.extent for axis in total.axes])
    (taps,) = require_within("taps", parameters["taps"], [total.last.extent])
    require_within("tile in all", (math.prod(tile),), [most_sums(machine)])
    tiling = Tiling(tile=tile, taps=taps)
    if not is_short(total, tiling, machine):
        most = machine.limits.register_tile_products
        raise ScheduleRefusedError(f"a tile of {list(tile)} and {taps} taps is more than {most} products")
    return tiling


def most_sums(machine: Machine) -> int:
    """The other half of the registers is for what is multiplied."""
    return machine.vector_registers // 2


def tile_choices(total: SumOfProducts, machine: Machine) -> list[Values]:
    """Boxes along one axis or two that registers hold."""
    lengths = [_lengths(total, axis, machine) for axis in total.axes]
    found = []
    for tile in itertools.product(*lengths):
        is_flat = sum(size > 1 for size in tile) <= machine.limits.register_tile_axes
        if is_flat and math.prod(tile) <= most_sums(machine):
            found.append(tile)
    return sorted(found, key=lambda tile: (math.prod(tile), tile))


def taps_choices(total: SumOfProducts, machine: Machine) -> list[int]:
    """Steps of the sum's last axis."""
    return _lengths(total, total.last, machine)


def _lengths(total: SumOfProducts, axis: Axis, machine: Machine) -> list[int]:
    """1, 2, 4 and the longest that cuts the axis evenly; where a stride takes it apart, whole periods."""
    period = period_of(total.reduction.combined, axis)
    longest = min(axis.extent, max(machine.limits.register_tile_length, period))
    even = -(-axis.extent // -(-axis.extent // longest))
    return sorted({1, *(size for size in (2, 4, even) if size <= longest and size % period == 0), min(period, longest)})


def is_short(total: SumOfProducts, tiling: Tiling, machine: Machine) -> bool:
    """Whether the code of all products is no longer than it may be."""
    return products_written(total, tiling) <= machine.limits.register_tile_products


def products_written(total: SumOfProducts, tiling: Tiling) -> int:
    return math.prod(
        sum(len(segment.phases) for segment in total.segments(number, size))
        for number, size in enumerate(tiling.sizes)
        if size > 1
    )


def cost(total: SumOfProducts, tiling: Tiling, machine: Machine) -> float:
    """Instructions for one product."""
    axes = (*total.axes, *total.reduction.taps)
    variables = [axis.variable for axis in axes]
    places = [_middle(axis.extent, tiling.size_of(total, axis)) for axis in axes]
    inside = [formula(c, variables) for c in total.conditions if total.is_inside(c, tiling)]
    reads = [
        (number, [formula(index, variables) for index in load.indices])
        for number, factor in enumerate(total.factors)
        for load in loads_of(factor)
    ]
    points = [point for point in itertools.product(*places) if all(holds(point) for holds in inside)]
    read = {(number, *(index(point) for index in indices)) for point in points for number, indices in reads}
    waste = math.prod(
        -(-axis.extent // size) * size / axis.extent for axis, size in zip(total.axes, tiling.tile, strict=True)
    )
    if not points:
        return math.inf
    return waste * (machine.costs.scalar_product + (len(read) + machine.costs.scalar_loop) / len(points))


def _middle(extent: int, size: int) -> range:
    """The places of a tile that has as many neighbours as there are."""
    first = extent // 2 if size == 1 else extent // size // 2 * size if extent > size else 0
    return range(first, min(first + size, extent))
