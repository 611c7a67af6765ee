"""From values to pixels, and the round values to write beside an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_LEAST_RANGE = 1e-300  # below, the fifth of a range is no longer a normal number
_TICKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A linear map from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def pixel(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(low: float, high: float) -> list[float]:
    """Round values within [low, high]: steps of 1, 2 or 5 times a power of ten, about five of them."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step)
    # From integers, and rounded to the step's own digits: 3 * 0.1 must not be labelled 0.30000000000000004.
    digits = max(0, 1 - math.floor(math.log10(step)))
    return [round(number * step, digits) for number in range(first, math.floor(high / step) + 1)]


def span(values: Sequence[float]) -> tuple[float, float]:
    """The range of an axis: never empty, since nothing can be drawn on a range of nothing."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if high - low > max(1e-9 * max(abs(low), abs(high)), _LEAST_RANGE):
        return low, high
    margin = abs(low) * 0.1 if abs(low) > _LEAST_RANGE else 0.5
    return low - margin, high + margin
